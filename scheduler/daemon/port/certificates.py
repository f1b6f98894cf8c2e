"""
Issues serving certificates, each signed by a new CA whose key is then discarded.

No CA key is stored, so none can be stolen. A renewal creates a new CA; clients trust the old one as well until it
expires, so that replicas can change one after another.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from scheduler.daemon.port.tls import KeyPair

_DAY_S: Final = 86_400.0
LIFETIME_S: Final = 90 * _DAY_S
#: Leaves a month of failed renewals until the certificate expires, as cert-manager does by default.
RENEW_BEFORE_S: Final = 30 * _DAY_S
#: Validity starts this long before the time of issue, for clients whose clocks are slow.
_BACKDATED_S: Final = 3_600.0
#: Limit on CAs trusted at once: the current one, its predecessor, and one more after a forced renewal.
_MAX_AUTHORITIES: Final = 3
#: X.509's limit on a common name; a longer name is cut here and complete in the alternative names.
_MAX_COMMON_NAME: Final = 64

_Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True, repr=False)
class TrustedKeyPair:
    """A key pair, and the CA certificates (concatenated PEM) that clients should trust for it."""

    authorities: bytes
    pair: KeyPair


def issue(hosts: Sequence[str], now_s: float) -> TrustedKeyPair:
    """
    Return a pair for these DNS names and IP addresses, at least one, valid for `LIFETIME_S`, under a new CA.

    `now_s`: seconds since 1970.
    """
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name = _name(f"affinity-scheduler authority {x509.random_serial_number():x}"[:_MAX_COMMON_NAME])
    authority = (
        _builder(authority_name, authority_name, authority_key, now_s)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _builder(_name(hosts[0][:_MAX_COMMON_NAME]), authority_name, key, now_s)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    return TrustedKeyPair(
        authority.public_bytes(Encoding.PEM), KeyPair(certificate.public_bytes(Encoding.PEM), _pem(key))
    )


def renew(hosts: Sequence[str], now_s: float, old_authorities: bytes) -> TrustedKeyPair:
    """Issue a pair that is trusted by its new CA and by the old CAs that have not expired."""
    fresh = issue(hosts, now_s)
    try:
        old = x509.load_pem_x509_certificates(old_authorities)
    except ValueError:
        old = []
    alive = [each for each in dict.fromkeys(old) if each.not_valid_after_utc.timestamp() > now_s]
    kept = alive[: _MAX_AUTHORITIES - 1]
    authorities = b"".join((fresh.authorities, *(each.public_bytes(Encoding.PEM) for each in kept)))
    return TrustedKeyPair(authorities, fresh.pair)


def renewal_reason(trusted: TrustedKeyPair, hosts: Sequence[str], now_s: float) -> str | None:
    """Return why the pair has to be replaced, None if it need not be."""
    reason = refusal_reason(trusted, hosts, now_s)
    if reason is None and now_s >= expires_s(trusted.pair.cert) - RENEW_BEFORE_S:
        return "it expires soon"
    return reason


def refusal_reason(trusted: TrustedKeyPair, hosts: Sequence[str], now_s: float) -> str | None:
    """Return why clients that trust the authorities refuse the pair, None if they take it."""
    try:
        certificate, *_ = x509.load_pem_x509_certificates(trusted.pair.cert)
        authorities = x509.load_pem_x509_certificates(trusted.authorities)
        key = serialization.load_pem_private_key(trusted.pair.key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "there is none"
    if now_s >= certificate.not_valid_after_utc.timestamp():
        return "it has expired"
    if now_s < certificate.not_valid_before_utc.timestamp():
        return "it is not valid yet"
    if _public_bytes(key) != _public_bytes(certificate):
        return "its key does not match"
    if not _names(certificate).issuperset(hosts):
        return "it is for other names"
    if not any(_is_issuer(authority, certificate) for authority in authorities):
        return "its authority is not known"
    return None


def is_trusted(cert: bytes, authorities: bytes) -> bool:
    """Return True if one of the CAs (PEM) has issued the certificate (PEM)."""
    try:
        certificate, *_ = x509.load_pem_x509_certificates(cert)
        known = x509.load_pem_x509_certificates(authorities)
    except ValueError:
        return False
    return any(_is_issuer(authority, certificate) for authority in known)


def expires_s(cert: bytes) -> float:
    """Return when the certificate expires, in seconds since 1970. Raises ValueError if it is not in PEM."""
    return x509.load_pem_x509_certificates(cert)[0].not_valid_after_utc.timestamp()


def _builder(subject: x509.Name, issuer: x509.Name, key: _Key, now_s: float) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(now_s - _BACKDATED_S, UTC))
        .not_valid_after(datetime.fromtimestamp(now_s + LIFETIME_S, UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _names(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return set()
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    return {*names.get_values_for_type(x509.DNSName), *addresses}


def _is_issuer(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _public_bytes(holder: x509.Certificate | PrivateKeyTypes) -> bytes:
    return holder.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _pem(key: _Key) -> bytes:
    return key.private_bytes(Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())

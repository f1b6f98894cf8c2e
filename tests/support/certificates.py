"""A certificate authority for tests that need TLS, whose certificates may live for seconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_LIFETIME_S = 2 * 86400.0


@dataclass(frozen=True)
class Pair:
    """The files of a certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """Writes the certificates that it issues, and its own, into the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name.from_rfc4514_string("CN=test-ca")
        self.pair = self._write("ca", self._key, self._name, _LIFETIME_S, "")

    def issue(
        self, name: str, *, subject: str, host: str = "IP:127.0.0.1", lifetime_s: float = _LIFETIME_S
    ) -> Pair:
        """Return a new pair, written over the last one of the name; `subject` as in RFC 4514: `CN=alice,O=team`."""
        key = ec.generate_private_key(ec.SECP256R1())
        return self._write(name, key, x509.Name.from_rfc4514_string(subject), lifetime_s, host)

    def _write(
        self, name: str, key: ec.EllipticCurvePrivateKey, subject: x509.Name, lifetime_s: float, host: str
    ) -> Pair:
        now, public, own = datetime.now(UTC), key.public_key(), self._key.public_key()
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(seconds=lifetime_s))
            .add_extension(x509.BasicConstraints(ca=key is self._key, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own), critical=False)
        )
        if host:
            kind, _, value = host.partition(":")
            named = x509.IPAddress(ip_address(value)) if kind == "IP" else x509.DNSName(value)
            made = made.add_extension(x509.SubjectAlternativeName([named]), critical=False)
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        certificate = made.sign(self._key, hashes.SHA256())
        pair.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return pair

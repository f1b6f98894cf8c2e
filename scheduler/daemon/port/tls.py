"""TLS of a port: the context, and the certificate and key that it uses."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from scheduler.daemon.kube.pem_file import pem_file

Sleep = Callable[[float], Awaitable[None]]


#: Values of --tls-min-version; the others are below what is served anyway.
VERSIONS: Final[Mapping[str, ssl.TLSVersion]] = {
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
#: OpenSSL's names of the suites of TLS 1.2 that kube-scheduler prefers.
CIPHER_SUITES: Final[Mapping[str, str]] = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
#: The suites of TLS 1.3, which are always on, as in Go.
ALWAYS_ON: Final = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")


@dataclass(frozen=True, slots=True)
class TlsLimits:
    """Restrictions by flag: the lowest version, and OpenSSL's names of the suites of TLS 1.2, () for its default."""

    min_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    cipher_suites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class KeyPair:
    """A serving certificate with its chain, and its key, as PEM. Excluded from repr: it holds a secret."""

    cert: bytes
    key: bytes


class KeyPairUser(Protocol):
    """A port that uses a key pair."""

    def serve(self, pair: KeyPair) -> None:
        """Use this pair for new connections. Raises ssl.SSLError or ValueError if it is invalid."""


def server_context(limits: TlsLimits | None = None) -> ssl.SSLContext:
    """Return a context for servers, TLS 1.2 or later; handshakes fail until a pair is loaded."""
    limits = limits or TlsLimits()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = limits.min_version
    if limits.cipher_suites:
        context.set_ciphers(":".join(limits.cipher_suites))
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def load_pair(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Use this pair for new connections of the context. Raises ssl.SSLError if it is invalid."""
    with pem_file(pair.cert) as cert, pem_file(pair.key) as key:
        context.load_cert_chain(cert, key)

"""TLS of a port: the context, and the certificate and key that it uses."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, repr=False)
class KeyPair:
    """A serving certificate with its chain, and its key, as PEM. Excluded from repr: it holds a secret."""

    cert: bytes
    key: bytes


class KeyPairUser(Protocol):
    """A port that uses a key pair."""

    def serve(self, pair: KeyPair) -> None:
        """Use this pair for new connections. Raises ssl.SSLError or ValueError if it is invalid."""
        ...


def server_context() -> ssl.SSLContext:
    """Return a context for servers, TLS 1.2 or later; handshakes fail until a pair is loaded."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def load_pair(context: ssl.SSLContext, pair: KeyPair) -> None:
    """
    Use this pair for new connections of the context.

    The ssl module reads keys from files only, so the pair is written to anonymous files in memory; to temporary files
    on systems without them.

    Raises:
        ssl.SSLError: if the pair is invalid.
        OSError: if a temporary file cannot be written.
    """
    with _as_file(pair.cert) as cert, _as_file(pair.key) as key:
        context.load_cert_chain(cert, key)


@contextmanager
def _as_file(content: bytes) -> Iterator[Path]:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tls")
        try:
            os.write(descriptor, content)
            yield Path(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:  # readable by its owner only
        file.write(content)
        file.flush()
        yield Path(file.name)

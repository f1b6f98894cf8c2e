"""
The certificate that a port serves, kept good for as long as the process runs: from files, or of its own making.

The ssl module reads keys from files only, so a pair passes through files without a name, in memory alone, where the
system has such; elsewhere through a folder of temporary files.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from scheduler.errors import SettingsError
from scheduler.observe.logs import Logger

#: How often files are looked at: the kubelet renews a mounted Secret about once a minute.
FILES_ROUND_S: Final = 10.0
#: How often a certificate of our own making is looked at; it lives for months.
OWN_ROUND_S: Final = 3_600.0
#: What a port of our own certificate is called by: nobody can check more of it, as with kube-scheduler's.
OWN_HOSTS: Final = ("localhost", "127.0.0.1", "::1")

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, repr=False)
class Pair:
    """A serving certificate, its chain included, and its key, as PEM. Never shown: it holds a secret."""

    cert: bytes
    key: bytes


def server_context() -> ssl.SSLContext:
    """A context for servers, TLS 1.2 or later; handshakes fail while it has no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def load_pair(context: ssl.SSLContext, pair: Pair) -> None:
    """
    New connections get this pair.

    Raises:
        ssl.SSLError: if it is none.
        OSError: if there is no place for a file.
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
    with tempfile.NamedTemporaryFile() as file:  # its owner's alone
        file.write(content)
        file.flush()
        yield Path(file.name)


class Serving(Protocol):
    """Who serves a pair."""

    def serve(self, pair: Pair) -> None:
        """New connections get this pair. Raises ssl.SSLError or ValueError if it is none."""
        ...


class FileKeeper:
    """Keeps the pair of two files, which somebody else renews."""

    def __init__(self, cert: Path, key: Path, serving: Serving, *, log: Logger) -> None:
        self._cert, self._key = cert, key
        self._serving = serving
        self._log = log
        self._served: Pair | None = None

    def load(self) -> None:
        """
        The pair in the files is served.

        Raises:
            SettingsError: if they cannot be read or are no pair; what was served before is served on.
        """
        found = Pair(_content(self._cert, "--tls-cert-file"), _content(self._key, "--tls-private-key-file"))
        if found == self._served:
            return
        try:
            load_pair(server_context(), found)
            self._serving.serve(found)
        except (ssl.SSLError, ValueError) as error:
            expected = f"a PEM certificate and, in {self._key}, its key"
            raise SettingsError("--tls-cert-file", str(self._cert), str(error), expected) from error
        self._served = found

    async def run(self, sleep: Sleep = asyncio.sleep) -> None:
        """Look at the files again and again, for ever; a pair that is half replaced is tried the next time."""
        while True:
            await sleep(FILES_ROUND_S)
            try:
                self.load()
            except SettingsError as error:
                self._log.error("Could not renew the serving certificate", err=error)


class OwnKeeper:
    """Keeps a pair of its own making, which nobody signs and no disk ever sees, as kube-scheduler without files."""

    def __init__(self, serving: Serving, *, log: Logger, clock_s: Callable[[], float] = time.time) -> None:
        self._serving = serving
        self._log = log
        self._clock_s = clock_s
        self._renew_s = 0.0

    def load(self) -> None:
        """
        A fresh pair is served where there is none, or the last one will expire within a month.

        Raises:
            SettingsError: if the package that makes certificates is not installed.
        """
        if self._clock_s() < self._renew_s:
            return
        try:
            from scheduler.serving import certificates
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "cryptography":
                raise
            expected = "--tls-cert-file and --tls-private-key-file, or: pip install 'affinity-scheduler[tls]'"
            raise SettingsError(
                "--bind-address", "", "no certificate, and none can be made", expected
            ) from error
        now_s = self._clock_s()
        self._serving.serve(certificates.issue(OWN_HOSTS, now_s).pair)
        self._renew_s = now_s + certificates.LIFETIME_S - certificates.RENEW_BEFORE_S
        self._log.info(1, "Generated a self-signed certificate", hosts=OWN_HOSTS)

    async def run(self, sleep: Sleep = asyncio.sleep) -> None:
        """Look at the clock again and again, for ever."""
        while True:
            await sleep(OWN_ROUND_S)
            self.load()


def _content(path: Path, flag: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(flag, str(path), error.strerror or str(error), "a readable PEM file") from error

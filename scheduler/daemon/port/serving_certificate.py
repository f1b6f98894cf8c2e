"""Keeps the certificate of a port valid: re-reads it from files, or issues a self-signed one."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.port.tls import KeyPair, KeyPairUser, Sleep, load_pair, server_context
from scheduler.errors import SettingsError

#: How often files are read again: the kubelet updates a mounted Secret about once a minute.
FILES_PERIOD_S: Final = 10.0
#: How often the age of a self-signed certificate is checked; it is valid for months.
SELF_SIGNED_PERIOD_S: Final = 3_600.0
#: Names in a self-signed certificate, as in kube-scheduler's. Clients cannot verify it anyway.
SELF_SIGNED_HOSTS: Final = ("localhost", "127.0.0.1", "::1")


class FileCertificate:
    """Serves the certificate and key in two files, and reloads them when another program has renewed them."""

    def __init__(self, cert: Path, key: Path, port: KeyPairUser, *, log: Logger) -> None:
        self._cert, self._key = cert, key
        self._port = port
        self._log = log
        self._served: KeyPair | None = None

    def load(self) -> None:
        """
        Serve the pair in the files.

        Raises SettingsError if they are unreadable or do not match; the previous pair stays in use.
        """
        found = KeyPair(_read(self._cert, "--tls-cert-file"), _read(self._key, "--tls-private-key-file"))
        if found == self._served:
            return
        try:
            load_pair(server_context(), found)
            self._port.serve(found)
        except (ssl.SSLError, ValueError) as error:
            expected = f"a PEM certificate and, in {self._key}, its key"
            raise SettingsError("--tls-cert-file", str(self._cert), str(error), expected) from error
        self._served = found

    async def run(self, sleep: Sleep = asyncio.sleep) -> None:
        """Load the files periodically until cancelled. A half replaced pair is logged and tried again."""
        while True:
            await sleep(FILES_PERIOD_S)
            try:
                self.load()
            except SettingsError as error:
                self._log.error("Could not renew the serving certificate", err=error)


class SelfSignedCertificate:
    """Serves a pair that it issues itself and never writes to disk, as kube-scheduler does without files."""

    def __init__(self, port: KeyPairUser, *, log: Logger, clock_s: Callable[[], float] = time.time) -> None:
        self._port = port
        self._log = log
        self._clock_s = clock_s
        self._renew_s = 0.0

    def load(self) -> None:
        """Serve a new pair a month before the last one expires. Raises SettingsError without `cryptography`."""
        now_s = self._clock_s()
        if now_s < self._renew_s:
            return
        try:
            from scheduler.daemon.port import certificates
        except ImportError as error:
            # A distribution's own package may be too old: then a name in it is missing.
            if error.name is None or error.name.partition(".")[0] != "cryptography":
                raise
            expected = "--tls-cert-file and --tls-private-key-file, or: pip install 'affinity-scheduler[tls]'"
            found = "no certificate, and none can be made"
            raise SettingsError("--bind-address", "", found, expected) from error
        self._port.serve(certificates.issue(SELF_SIGNED_HOSTS, now_s).pair)
        self._renew_s = now_s + certificates.LIFETIME_S - certificates.RENEW_BEFORE_S
        self._log.info(1, "Generated a self-signed certificate", hosts=SELF_SIGNED_HOSTS)

    async def run(self, sleep: Sleep = asyncio.sleep) -> None:
        """Check the age periodically until cancelled."""
        while True:
            await sleep(SELF_SIGNED_PERIOD_S)
            self.load()


def _read(path: Path, flag: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(flag, str(path), error.strerror or str(error), "a readable PEM file") from error

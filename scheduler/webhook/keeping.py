"""
The served certificate, kept good for as long as the process runs: from a Secret that replicas share, or from files.

A new pair is served only once the API server has had time to learn its authority:

    renew in the Secret (one replica wins) -> name old and new authority in the configurations -> wait -> serve
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from scheduler.errors import ApiError, Conflict, SettingsError
from scheduler.observe.logs import Logger
from scheduler.webhook.certificates import Pair, expires_s, renewal_reason, renewed
from scheduler.webhook.storing import Store

#: How often Secret and configurations are looked at; two of three requests a minute and replica change nothing.
ROUND_S: Final = 60.0
#: The same after a round that failed.
RETRY_S: Final = 5.0
#: How long the API server may take to hear of an authority before it meets a certificate of it.
LEARN_S: Final = 60.0
#: How often files are looked at: the kubelet renews a mounted Secret about once a minute.
FILES_ROUND_S: Final = 10.0

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]


class Serving(Protocol):
    """Who serves a pair."""

    def serve(self, pair: Pair) -> None:
        """New connections get this pair. Raises ssl.SSLError or ValueError if it is none."""
        ...


class SecretKeeper:
    """
    Keeps the pair of a Secret.

    Args:
        store: the Secret and the configurations.
        hosts: what the certificate has to be for.
        serving: who serves it.
        clock_s: seconds since 1970.
    """

    def __init__(
        self, store: Store, hosts: Sequence[str], serving: Serving, *, log: Logger, clock_s: Clock
    ) -> None:
        self._store = store
        self._hosts = tuple(hosts)
        self._serving = serving
        self._log = log
        self._clock_s = clock_s
        self._served: Pair | None = None
        #: The pair whose authority was published last, and when it was first.
        self._published: tuple[Pair, float] | None = None
        self._n_webhooks = -1

    async def round(self) -> None:
        """
        The Secret holds a good pair, the API server knows its authority, and it is served unless that is too new.

        Raises:
            ApiError: if the cluster could not be asked or would not have it.
        """
        stored = await self._store.read()
        now_s = self._clock_s()
        reason = renewal_reason(stored.trusted, self._hosts, now_s)
        trusted = stored.trusted
        if reason is not None:
            trusted = renewed(self._hosts, now_s, stored.trusted.authorities)
            try:
                await self._store.write(stored.version, trusted)
            except Conflict:
                trusted = (await self._store.read()).trusted  # another replica was faster
            else:
                self._log.info(0, "Renewed the serving certificate", reason=reason)
        await self._publish(trusted.authorities)
        self._adopt(trusted.pair)

    async def run(self, sleep: Sleep = asyncio.sleep) -> None:
        """Round after round, for ever."""
        while True:
            await sleep(ROUND_S if await self._tried() else RETRY_S)

    async def _tried(self) -> bool:
        try:
            await self.round()
        except (ApiError, ssl.SSLError, ValueError, msgspec.MsgspecError) as error:
            self._log.error("Could not keep the serving certificate", err=error)
            return False
        return True

    async def _publish(self, authorities: bytes) -> None:
        n_webhooks = await self._store.publish(authorities)
        if n_webhooks == 0 and self._n_webhooks != 0:
            self._log.error("No webhook configuration of this name", err="the API server will not call")
        self._n_webhooks = n_webhooks

    def _adopt(self, pair: Pair) -> None:
        now_s = self._clock_s()
        if self._published is None or self._published[0] != pair:
            self._published = (pair, now_s)
        is_due = self._served is None or now_s - self._published[1] >= LEARN_S
        if pair != self._served and is_due:
            self._serving.serve(pair)
            self._served = pair


class FileKeeper:
    """Keeps the pair of two files, which somebody else renews; the API server is told by them whom to trust."""

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
            expires_s(found.cert)
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


def _content(path: Path, flag: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(flag, str(path), error.strerror or str(error), "a readable PEM file") from error

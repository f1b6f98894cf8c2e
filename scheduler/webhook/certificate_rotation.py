"""
The served certificate, kept good for as long as the process runs, in a Secret that replicas share.

A new pair is served only once the API server has had time to learn its authority:

    renew in the Secret (one replica wins) -> name old and new authority in the configurations -> wait -> serve
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from scheduler.errors import ApiError, Conflict
from scheduler.observe.logs import Logger
from scheduler.serving.certificates import Trusted, is_trusted, renewal_reason, renewed
from scheduler.serving.tls import Pair, Serving, Sleep
from scheduler.webhook.storing import Store

#: How often Secret and configurations are looked at; two of three requests a minute and replica change nothing.
ROUND_S: Final = 60.0
#: The same after a round that failed.
RETRY_S: Final = 5.0
#: How long the API server may take to hear of an authority before it meets a certificate of it.
LEARN_S: Final = 60.0

Clock = Callable[[], float]


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
        #: By which the served pair is trusted: a Secret that somebody emptied says it no more.
        self._authorities = b""
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
            trusted = renewed(self._hosts, now_s, stored.trusted.authorities + self._authorities)
            try:
                await self._store.write(stored.version, trusted)
            except Conflict:
                trusted = (await self._store.read()).trusted  # another replica was faster
            else:
                self._log.info(0, "Renewed the serving certificate", reason=reason)
        await self._publish(trusted.authorities)
        self._adopt(trusted)

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

    def _adopt(self, trusted: Trusted) -> None:
        pair, now_s = trusted.pair, self._clock_s()
        if self._published is None or self._published[0] != pair:
            self._published = (pair, now_s)
        waited = now_s - self._published[1] >= LEARN_S
        # Somebody has put another pair into the Secret: what is served is not trusted any more, so nothing is to lose.
        is_due = waited or self._served is None or not is_trusted(self._served.cert, trusted.authorities)
        if pair != self._served and is_due:
            self._serving.serve(pair)
            self._served = pair
        if pair == self._served:
            self._authorities = trusted.authorities

"""
Renews the serving certificate, which replicas share in a Secret.

It serves a new pair only after the API server had time to learn its certificate authority:

    write the pair to the Secret (one replica wins) -> publish old and new authority in caBundle -> wait -> serve
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from scheduler.errors import ApiError, Conflict
from scheduler.observe.logs import Logger
from scheduler.serving.certificates import TrustedKeyPair, is_trusted, renew, renewal_reason
from scheduler.serving.tls import KeyPair, KeyPairUser, Sleep
from scheduler.webhook.certificate_store import SecretStore

#: Time between checks of the Secret and the webhook configurations: three requests a minute and replica.
CHECK_PERIOD_S: Final = 60.0
#: Time until the next check after a failed one.
RETRY_S: Final = 5.0
#: How long the API server has to learn an authority before its certificate is served.
LEARN_S: Final = 60.0

Clock = Callable[[], float]


class CertificateRotation:
    """
    Keeps a valid certificate in the Secret and serves it.

    `hosts`: the names that the certificate has to have. `clock_s` returns seconds since 1970; `now_s` is a monotonic
    clock.
    """

    def __init__(
        self,
        store: SecretStore,
        hosts: Sequence[str],
        serving: KeyPairUser,
        *,
        log: Logger,
        clock_s: Clock,
        now_s: Clock = time.monotonic,
    ) -> None:
        self._store = store
        self._hosts = tuple(hosts)
        self._serving = serving
        self._log = log
        self._clock_s, self._now_s = clock_s, now_s
        self._served: KeyPair | None = None
        #: The authorities that trust the served pair, in case a user empties the Secret.
        self._authorities = b""
        #: The pair whose authority was published last, and when.
        self._published: tuple[KeyPair, float] | None = None
        #: Webhooks in the configurations at the last check; -1 before the first.
        self._n_webhooks = -1

    async def check(self) -> None:
        """
        Renew the pair in the Secret if needed, publish its authority, and serve it once the API server knows it.

        Raises:
            ApiError: if the API server refuses or does not answer.
        """
        stored = await self._store.read()
        now_s = self._clock_s()
        reason = renewal_reason(stored.trusted, self._hosts, now_s)
        trusted = stored.trusted
        if reason is not None:
            trusted = renew(self._hosts, now_s, stored.trusted.authorities + self._authorities)
            try:
                await self._store.write(stored.version, trusted)
            except Conflict:
                trusted = (await self._store.read()).trusted  # another replica was faster
            else:
                self._log.info(0, "Renewed the serving certificate", reason=reason)
        await self._publish(trusted.authorities)
        self._serve_if_known(trusted)

    async def run(self, sleep: Sleep = asyncio.sleep) -> None:
        """Check again and again, until cancelled."""
        while True:
            await sleep(CHECK_PERIOD_S if await self._try_check() else RETRY_S)

    async def _try_check(self) -> bool:
        try:
            await self.check()
        except (ApiError, ssl.SSLError, ValueError, msgspec.MsgspecError) as error:
            self._log.error("Failed to check the serving certificate; retrying", err=error)
            return False
        return True

    async def _publish(self, authorities: bytes) -> None:
        n_webhooks = await self._store.publish(authorities)
        if n_webhooks == 0 and self._n_webhooks != 0:
            self._log.error(
                "No webhook configuration of this name", err="the API server will not call the webhook"
            )
        self._n_webhooks = n_webhooks

    def _serve_if_known(self, trusted: TrustedKeyPair) -> None:
        pair, now_s = trusted.pair, self._now_s()
        if self._published is None or self._published[0] != pair:
            self._published = (pair, now_s)
        waited = now_s - self._published[1] >= LEARN_S
        # If a user has replaced the Secret, the served pair is not trusted, and waiting gains nothing.
        is_due = waited or self._served is None or not is_trusted(self._served.cert, trusted.authorities)
        if pair != self._served and is_due:
            self._serving.serve(pair)
            self._served = pair
        if pair == self._served:
            self._authorities = trusted.authorities

"""
Renews the serving certificate, which replicas share in a Secret.

It serves a new pair only after the API server had time to learn its certificate authority:

    write the pair to the Secret (one replica wins) -> publish old and new authority in caBundle -> wait -> serve

While the Secret cannot be written, it serves the pair there until that expires.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.port.certificates import (
    TrustedKeyPair,
    expires_s,
    is_trusted,
    refusal_reason,
    renew,
    renewal_reason,
)
from scheduler.daemon.port.tls import KeyPair, KeyPairUser, Sleep
from scheduler.errors import ApiError, Conflict
from scheduler.tools.webhook.certificate_store import SecretStore, StoredCertificate

#: Time between checks of the Secret and the webhook configurations: three requests a minute and replica.
CHECK_PERIOD_S: Final = 60.0
#: Time until the next check after a failed one; it doubles with each that follows, up to `CHECK_PERIOD_S`.
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
        #: The failure that was logged last, empty after a check without one.
        self._reported = ""

    async def check(self) -> bool:
        """
        Renew the pair in the Secret if needed, publish its authority, and serve it once the API server knows it.

        Return False if the pair was to be renewed and could not be: it is served as long as it is valid.

        Raises:
            ApiError: if the API server refuses or does not answer.
        """
        stored = await self._store.read()
        is_valid = refusal_reason(stored.trusted, self._hosts, self._clock_s()) is None
        trusted, refusal = stored.trusted, None
        try:
            trusted = await self._renew(stored)
        except ApiError as error:
            if not is_valid:
                raise
            refusal = error
        await self._publish(trusted.authorities)
        if self._served is None and is_valid:
            # The API server knows it; a renewed one has to wait.
            self._serve(stored.trusted.pair)
        self._serve_if_known(trusted)
        if refusal is not None:
            until = datetime.fromtimestamp(expires_s(trusted.pair.cert), UTC).isoformat()
            message = "Failed to renew the serving certificate; serving the old one"
            self._report(message, refusal, until=until)
        return refusal is None

    async def run(self, sleep: Sleep = asyncio.sleep) -> None:
        """Check again and again, until cancelled."""
        retry_s = RETRY_S
        while True:
            if await self._try_check():
                retry_s, self._reported = RETRY_S, ""
                await sleep(CHECK_PERIOD_S)
            else:
                await sleep(retry_s)
                retry_s = min(2 * retry_s, CHECK_PERIOD_S)

    async def _try_check(self) -> bool:
        try:
            return await self.check()
        except (ApiError, ssl.SSLError, ValueError, msgspec.MsgspecError) as error:
            self._report("Failed to check the serving certificate; retrying", error)
            return False

    def _report(self, message: str, error: Exception, **pairs: object) -> None:
        """Log a failure once, until a check succeeds or fails otherwise."""
        if self._reported != (line := f"{message}: {error}"):
            self._reported = line
            self._log.error(message, err=error, **pairs)

    async def _renew(self, stored: StoredCertificate) -> TrustedKeyPair:
        """Return the pair in the Secret, renewed if needed. Raises ApiError if the Secret cannot be written."""
        now_s = self._clock_s()
        reason = renewal_reason(stored.trusted, self._hosts, now_s)
        if reason is None:
            return stored.trusted
        trusted = renew(self._hosts, now_s, stored.trusted.authorities + self._authorities)
        try:
            await self._store.write(stored.version, trusted)
        except Conflict:
            # Another replica was faster, or a user who wrote what cannot be served.
            trusted = (await self._store.read()).trusted
            if refusal_reason(trusted, self._hosts, now_s) is not None:
                raise
        else:
            self._log.info(0, "Renewed the serving certificate", reason=reason)
        return trusted

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
            self._serve(pair)
        if pair == self._served:
            self._authorities = trusted.authorities

    def _serve(self, pair: KeyPair) -> None:
        self._serving.serve(pair)
        self._served = pair

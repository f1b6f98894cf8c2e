"""
The HTTPS endpoint: /mutate and /validate, asked by the API server for every pod it creates.

Whatever arrives is answered within a bounded time and size: an AdmissionReview with a verdict, or 400, 408 or 413 and
one line. The API server then does what its failurePolicy says.

Every pod of a cluster may be able to connect. Whoever sends slowly or nothing gives way to whoever comes after: the API
server sends a whole request at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from scheduler.observe.logs import Logger
from scheduler.serving import listener
from scheduler.serving.certificates import expires_s
from scheduler.serving.tls import KeyPair, load_pair, server_context
from scheduler.webhook.metrics import WebhookMetrics
from scheduler.webhook.reviews import (
    Allowed,
    MalformedReviewError,
    Refused,
    Review,
    Verdict,
    decode_review,
    encode_answer,
)

#: An update brings two pods. The store takes one of 1.5 MiB, which as JSON is up to six times as long: the API server
#: escapes `<` and its like. A pod that is not read is not refused where failures are ignored.
MAX_BODY_BYTES: Final = 20 << 20
#: Of all bodies that are being received; beyond, the one that has taken longest is given up.
MAX_RECEIVED_BYTES: Final = 128 << 20
#: How long a body may take to arrive: longer than the API server ever waits for an answer.
BODY_TIMEOUT_S: Final = 30.0
#: Bodies that are being received at a time; one more, and the one that has taken longest is given up.
MAX_UNDER_WAY: Final = 64
#: An API server keeps 25 idle ones, and opens more where it asks about more pods at a time.
MAX_CONNECTIONS: Final = 512

Judge = Callable[[Review], Verdict]


class _TooLargeError(Exception):
    """A body is longer than `MAX_BODY_BYTES`."""


class Endpoint:
    """Answers on `/NAME` for each judge. `application` is what serves it."""

    def __init__(
        self,
        judges: Mapping[str, Judge],
        *,
        metrics: WebhookMetrics,
        log: Logger,
        body_timeout_s: float = BODY_TIMEOUT_S,
    ) -> None:
        self._metrics = metrics
        self._log = log
        self._body_timeout_s = body_timeout_s
        #: Bytes of the bodies that are being received, the one that has taken longest first.
        self._arriving: dict[asyncio.Timeout, int] = {}
        self.application = web.Application()
        for name, judge in judges.items():
            self.application.router.add_post(f"/{name}", self._handler(name, judge))

    def _handler(self, name: str, judge: Judge) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            try:
                body = await self._received(request)
            except TimeoutError:
                return self._rejected(name, "too_slow", 408, "the body did not arrive in time")
            except _TooLargeError:
                return self._rejected(name, "too_large", 413, f"more than {MAX_BODY_BYTES} bytes")
            return self._answer(name, judge, body)

        return handle

    async def _received(self, request: web.Request) -> bytes:
        """The body. Raises TimeoutError if it is too slow, or slow where others wait; _TooLargeError."""
        parts: list[bytes] = []
        size_bytes = 0
        async with asyncio.timeout(self._body_timeout_s) as deadline:
            while len(self._arriving) >= MAX_UNDER_WAY:
                self._give_up_slowest()
            self._arriving[deadline] = 0
            try:
                while data := await request.content.readany():
                    parts.append(data)
                    size_bytes += len(data)
                    if size_bytes > MAX_BODY_BYTES:
                        raise _TooLargeError
                    if deadline in self._arriving:  # else it is given up, and told so at the next wait
                        self._arriving[deadline] = size_bytes
                    while sum(self._arriving.values()) > MAX_RECEIVED_BYTES:
                        self._give_up_slowest()
            finally:
                self._arriving.pop(deadline, None)
        return b"".join(parts)

    def _give_up_slowest(self) -> None:
        slowest = next(iter(self._arriving))
        del self._arriving[slowest]
        if not slowest.expired():
            slowest.reschedule(asyncio.get_running_loop().time())

    def _answer(self, name: str, judge: Judge, body: bytes) -> web.Response:
        started_s = time.perf_counter()
        try:
            review = decode_review(body)
        except MalformedReviewError as error:
            return self._rejected(name, "malformed", 400, str(error)[:512])
        verdict = judge(review)
        answer = encode_answer(review.uid, verdict)
        label, n_operations = _label(verdict)
        self._metrics.on_answer(
            name, label, n_operations=n_operations, seconds=time.perf_counter() - started_s
        )
        pod = review.pod
        if pod is not None and self._log.shows(4):
            where = f"{pod.namespace}/{pod.name}"
            self._log.info(4, "Answered", webhook=name, pod=where, uid=review.uid, verdict=label)
        return web.Response(body=answer, content_type="application/json")

    def _rejected(self, name: str, verdict: str, status: int, why: str) -> web.Response:
        self._metrics.on_rejected(name, verdict)
        self._log.info(1, "Not answered", webhook=name, status=status, why=why)
        return web.Response(status=status, text=f"{why}\n", headers={"X-Content-Type-Options": "nosniff"})


class Listener:
    """The TLS socket; connections are refused in the handshake while no pair is served."""

    def __init__(self, application: web.Application, metrics: WebhookMetrics) -> None:
        self._metrics = metrics
        self._tls = server_context()
        self._listener = listener.Listener(
            application, tls=self._tls, max_connections=MAX_CONNECTIONS, accept_interval_s=0.0
        )
        self.is_serving = False

    def serve(self, pair: KeyPair) -> None:
        """New connections get this pair. Raises ssl.SSLError or ValueError if it is none."""
        expires = expires_s(pair.cert)
        load_pair(self._tls, pair)
        self._metrics.certificate_expires_s = int(expires)
        self.is_serving = True

    async def start(self, address: str, port: int) -> int:
        """It listens; the port, which is a free one where 0 was asked for. Raises OSError."""
        return await self._listener.start(address, port)

    async def stop(self) -> None:
        """Nothing is served; answers under way had their time."""
        await self._listener.stop()


def _label(verdict: Verdict) -> tuple[str, int]:
    match verdict:
        case Refused():
            return "refused", 0
        case Allowed(patch):
            return ("patched" if patch else "allowed"), len(patch)

"""
The HTTPS server of /mutate, /validate and /validate-reach.

Time and size of a request are bounded. The answer is an AdmissionReview, or 400, 408 or 413 with one line; then the API
server applies its failurePolicy.

Every pod of the cluster may be able to connect. If there are too many requests, a new request replaces the slowest one:
the API server itself sends a request without pauses.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.port import listener
from scheduler.daemon.port.certificates import expires_s
from scheduler.daemon.port.tls import KeyPair, load_pair, server_context
from scheduler.tools.webhook.metrics import WebhookMetrics
from scheduler.tools.webhook.reviews import (
    Allowed,
    Denied,
    MalformedReviewError,
    Reported,
    Response,
    Reviewer,
    decode_review,
    encode_response,
)

#: An update has two pods. etcd takes a pod of 1.5 MiB, which is up to six times as long as JSON, since the API server
#: escapes `<` and the like. With failurePolicy Ignore, a pod that is too large would not be validated.
MAX_BODY_BYTES: Final = 20 << 20
#: Total size of bodies that are being received. Beyond it, the body that has taken longest is dropped.
MAX_RECEIVED_BYTES: Final = 128 << 20
#: How long a body may take to arrive. The API server never waits longer for a response.
BODY_TIMEOUT_S: Final = 30.0
#: Bodies that are received at a time. Beyond it, the body that has taken longest is dropped.
MAX_BODIES: Final = 64
#: An API server keeps 25 idle connections, and opens more for more requests at a time.
MAX_CONNECTIONS: Final = 512


class _TooLargeError(Exception):
    """The body is longer than `MAX_BODY_BYTES`."""


class Endpoint:
    """Serves `/NAME` for each reviewer. `application` is the aiohttp application."""

    def __init__(
        self,
        reviewers: Mapping[str, Reviewer],
        *,
        metrics: WebhookMetrics,
        log: Logger,
        body_timeout_s: float = BODY_TIMEOUT_S,
    ) -> None:
        self._metrics = metrics
        self._log = log
        self._body_timeout_s = body_timeout_s
        #: Sizes of the bodies that are being received, the oldest first.
        self._receiving: dict[asyncio.Timeout, int] = {}
        self.application = web.Application()
        for name, reviewer in reviewers.items():
            self.application.router.add_post(f"/{name}", self._handler(name, reviewer))

    def _handler(self, name: str, reviewer: Reviewer) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            try:
                body = await self._read_body(request)
            except TimeoutError:
                return self._rejected(name, "too_slow", 408, "the body did not arrive in time")
            except _TooLargeError:
                return self._rejected(name, "too_large", 413, f"more than {MAX_BODY_BYTES} bytes")
            return self._respond(name, reviewer, body)

        return handle

    async def _read_body(self, request: web.Request) -> bytes:
        """Return the body. Raises TimeoutError if it is too slow or another body replaces it; _TooLargeError."""
        parts: list[bytes] = []
        size_bytes = 0
        async with asyncio.timeout(self._body_timeout_s) as deadline:
            while len(self._receiving) >= MAX_BODIES:
                self._drop_slowest()
            self._receiving[deadline] = 0
            try:
                while data := await request.content.readany():
                    parts.append(data)
                    size_bytes += len(data)
                    if size_bytes > MAX_BODY_BYTES:
                        raise _TooLargeError
                    # A dropped body is not in here; its timeout fires at the next await.
                    if deadline in self._receiving:
                        self._receiving[deadline] = size_bytes
                    while sum(self._receiving.values()) > MAX_RECEIVED_BYTES:
                        self._drop_slowest()
            finally:
                self._receiving.pop(deadline, None)
        return b"".join(parts)

    def _drop_slowest(self) -> None:
        slowest = next(iter(self._receiving))
        del self._receiving[slowest]
        if not slowest.expired():
            slowest.reschedule(asyncio.get_running_loop().time())

    def _respond(self, name: str, reviewer: Reviewer, body: bytes) -> web.Response:
        started_s = time.perf_counter()
        try:
            review = decode_review(body)
        except MalformedReviewError as error:
            return self._rejected(name, "malformed", 400, str(error)[:512])
        verdict = reviewer(review)
        answer = encode_response(review.uid, verdict)
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
        self._metrics.answers.add(name, verdict)
        self._log.info(1, "Not answered", webhook=name, status=status, why=why)
        return web.Response(status=status, text=f"{why}\n", headers={"X-Content-Type-Options": "nosniff"})


class Listener(listener.Listener):
    """The TLS socket. Handshakes fail until there is a certificate."""

    def __init__(self, application: web.Application, metrics: WebhookMetrics) -> None:
        self._metrics = metrics
        self._context = server_context()
        super().__init__(
            application, tls=self._context, max_connections=MAX_CONNECTIONS, accept_interval_s=0.0
        )

    @property
    def is_serving(self) -> bool:
        """True once requests can be answered: a certificate in a file is there before the socket listens."""
        return self._metrics.certificate_expires_s > 0 and self._serving is not None

    def serve(self, pair: KeyPair) -> None:
        """Use this pair for new connections. Raises ssl.SSLError or ValueError if it is invalid."""
        expires = expires_s(pair.cert)
        load_pair(self._context, pair)
        self._metrics.certificate_expires_s = int(expires)


def _label(verdict: Response) -> tuple[str, int]:
    match verdict:
        case Denied():
            return "refused", 0
        case Reported():
            return "reported", 0
        case Allowed(patch):
            return ("patched" if patch else "allowed"), len(patch)

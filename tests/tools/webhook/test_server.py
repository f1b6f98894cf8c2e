"""The HTTPS server: responses, requests that are too large, too slow or malformed, and renewed certificates."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from unittest import mock

import aiohttp
import pytest
from aiohttp import web

from scheduler.daemon.metrics.logs import configure
from scheduler.daemon.port import listener as ports
from scheduler.daemon.port.certificates import TrustedKeyPair, issue
from scheduler.tools.webhook import server as endpoint
from scheduler.tools.webhook.metrics import WebhookMetrics
from scheduler.tools.webhook.mutating import mutate
from scheduler.tools.webhook.server import MAX_BODIES, MAX_BODY_BYTES, Endpoint, Listener
from scheduler.tools.webhook.validating import AntiAffinity, validate
from tests.support import build
from tests.support.daemon import sum_of_samples
from tests.tools.webhook.client import answered, review
from tests.tools.webhook.test_mutating import ANTI_HARD, pod_with, term

LOOPBACK = "127.0.0.1"


@dataclass
class Server:
    listener: Listener
    metrics: WebhookMetrics
    port: int
    log: io.StringIO

    async def post(
        self, path: str, body: bytes, *, trusted: TrustedKeyPair, method: str = "POST"
    ) -> tuple[int, bytes]:
        """Send a request from a client that trusts these authorities. Return status and body."""
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                method, f"https://{LOOPBACK}:{self.port}{path}", data=io.BytesIO(body), ssl=_trusting(trusted)
            ) as answer,
        ):
            return answer.status, await answer.read()

    def counted(self, verdict: str) -> float:
        text = self.metrics.render().decode()
        return sum_of_samples(text, "affinity_scheduler_webhook_requests_total", verdict=verdict)


def _trusting(trusted: TrustedKeyPair) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=trusted.authorities.decode())


@asynccontextmanager
async def running(trusted: TrustedKeyPair | None, *, body_timeout_s: float = 30.0) -> AsyncIterator[Server]:
    log, metrics = io.StringIO(), WebhookMetrics()
    judges = {
        "mutate": partial(mutate, merges_fields=False),
        "validate": partial(validate, refused=AntiAffinity.ALL_NAMESPACES),
    }
    logger = configure(verbosity=4, form="text", stream=log)
    asked = Endpoint(judges, metrics=metrics, log=logger, body_timeout_s=body_timeout_s)
    # Bodies that never arrive are not waited for at the end.
    with mock.patch.object(ports, "DRAIN_S", 0.05):
        listener = Listener(asked.application, metrics)
    if trusted is not None:
        listener.serve(trusted.pair)
    port = await listener.start(LOOPBACK, 0)
    try:
        yield Server(listener, metrics, port, log)
    finally:
        await listener.stop()


@pytest.fixture(scope="module")
def trusted() -> TrustedKeyPair:
    return issue([LOOPBACK], time.time())


async def test_a_pod_is_merged_and_another_refused(trusted):
    async with running(trusted) as server:
        pod = pod_with({ANTI_HARD: [term("tier")]})
        status, body = await server.post("/mutate", review(pod), trusted=trusted)
        assert status == 200
        assert answered(pod, body).patch
        everywhere = {**build.term(build.ZONE, {}), "namespaceSelector": {}}
        harmful = build.pod(affinity=build.affinity(anti_required=[everywhere]))
        status, body = await server.post("/validate", review(harmful), trusted=trusted)
        assert status == 200
        assert answered(harmful, body).status
        assert (server.counted("patched"), server.counted("refused")) == (1, 1)
        assert 'pod="default/web-0"' in server.log.getvalue()
        assert "BEGIN" not in server.log.getvalue()


@pytest.mark.parametrize(
    ("path", "method", "body", "status", "verdict"),
    [
        pytest.param("/mutate", "POST", b"{", 400, "malformed", id="no review"),
        pytest.param("/mutate", "POST", b"[" * 100_000, 400, "malformed", id="too deep"),
        pytest.param("/mutate", "POST", b" " * (MAX_BODY_BYTES + 1), 413, "too_large", id="too large"),
        pytest.param("/mutate", "GET", b"", 405, None, id="GET"),
        pytest.param("/", "POST", b"{}", 404, None, id="another path"),
    ],
)
async def test_a_bad_request_gets_a_status_and_one_line(trusted, path, method, body, status, verdict):
    async with running(trusted) as server:
        found, text = await server.post(path, body, method=method, trusted=trusted)
        assert found == status
        assert len(text.decode().splitlines()) == 1
        if verdict:
            assert server.counted(verdict) == 1
        assert "Traceback" not in server.log.getvalue()


@asynccontextmanager
async def connections(
    server: Server, trusted: TrustedKeyPair, n: int, sent: bytes = b"", *, of: int = 100
) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Open connections for the block, each of which sends the beginning of a body of `of` bytes, and no more."""
    opened = [await asyncio.open_connection(LOOPBACK, server.port, ssl=_trusting(trusted)) for _ in range(n)]
    for _, writer in opened if sent else ():
        writer.write(b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % of + sent)
        await writer.drain()
    yield [reader for reader, _ in opened]
    for _, writer in opened:
        writer.transport.abort()


async def test_a_body_that_does_not_arrive_times_out(trusted):
    async with (
        running(trusted, body_timeout_s=0.05) as server,
        connections(server, trusted, 1, b"{") as (slow,),
    ):
        assert b" 408 " in await slow.readline()
        assert server.counted("too_slow") == 1


async def test_slow_bodies_are_dropped_for_new_requests(trusted):
    """With as many endless bodies as are received at a time."""
    async with running(trusted) as server, connections(server, trusted, MAX_BODIES, b"{"):
        async with asyncio.timeout(5.0):
            body = review(pod_with({ANTI_HARD: [term("tier")]}))
            answers = [await server.post("/mutate", body, trusted=trusted) for _ in range(3)]
        assert [status for status, _ in answers] == [200] * 3
        assert server.counted("too_slow") <= 3


async def test_the_total_size_of_bodies_is_bounded(trusted, monkeypatch):
    """The body that has taken longest is dropped."""
    monkeypatch.setattr(endpoint, "MAX_RECEIVED_BYTES", 1 << 20)
    async with (
        running(trusted) as server,
        connections(server, trusted, 4, b" " * 400_000, of=2_000_000) as slow,
    ):
        async with asyncio.timeout(5.0):
            assert b" 408 " in await slow[0].readline()
            status, _ = await server.post("/mutate", review(build.pod()), trusted=trusted)
        assert status == 200
        assert 1 <= server.counted("too_slow") <= 2


async def test_the_largest_possible_update_is_validated(trusted):
    """Two pods of 1.5 MiB with every character escaped."""
    pod = build.pod("large", containers=[build.container()])
    pod["spec"]["containers"][0]["args"] = ["<" * 1_500_000]
    harmful = build.affinity(anti_required=[{**build.term(build.ZONE, {}), "namespaceSelector": {}}])
    worse = {**pod, "spec": {**pod["spec"], "affinity": harmful}}
    body = review(worse, operation="UPDATE", old=pod).replace(b"<", rb"\u003c")
    async with running(trusted) as server:
        status, text = await server.post("/validate", body, trusted=trusted)
    assert (status, len(body) > 18_000_000) == (200, True)
    assert json.loads(text)["response"]["allowed"] is False


async def test_idle_connections_are_dropped_for_new_ones(trusted, monkeypatch):
    monkeypatch.setattr(endpoint, "MAX_CONNECTIONS", 8)
    async with running(trusted) as server, connections(server, trusted, 8):
        async with asyncio.timeout(5.0):
            status, _ = await server.post("/mutate", review(build.pod()), trusted=trusted)
        assert status == 200


async def test_many_requests_at_once_are_all_answered(trusted):
    pod = pod_with({ANTI_HARD: [term("tier")]})
    async with running(trusted) as server:
        body = review(pod)
        answers = await asyncio.gather(*(server.post("/mutate", body, trusted=trusted) for _ in range(100)))
        assert {status for status, _ in answers} == {200}


async def test_it_serves_once_it_has_a_certificate_and_listens(trusted):
    """A certificate in a file is there first: the process is not ready yet."""
    listener = Listener(web.Application(), WebhookMetrics())
    listener.serve(trusted.pair)
    before = listener.is_serving
    await listener.start(LOOPBACK, 0)
    assert (before, listener.is_serving) == (False, True)
    await listener.stop()


async def test_handshakes_fail_before_there_is_a_certificate(trusted):
    async with running(None) as server:
        assert not server.listener.is_serving
        with pytest.raises(aiohttp.ClientConnectorError):
            await server.post("/mutate", b"{}", trusted=trusted)


async def test_a_renewed_certificate_is_served_to_new_connections(trusted):
    """Without a restart. Clients with only the old authority fail."""
    async with running(trusted) as server:
        assert (await server.post("/mutate", b"{", trusted=trusted))[0] == 400
        other = issue([LOOPBACK], time.time())
        server.listener.serve(other.pair)
        assert (await server.post("/mutate", b"{", trusted=other))[0] == 400
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await server.post("/mutate", b"{", trusted=trusted)
        assert server.metrics.certificate_expires_s > time.time()

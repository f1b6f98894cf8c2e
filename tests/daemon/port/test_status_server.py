"""The HTTP endpoints over real connections."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import NamedTuple

import aiohttp
import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer
from prometheus_client.parser import text_string_to_metric_families
from yarl import URL

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.metrics.metrics import Metrics
from scheduler.daemon.port.delegated_auth import DelegatedAuth
from scheduler.daemon.port.status_server import ServingOptions, StatusServer, new_application
from scheduler.errors import SettingsError
from tests.daemon.port.reviewer import reviewing
from tests.support.ports import free_port
from tests.support.scripted_server import anonymous

LOG = Logger(logging.getLogger("test"))


def _server(address: str, port: int, auth: DelegatedAuth | None = None) -> StatusServer:
    """Return a server of plain HTTP, or with `auth` of HTTPS."""
    listening = ServingOptions(address, port, insecure_http=auth is None, asks_for_https=auth is not None)
    render, configz = (lambda: b""), (lambda: "{}")
    return StatusServer(listening, auth=auth, log=LOG, render=render, configz=configz, ready={})


@dataclass
class Served:
    synced: bool = True
    stopping: bool = False
    stuck: bool = False
    metrics: Metrics = field(default_factory=Metrics)

    async def start(self) -> None:
        ready = {"sched-handler-sync": lambda: self.synced, "shutdown": lambda: not self.stopping}
        self.server = TestServer(
            new_application(
                render=self.metrics.render,
                configz=lambda: '{"componentconfig": {}}',
                ready=ready,
                live={"scheduling": lambda: not self.stuck},
            )
        )
        await self.server.start_server()
        self.client = aiohttp.ClientSession(self.server.make_url("/"))

    async def stop(self) -> None:
        await self.client.close()
        await self.server.close()

    async def get(self, path: str, *, method: str = "GET") -> tuple[int, str]:
        async with self.client.request(method, path) as response:
            return response.status, await response.text()


@pytest_asyncio.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    await served.start()
    yield served
    await served.stop()


class Secured(NamedTuple):
    """A port with HTTPS, where the token `prometheus` may get /metrics, and a client."""

    port: int
    client: aiohttp.ClientSession

    def url(self, path: str) -> URL:
        return URL(f"https://127.0.0.1:{self.port}{path}", encoded=True)


@pytest_asyncio.fixture
async def secured() -> AsyncIterator[Secured]:
    async with reviewing() as api, KubeClient(anonymous(api.url)) as client:
        api.knows("prometheus", "prometheus", "/metrics")
        api.knows("stranger", "system:serviceaccount:default:stranger")
        port = free_port()
        server = _server("127.0.0.1", port, DelegatedAuth(client, log=LOG))
        await server.start()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
            yield Secured(port, session)
        await server.stop()


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        pytest.param("/livez", "GET", 200, id="a probe"),
        pytest.param("/readyz?verbose", "GET", 200, id="a verbose probe"),
        pytest.param("/healthz", "HEAD", 200, id="health by HEAD"),
        pytest.param("//metrics", "GET", 404, id="two slashes"),
        pytest.param("/metrics/", "GET", 404, id="a slash at the end"),
        pytest.param("/metrics/x", "GET", 404, id="below"),
        pytest.param("/healthz/..%2fmetrics", "GET", 404, id="dot segments from an allowed path"),
        pytest.param("/healthz%2f..%2fmetrics", "GET", 404, id="encoded dot segments"),
        pytest.param("/%6detrics", "GET", 403, id="percent-encoded letters"),
        pytest.param("/metrics%00/healthz", "GET", 404, id="a NUL byte"),
        pytest.param("/metrics;/healthz", "GET", 404, id="parameters of a path"),
        pytest.param("/metrics?path=/healthz", "GET", 403, id="parameters"),
        pytest.param("/METRICS", "GET", 404, id="upper case"),
        pytest.param("/debug/pprof", "GET", 404, id="a path that is not served"),
        pytest.param("/metrics", "POST", 405, id="a method that is not served"),
        pytest.param("/healthz", "POST", 405, id="a method that is not served on health"),
        pytest.param("/metrics", "OPTIONS", 405, id="options"),
        pytest.param("/metrics", "TRACE", 405, id="trace"),
    ],
)
async def test_a_request_without_a_token_is_answered_by_its_path(
    secured: Secured, path: str, method: str, status: int
) -> None:
    """404 and 405 reveal nothing that is not in the source. No header names the server."""
    async with secured.client.request(method, secured.url(path)) as answer:
        assert answer.status == status
        assert "Server" not in answer.headers


async def test_rejections_equal_kube_schedulers(secured: Secured) -> None:
    async def rejection(token: str) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"}
        async with secured.client.get(secured.url("/metrics"), headers=headers) as answer:
            return answer.status, await answer.text()

    head = '{\n  "kind": "Status",\n  "apiVersion": "v1",\n  "metadata": {},\n  "status": "Failure",\n'
    assert await rejection("nobody") == (
        401,
        head + '  "message": "Unauthorized",\n  "reason": "Unauthorized",\n  "code": 401\n}',
    )
    user = "system:serviceaccount:default:stranger"
    message = f'  "message": "forbidden: User \\"{user}\\" cannot get path \\"/metrics\\"",\n'
    rest = '  "reason": "Forbidden",\n  "details": {},\n  "code": 403\n}'
    assert await rejection("stranger") == (403, head + message + rest)


async def test_each_request_of_a_connection_is_authorized(secured: Secured) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", secured.port, ssl=context)
    for who in ("prometheus", "", "stranger", "prometheus", "nobody"):
        token = f"Authorization: Bearer {who}\r\n" if who else ""
        writer.write(f"HEAD /livez/ping HTTP/1.1\r\nHost: x\r\n{token}\r\n".encode())
        writer.write(f"GET /metrics HTTP/1.1\r\nHost: x\r\n{token}\r\n".encode())
    writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(20):
        answers = await reader.read()
    writer.transport.abort()
    statuses = [int(each) for each in re.findall(rb"HTTP/1\.1 (\d+) ", answers)]
    assert statuses[1::2] == [200, 403, 403, 200, 401]
    assert statuses[::2] == [403, 403, 403, 403, 401, 200]


_SYNCED_FAILS = "[-]sched-handler-sync failed: reason withheld\n"


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/healthz", 200, "ok"),
        ("/livez", 200, "ok"),
        ("/readyz", 200, "ok"),
        ("/healthz/ping", 200, "ok"),
        ("/livez?verbose", 200, "[+]ping ok\n[+]scheduling ok\nlivez check passed\n"),
        ("/readyz?verbose", 200, "[+]sched-handler-sync ok\n[+]shutdown ok\nreadyz check passed\n"),
        ("/readyz?verbose=1&exclude=shutdown", 200, None),
        ("/readyz?exclude=shutdown", 200, "ok"),
        ("/readyz/sched-handler-sync", 200, "ok"),
        ("/readyz/shutdown", 200, "ok"),
        ("/readyz/nothing", 404, "404 page not found\n"),
        ("/livez/shutdown", 404, "404 page not found\n"),
        ("/", 404, "404 page not found\n"),
        ("/metrics/cadvisor", 404, "404 page not found\n"),
        ("/debug/pprof/", 404, "404 page not found\n"),
        ("/configz", 200, '{"componentconfig": {}}'),
    ],
)
async def test_a_healthy_scheduler_answers(served: Served, path: str, status: int, body: str | None) -> None:
    if body is None:
        body = "[+]sched-handler-sync ok\n[+]shutdown excluded: ok\nreadyz check passed\n"
    assert await served.get(path) == (status, body)


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        pytest.param("/livez", 200, "ok", id="alive nonetheless"),
        pytest.param("/healthz", 200, "ok", id="healthy nonetheless"),
        pytest.param(
            "/readyz", 500, f"{_SYNCED_FAILS}[+]shutdown ok\nreadyz check failed\n", id="always verbose"
        ),
        pytest.param(
            "/readyz?exclude=sched-handler-sync", 200, "ok", id="unless the failing check is excluded"
        ),
        pytest.param(
            "/readyz?exclude=a&exclude=b%22%0a",
            500,
            f"{_SYNCED_FAILS}[+]shutdown ok\n"
            'warn: some health checks cannot be excluded: no matches for "a","b\\"\\n"\nreadyz check failed\n',
            id="names that are no checks are listed",
        ),
        pytest.param(
            "/readyz/sched-handler-sync",
            500,
            "internal server error: handlers are not fully synchronized\n",
            id="the single check has a reason",
        ),
        pytest.param("/readyz/shutdown", 200, "ok", id="the other check passes"),
    ],
)
async def test_it_is_not_ready_before_the_first_lists_are_complete(
    served: Served, path: str, status: int, body: str
) -> None:
    """It is alive, but would decide without the whole cluster."""
    served.synced = False
    assert await served.get(path) == (status, body)


async def test_metrics_are_served_as_prometheus_text(served: Served) -> None:
    served.metrics.malformed_objects.add("Pod")
    accepted = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}
    async with served.client.get("/metrics", headers=accepted) as response:
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        families = {family.name for family in text_string_to_metric_families(await response.text())}
    assert {"scheduler_schedule_attempts", "affinity_scheduler_malformed_objects"} <= families


@pytest.mark.parametrize("path", ["/metrics", "/configz", "/readyz"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_only_reading_is_served(served: Served, path: str, method: str) -> None:
    assert (await served.get(path, method=method))[0] == 405


async def test_a_port_serves_from_start_to_stop() -> None:
    port = free_port()
    probes = _server("127.0.0.1", port)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get("/livez")
        await probes.start()
        async with client.get("/livez") as response:
            assert await response.text() == "ok"
        await probes.stop()
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get("/livez")


async def test_port_0_serves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As kube-scheduler's --secure-port=0; starting and stopping are harmless."""
    servers: list[object] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "create_server", servers.append)
    probes = _server("127.0.0.1", 0)
    await probes.start()
    await probes.stop()
    assert servers == []


async def test_a_port_in_use_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError) as raised:
            await _server("127.0.0.1", port).start()
    assert str(raised.value) == f"--port: found {port} in use, expected a free port"


@pytest.mark.parametrize("address", ["192.0.2.1", "no-such-host.invalid"])
async def test_an_address_that_is_not_ours_is_one_line(address: str) -> None:
    with pytest.raises(SettingsError) as raised:
        await _server(address, free_port()).start()
    assert str(raised.value) == f"--bind-address: found {address}, expected an address of this machine"


async def test_a_stuck_scheduler_is_not_alive(served: Served) -> None:
    """The kubelet then restarts it."""
    served.stuck = True
    failed = "[+]ping ok\n[-]scheduling failed: reason withheld\nlivez check failed\n"
    assert await served.get("/livez") == (500, failed)
    reason = "internal server error: pods are ready to be scheduled, and nothing happens\n"
    assert await served.get("/livez/scheduling") == (500, reason)
    assert (await served.get("/livez/ping"))[0] == 200

"""The HTTP endpoints over real connections."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer
from prometheus_client.parser import text_string_to_metric_families

from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.metrics.metrics import Metrics
from scheduler.daemon.port.status_server import ServingOptions, StatusServer, new_application
from scheduler.errors import SettingsError
from tests.support.ports import free_port


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


def _probes(address: str, port: int) -> StatusServer:
    listening = ServingOptions(address, port, insecure_http=True)
    log = Logger(logging.getLogger("test"))
    return StatusServer(listening, log=log, render=lambda: b"", configz=lambda: "{}", ready={})


async def test_a_port_serves_from_start_to_stop() -> None:
    port = free_port()
    probes = _probes("127.0.0.1", port)
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
    probes = _probes("127.0.0.1", 0)
    await probes.start()
    await probes.stop()
    assert servers == []


async def test_a_port_in_use_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError) as raised:
            await _probes("127.0.0.1", port).start()
    assert str(raised.value) == f"--port: found {port} in use, expected a free port"


@pytest.mark.parametrize("address", ["192.0.2.1", "no-such-host.invalid"])
async def test_an_address_that_is_not_ours_is_one_line(address: str) -> None:
    """An IP address of another network, an unknown name."""
    with pytest.raises(SettingsError) as raised:
        await _probes(address, free_port()).start()
    assert str(raised.value) == f"--bind-address: found {address}, expected an address of this machine"


async def test_a_stuck_scheduler_is_not_alive(served: Served) -> None:
    """The kubelet then restarts it."""
    served.stuck = True
    failed = "[+]ping ok\n[-]scheduling failed: reason withheld\nlivez check failed\n"
    assert await served.get("/livez") == (500, failed)
    reason = "internal server error: pods are ready to be scheduled, and nothing happens\n"
    assert await served.get("/livez/scheduling") == (500, reason)
    assert (await served.get("/livez/ping"))[0] == 200

"""The HTTP endpoints over real connections."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families
from yarl import URL

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.metrics.metrics import Metrics
from scheduler.daemon.port import serving_certificate
from scheduler.daemon.port.certificates import issue
from scheduler.daemon.port.delegated_auth import DelegatedAuth
from scheduler.daemon.port.status_server import Routes, ServingOptions, StatusServer
from scheduler.errors import SettingsError
from tests.daemon.port.reviewer import reviewing
from tests.support.ports import free_port
from tests.support.scripted_server import anonymous
from tests.support.waiting import until

LOG = Logger(logging.getLogger("test"))


class _Page(Routes):
    paths = ("/ui/",)

    def add_to(self, app: web.Application, _auth: DelegatedAuth | None) -> None:
        async def page(_: web.Request) -> web.Response:
            return web.Response(text="page")

        app.router.add_get("/ui/", page)


@dataclass
class Served:
    """A port, and what its endpoints report."""

    client: aiohttp.ClientSession
    address: str = "127.0.0.1"
    port: int = field(default_factory=free_port)
    auth: DelegatedAuth | None = None
    #: The folder of the certificate's files.
    certificate: Path | None = None
    synced: bool = True
    stuck: bool = False
    metrics: Metrics = field(default_factory=Metrics)

    def server(self) -> StatusServer:
        """Return the server: of plain HTTP, or with authentication of HTTPS."""
        is_secure, folder = self.auth is not None, self.certificate
        options = ServingOptions(
            self.address, self.port, insecure_http=not is_secure, asks_for_https=is_secure
        )
        if folder is not None:
            options = replace(options, cert_file=folder / "tls.crt", key_file=folder / "tls.key")
        return StatusServer(
            options,
            auth=self.auth,
            log=LOG,
            render=self.metrics.render,
            configz=lambda: '{"componentconfig": {}}',
            ready={"sched-handler-sync": lambda: self.synced, "shutdown": lambda: True},
            live={"scheduling": lambda: not self.stuck},
            routes=_Page(),
        )

    async def get(self, path: str, *, method: str = "GET", token: str = "") -> tuple[int, str]:
        scheme = "http" if self.auth is None else "https"
        url = URL(f"{scheme}://127.0.0.1:{self.port}{path}", encoded=True)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.client.request(method, url, headers=headers) as response:
            assert "Server" not in response.headers
            return response.status, await response.text()


@asynccontextmanager
async def serving(**fields: Any) -> AsyncIterator[Served]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as client:
        served = Served(client, **fields)
        server = served.server()
        await server.start()
        yield served
        await server.stop()


@pytest_asyncio.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as served:
        yield served


@pytest_asyncio.fixture
async def secured() -> AsyncIterator[Served]:
    """Yield a port where the token `prometheus` may get /metrics."""
    async with reviewing() as api, KubeClient(anonymous(api.url)) as client:
        api.knows("prometheus", "prometheus", "/metrics")
        api.knows("stranger", "system:serviceaccount:default:stranger")
        async with serving(auth=DelegatedAuth(client, log=LOG)) as served:
            yield served


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
    secured: Served, path: str, method: str, status: int
) -> None:
    """404 and 405 reveal nothing that is not in the source. No header names the server."""
    assert (await secured.get(path, method=method))[0] == status


async def test_rejections_equal_kube_schedulers(secured: Served) -> None:
    head = '{\n  "kind": "Status",\n  "apiVersion": "v1",\n  "metadata": {},\n  "status": "Failure",\n'
    assert await secured.get("/metrics", token="nobody") == (
        401,
        head + '  "message": "Unauthorized",\n  "reason": "Unauthorized",\n  "code": 401\n}',
    )
    user = "system:serviceaccount:default:stranger"
    message = f'  "message": "forbidden: User \\"{user}\\" cannot get path \\"/metrics\\"",\n'
    rest = '  "reason": "Forbidden",\n  "details": {},\n  "code": 403\n}'
    assert await secured.get("/metrics", token="stranger") == (403, head + message + rest)


async def test_each_request_of_a_connection_is_authorized(secured: Served) -> None:
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


OK, MISSING = (200, "ok"), (404, "404 page not found\n")
FAILS = "[-]sched-handler-sync failed: reason withheld\n"
UNKNOWN = 'warn: some health checks cannot be excluded: no matches for "a","b\\"\\n"\n'
ALIVE = (200, "[+]ping ok\n[+]scheduling ok\nlivez check passed\n")
CONFIGZ = (200, '{"componentconfig": {}}')
READY = (200, "[+]sched-handler-sync ok\n[+]shutdown ok\nreadyz check passed\n")
EXCLUDED = (200, "[+]sched-handler-sync ok\n[+]shutdown excluded: ok\nreadyz check passed\n")
NOT_READY = (500, f"{FAILS}[+]shutdown ok\nreadyz check failed\n")
#: What is answered once the first lists are complete, and before: it is alive, but would decide without the whole
#: cluster.
ANSWERS = {
    "/healthz": (OK, OK),
    "/livez": (OK, OK),
    "/readyz": (OK, NOT_READY),
    "/healthz/ping": (OK, OK),
    "/livez?verbose": (ALIVE, ALIVE),
    "/readyz?verbose": (READY, NOT_READY),
    "/readyz?verbose=1&exclude=shutdown": (
        EXCLUDED,
        (500, f"{FAILS}[+]shutdown excluded: ok\nreadyz check failed\n"),
    ),
    "/readyz?exclude=sched-handler-sync": (OK, OK),
    "/readyz?exclude=a&exclude=b%22%0a": (
        OK,
        (500, f"{FAILS}[+]shutdown ok\n{UNKNOWN}readyz check failed\n"),
    ),
    "/readyz/sched-handler-sync": (
        OK,
        (500, "internal server error: handlers are not fully synchronized\n"),
    ),
    "/readyz/shutdown": (OK, OK),
    "/readyz/nothing": (MISSING, MISSING),
    "/livez/shutdown": (MISSING, MISSING),
    "/": (MISSING, MISSING),
    "/metrics/cadvisor": (MISSING, MISSING),
    "/debug/pprof/": (MISSING, MISSING),
    "/configz": (CONFIGZ, CONFIGZ),
}


@pytest.mark.parametrize("path", ANSWERS)
async def test_checks_are_answered_as_by_kube_scheduler(served: Served, path: str) -> None:
    synced, unsynced = ANSWERS[path]
    assert await served.get(path) == synced
    served.synced = False
    assert await served.get(path) == unsynced


async def test_metrics_are_served_as_prometheus_text(served: Served) -> None:
    served.metrics.malformed_objects.add("Pod")
    accepted = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}
    async with served.client.get(f"http://127.0.0.1:{served.port}/metrics", headers=accepted) as response:
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        families = {family.name for family in text_string_to_metric_families(await response.text())}
    assert {"scheduler_schedule_attempts", "affinity_scheduler_malformed_objects"} <= families


@pytest.mark.parametrize("path", ["/metrics", "/configz", "/readyz"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_only_reading_is_served(served: Served, path: str, method: str) -> None:
    assert (await served.get(path, method=method))[0] == 405


async def test_a_port_serves_from_start_to_stop() -> None:
    async with serving() as served:
        assert await served.get("/livez") == (200, "ok")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", served.port)


@pytest.mark.parametrize(("address", "status", "n_lines"), [("127.0.0.1", 200, 0), ("0.0.0.0", 404, 1)])
async def test_plain_http_outside_loopback_has_no_page_and_is_logged(
    caplog: pytest.LogCaptureFixture, address: str, status: int, n_lines: int
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(address=address) as served:
        assert (await served.get("/metrics"))[0] == 200
        assert (await served.get("/ui/"))[0] == status
    lines = [record.getMessage() for record in caplog.records if "--insecure-http" in record.getMessage()]
    assert len(lines) == n_lines


async def test_port_0_serves_nothing(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """As kube-scheduler's --secure-port=0; starting and stopping are harmless."""
    servers: list[object] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "create_server", servers.append)
    server = replace(served, port=0).server()
    await server.start()
    await server.stop()
    assert servers == []


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("127.0.0.1", "--port: found {port} in use, expected a free port"),
        ("192.0.2.1", "--bind-address: found 192.0.2.1, expected an address of this machine"),
        ("no-such.invalid", "--bind-address: found no-such.invalid, expected an address of this machine"),
    ],
)
async def test_an_address_and_a_port_that_cannot_be_taken_are_one_line(
    served: Served, address: str, line: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        await replace(served, address=address).server().start()
    assert str(raised.value) == line.format(port=served.port)


async def test_a_stuck_scheduler_is_not_alive(served: Served) -> None:
    """The kubelet then restarts it."""
    served.stuck = True
    failed = "[+]ping ok\n[-]scheduling failed: reason withheld\nlivez check failed\n"
    assert await served.get("/livez") == (500, failed)
    reason = "internal server error: pods are ready to be scheduled, and nothing happens\n"
    assert await served.get("/livez/scheduling") == (500, reason)
    assert (await served.get("/livez/ping"))[0] == 200


def _pair(folder: Path) -> str:
    """Write a new pair to two files. Returns: the certificate."""
    pair = issue(["localhost"], time.time()).pair
    (folder / "tls.key").touch(mode=0o600)
    for name, content in (("tls.crt", pair.cert), ("tls.key", pair.key)):
        (folder / f"{name}.new").write_bytes(content)
        (folder / f"{name}.new").rename(folder / name)
    return pair.cert.decode()


async def _change_certificates(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = _pair(folder)
    auth = DelegatedAuth(cast(KubeClient, None), log=LOG)  # nothing is asked
    async with serving(auth=auth, certificate=folder) as served:
        address = ("127.0.0.1", served.port)

        async def shown() -> str:
            return await asyncio.to_thread(ssl.get_server_certificate, address, timeout=5)

        async def said() -> bool:
            return "Could not renew the serving certificate" in caplog.text

        assert await shown() == first
        (folder / "tls.crt").write_text("half")
        await until(said)
        assert await shown() == first
        second = _pair(folder)
        await until(shown, lambda found: found == second, what="the new certificate")


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_certificates_in_files_are_read_again_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, loop: str
) -> None:
    """Within ten seconds, here a tenth of one, and without a restart; half a pair changes nothing."""
    assert serving_certificate.FILES_PERIOD_S <= 10
    monkeypatch.setattr(serving_certificate, "FILES_PERIOD_S", 0.1)
    with asyncio.Runner(loop_factory=pytest.importorskip(loop).new_event_loop) as runner:
        runner.run(_change_certificates(tmp_path, caplog))

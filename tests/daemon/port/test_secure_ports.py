"""The port of every command when it is reachable from outside; each command is a process with its own account."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from scheduler.daemon.port.certificates import issue
from scheduler.daemon.port.serving_certificate import FILES_PERIOD_S
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import SERVICE_ACCOUNT
from tests.support import accounts
from tests.support import daemon as scheduling
from tests.support import enforcer_process as enforcing
from tests.support.cluster import kubeconfig_text
from tests.support.daemon import Daemon, refused
from tests.support.manifest_files import MANIFESTS, documents
from tests.support.waiting import until
from tests.support.webhook_process import webhook

pytestmark = pytest.mark.asyncio(loop_scope="module")

OUTSIDE = ("--bind-address", "0.0.0.0")
METRIC = {"scheduler": "scheduler_pending_pods", "enforcer": "affinity_scheduler_enforced_pods"}


@dataclass
class Outside:
    """A command that listens on all addresses, its cluster, and a token for each account."""

    component: str
    cluster: DevCluster
    daemon: Daemon
    tokens: dict[str, str]

    async def get(self, path: str, who: str = "", *, method: str = "GET") -> tuple[int, str]:
        """Return status and body of the response to an account."""
        self.daemon.token = self.tokens[who] if who else ""
        async with self.daemon.requested(path, method=method) as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def running(component: str, kubeconfig: Path) -> AsyncIterator[Daemon]:
    arguments = ("--kubeconfig", str(kubeconfig), *OUTSIDE)
    async with AsyncExitStack() as stack:
        match component:
            case "scheduler":
                yield await stack.enter_async_context(scheduling.running(kubeconfig, *OUTSIDE))
            case "enforcer":
                yield await stack.enter_async_context(enforcing.enforcing(kubeconfig, *OUTSIDE))
            case _:
                daemon, _ = await stack.enter_async_context(webhook(*arguments))
                yield daemon


@asynccontextmanager
async def outside(component: str, folder: Path) -> AsyncIterator[Outside]:
    async with DevCluster(nodes=1) as cluster:
        if component == "webhook":
            for each in documents(MANIFESTS / "webhook" / "webhooks.yaml"):
                for hook in each["webhooks"]:
                    del hook["matchConditions"]  # which nothing evaluates there
                accounts.create(cluster, each)
        kubeconfig = accounts.account_kubeconfig(cluster, component, folder)
        tokens = {
            "prometheus": accounts.new_account(cluster, "prometheus", accounts.METRICS_READER),
            "stranger": accounts.new_account(cluster, "stranger"),
            "gone": accounts.new_account(cluster, "gone", accounts.METRICS_READER),
            "person": accounts.new_account(cluster, "person", accounts.EXPLAIN_READER),
            "nobody": "nobody-knows-it",
        }
        cluster.store.delete(SERVICE_ACCOUNT, "default", "gone")
        async with running(component, kubeconfig) as daemon:
            yield Outside(component, cluster, daemon, tokens)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=accounts.COMPONENTS)
async def port(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Outside]:
    async with outside(request.param, tmp_path_factory.mktemp(request.param)) as made:
        yield made


@pytest.mark.parametrize(
    ("who", "path", "method", "status"),
    [
        pytest.param("prometheus", "/metrics", "GET", 200, id="allowed"),
        pytest.param("prometheus", "/configz", "GET", 403, id="allowed, another path"),
        pytest.param("prometheus", "/metrics", "HEAD", 403, id="allowed, another verb"),
        pytest.param("prometheus", "/livez/ping", "GET", 403, id="allowed, one check"),
        pytest.param("stranger", "/metrics", "GET", 403, id="not allowed"),
        pytest.param("", "/metrics", "GET", 403, id="no token"),
        pytest.param("", "/configz", "GET", 403, id="no token, another path"),
        pytest.param("gone", "/metrics", "GET", 401, id="a token of a deleted account"),
        pytest.param("nobody", "/metrics", "GET", 401, id="an unknown token"),
        pytest.param("", "/livez", "GET", 200, id="a probe"),
        pytest.param("", "/readyz?verbose", "GET", 200, id="a verbose probe"),
        pytest.param("nobody", "/healthz", "GET", 200, id="health with an unknown token"),
        pytest.param("", "/healthz", "HEAD", 200, id="health by HEAD"),
        pytest.param("prometheus", "//metrics", "GET", 404, id="two slashes"),
        pytest.param("prometheus", "/metrics/", "GET", 404, id="a slash at the end"),
        pytest.param("prometheus", "/metrics/x", "GET", 404, id="below"),
        pytest.param("", "/healthz/..%2fmetrics", "GET", 404, id="dot segments from an allowed path"),
        pytest.param("", "/healthz%2f..%2fmetrics", "GET", 404, id="encoded dot segments"),
        pytest.param("", "/%6detrics", "GET", 403, id="percent-encoded letters"),
        pytest.param("", "/metrics%00/healthz", "GET", 404, id="a NUL byte"),
        pytest.param("", "/metrics;/healthz", "GET", 404, id="parameters of a path"),
        pytest.param("", "/metrics?path=/healthz", "GET", 403, id="parameters"),
        pytest.param("", "/METRICS", "GET", 404, id="upper case"),
        pytest.param("", "/debug/pprof", "GET", 404, id="a path that is not served"),
        pytest.param("", "/metrics", "POST", 405, id="a method that is not served"),
        pytest.param("", "/healthz", "POST", 405, id="a method that is not served on health"),
        pytest.param("", "/metrics", "OPTIONS", 405, id="options"),
        pytest.param("", "/metrics", "TRACE", 405, id="trace"),
    ],
)
async def test_a_request_is_answered_by_account_and_path(
    port: Outside, who: str, path: str, method: str, status: int
) -> None:
    """404 and 405 reveal nothing that is not in the source."""
    assert (await port.get(path, who, method=method))[0] == status


async def test_rejections_equal_kube_schedulers(port: Outside) -> None:
    head = '{\n  "kind": "Status",\n  "apiVersion": "v1",\n  "metadata": {},\n  "status": "Failure",\n'
    assert await port.get("/metrics", "nobody") == (
        401,
        head + '  "message": "Unauthorized",\n  "reason": "Unauthorized",\n  "code": 401\n}',
    )
    user = "system:serviceaccount:default:stranger"
    message = f'  "message": "forbidden: User \\"{user}\\" cannot get path \\"/metrics\\"",\n'
    rest = '  "reason": "Forbidden",\n  "details": {},\n  "code": 403\n}'
    assert await port.get("/metrics", "stranger") == (403, head + message + rest)


async def test_no_header_names_the_server(port: Outside) -> None:
    for path in ("/healthz", "/metrics", "/nothing"):
        async with port.daemon.requested(path) as answer:
            assert "Server" not in answer.headers


async def test_each_request_of_a_connection_is_authorized(port: Outside) -> None:
    """Allowed and not allowed requests, one after the other on one connection."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port.daemon.port, ssl=context)
    for who in ("prometheus", "", "stranger", "prometheus", "nobody"):
        token = f"Authorization: Bearer {port.tokens[who]}\r\n" if who else ""
        writer.write(f"HEAD /livez/ping HTTP/1.1\r\nHost: x\r\n{token}\r\n".encode())
        writer.write(f"GET /metrics HTTP/1.1\r\nHost: x\r\n{token}\r\n".encode())
    writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(20):
        answers = await reader.read()
    writer.transport.abort()
    statuses = [int(each) for each in re.findall(rb"HTTP/1\.1 (\d+) ", answers)]
    assert statuses[1::2] == [200, 403, 403, 200, 401]
    assert statuses[::2] == [403, 403, 403, 403, 401, 200]


async def test_debug_explain_needs_its_right(port: Outside) -> None:
    """Only the scheduler serves it."""
    served = port.component == "scheduler"
    for who, status in {"person": 200, "prometheus": 403, "": 403}.items():
        assert (await port.get("/debug/explain", who))[0] == (status if served else 404)


async def test_each_command_serves_its_own_metrics(port: Outside) -> None:
    _, text = await port.get("/metrics", "prometheus")
    assert METRIC.get(port.component, "affinity_scheduler_webhook_requests_total") in text


async def test_no_token_and_no_key_is_in_the_log(port: Outside) -> None:
    for who in port.tokens:
        await port.get("/metrics", who)
    for secret in (*port.tokens.values(), "PRIVATE", "Bearer"):
        assert secret not in port.daemon.log()


def _pair(folder: Path) -> tuple[str, str]:
    """Write a new pair to two files. Returns: the certificate, and the flags."""
    pair = issue(["localhost"], time.time()).pair
    (folder / "tls.key").touch(mode=0o600)
    for name, content in (("tls.crt", pair.cert), ("tls.key", pair.key)):
        (folder / f"{name}.new").write_bytes(content)
        (folder / f"{name}.new").rename(folder / name)
    return pair.cert.decode(), str(folder)


def _served(port: int) -> str:
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=5)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_certificates_in_files_are_read_again_when_they_change(tmp_path: Path, loop: str) -> None:
    """Within ten seconds, here a tenth of one, and without a restart; half a pair changes nothing."""
    assert FILES_PERIOD_S <= 10
    first, _ = _pair(tmp_path)
    files = (
        "--tls-cert-file",
        str(tmp_path / "tls.crt"),
        "--tls-private-key-file",
        str(tmp_path / "tls.key"),
    )
    flags = (*OUTSIDE, *files, "--event-loop", loop)
    async with DevCluster(nodes=1) as cluster:
        kubeconfig = accounts.account_kubeconfig(cluster, "scheduler", tmp_path)
        async with scheduling.running(kubeconfig, *flags, module=("tests.daemon.port.hurried",)) as daemon:

            async def served() -> str:
                return await asyncio.to_thread(_served, daemon.port)

            assert await served() == first
            (tmp_path / "tls.crt").write_text("half")
            await daemon.says("Could not renew the serving certificate")
            assert await served() == first
            second, _ = _pair(tmp_path)
            await until(served, lambda found: found == second, what="the new certificate")


async def test_plain_http_outside_loopback_needs_a_flag_and_is_logged(tmp_path: Path) -> None:
    async with DevCluster(nodes=1) as cluster:
        kubeconfig = accounts.account_kubeconfig(cluster, "scheduler", tmp_path)
        async with scheduling.started(kubeconfig, *OUTSIDE, "--insecure-http") as daemon:
            daemon.is_secure = False
            await until(daemon.is_ready, what="readiness")
            assert (await daemon.get("/metrics"))[0] == 200
            assert daemon.logged("plain HTTP", "--insecure-http")
            for path in ("/debug/explain", "/ui/", "/api/v1/now"):
                assert (await daemon.get(path))[0] == 404
            assert await daemon.stop() == 0


async def test_loopback_is_plain_http_and_is_not_logged(tmp_path: Path) -> None:
    async with DevCluster(nodes=1) as cluster:
        asked: list[str] = []
        cluster.arrivals.append(lambda _agent, _method, path: asked.append(path))
        kubeconfig = accounts.account_kubeconfig(cluster, "scheduler", tmp_path)
        async with scheduling.running(kubeconfig) as daemon:
            assert (await daemon.get("/metrics"))[0] == 200
            assert not daemon.logged("HTTP")
        assert not [path for path in asked if "review" in path]


@pytest.mark.parametrize(
    ("broken", "allowed", "status"),
    [
        pytest.param((), "/healthz", 200, id="authorized"),
        pytest.param(("authorization",), "/healthz", 500, id="rights cannot be asked"),
        pytest.param(("authentication", "authorization"), "/healthz", 401, id="nothing can be asked"),
        pytest.param(("authentication", "authorization"), "/healthz,/metrics", 200, id="always allowed"),
    ],
)
async def test_kube_schedulers_flags_serve_https_on_loopback(
    tmp_path: Path, broken: tuple[str, ...], allowed: str, status: int
) -> None:
    """Each kubeconfig is asked for its own reviews. Source: test/integration/serving/serving_test.go."""
    async with DevCluster(nodes=1) as cluster:
        kubeconfig = accounts.account_kubeconfig(cluster, "scheduler", tmp_path)
        wrong = tmp_path / "wrong"
        wrong.write_text(kubeconfig_text(cluster.url, token="wrong"))
        flags = [
            f"--{name}-kubeconfig={wrong if name in broken else kubeconfig}"
            for name in ("authentication", "authorization")
        ]
        arguments = (*flags, f"--authorization-always-allow-paths={allowed}")
        async with scheduling.started(kubeconfig, *arguments) as daemon:
            daemon.is_secure = True
            await until(lambda: daemon.get("/healthz"), _is_ok, what="life")
            daemon.token = accounts.new_account(cluster, "prometheus", accounts.METRICS_READER)
            assert (await daemon.get("/metrics"))[0] == status
            assert (await daemon.get("/healthz"))[0] == 200
            assert await daemon.stop() == 0


def _is_ok(answer: tuple[int, str]) -> bool:
    return answer == (200, "ok")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        pytest.param(
            ("--tls-cert-file", "/absent", "--tls-private-key-file", "/absent"),
            "--tls-cert-file: /absent: found No such file or directory, expected a readable PEM file",
            id="no file",
        ),
        pytest.param(
            ("--tls-cert-file", "x", "--tls-private-key-file", "x", "--insecure-http"),
            "--insecure-http: found --tls-cert-file as well, expected one of them",
            id="both ways",
        ),
        pytest.param(
            ("--authentication-kubeconfig", "/absent"), "/absent: found ", id="no kubeconfig for reviews"
        ),
        pytest.param(
            ("--authorization-always-allow-paths", "/a*b"),
            "--authorization-always-allow-paths: found /a*b, expected paths that begin with a slash",
            id="a star in the middle",
        ),
    ],
)
async def test_contradictory_flags_are_one_line(
    tmp_path: Path, arguments: tuple[str, ...], line: str
) -> None:
    async with DevCluster(nodes=1) as cluster:
        kubeconfig = accounts.account_kubeconfig(cluster, "scheduler", tmp_path)
        said = await refused("run", "--kubeconfig", str(kubeconfig), *OUTSIDE, *arguments)
    assert line in said

"""A mistake that the user can correct is one line on standard error and exit code 2."""

import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from scheduler.cli.main import main
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from tests.support.apiserver import Address
from tests.support.cluster import kubeconfig_text
from tests.support.daemon import refused, started
from tests.support.ports import free_port
from tests.support.scripted_server import answering
from tests.support.waiting import until


def refused_at_once(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the one line that the command prints before exit code 2; runs in this process, since it asks no server."""
    try:
        code: str | int | None = main(arguments)
    except SystemExit as ended:
        code = ended.code
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    (line,) = captured.err.splitlines()
    return line


@pytest.fixture(scope="module")
async def devcluster() -> AsyncIterator[DevCluster]:
    async with DevCluster(token="right") as devcluster:
        yield devcluster


@pytest.fixture
def kubeconfig(tmp_path: Path, devcluster: DevCluster) -> Path:
    path = tmp_path / "kubeconfig"
    devcluster.write_kubeconfig(path)
    return path


ARGUMENTS = {
    "unknown flag": (
        ["run", "--bogus"],
        "affinity-scheduler run: unrecognized arguments: --bogus (see affinity-scheduler run --help)",
    ),
    "flag of the wrong type": (
        ["run", "--port", "x"],
        "affinity-scheduler run: argument --port: invalid int value: 'x' (see affinity-scheduler run --help)",
    ),
    "no verbosity": (["run", "-v", "11"], "-v: found 11, expected a verbosity from 0 to 10"),
}


@pytest.mark.parametrize(("arguments", "line"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_wrong_arguments_are_one_line(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused_at_once(capsys, *arguments) == line


async def test_a_command_that_asks_once_tells_that_the_server_is_unreachable(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig_text(url))
    line = await refused("enforce", "--once", "--kubeconfig", str(path))
    assert line == (
        f"API server: {url}: nothing listens on {url.removeprefix('http://')}; "
        "is the cluster running, and is this its address (--kubeconfig, --context)?"
    )


@pytest.mark.parametrize("elects", ["--leader-elect=true", "--leader-elect=false"])
async def test_an_api_server_that_is_late_is_waited_for(tmp_path: Path, elects: str) -> None:
    """Alive and not ready until then, as kube-scheduler; one line says where it waits."""
    api_port = free_port()
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig_text(f"http://127.0.0.1:{api_port}"))
    async with started(path, elects) as daemon:
        await until(lambda: daemon.get("/livez"), lambda answer: answer == (200, "ok"), what="life")
        status, text = await daemon.get("/readyz")
        assert (status, text.splitlines()[0]) == (500, "[-]sched-handler-sync failed: reason withheld")
        (line,) = daemon.logged("The API server does not answer yet; trying again")
        assert f"http://127.0.0.1:{api_port}" in line
        async with DevCluster(nodes=1, port=api_port):
            await until(daemon.is_ready, what="readiness")
            assert await daemon.stop() == 0, daemon.log()


async def test_an_api_server_that_never_comes_does_not_keep_the_process(tmp_path: Path) -> None:
    """SIGTERM ends it in order."""
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig_text(f"http://127.0.0.1:{free_port()}"))
    async with started(path) as daemon:
        await until(lambda: daemon.get("/livez"), lambda answer: answer == (200, "ok"), what="life")
        assert await daemon.stop() == 0, daemon.log()
        assert not daemon.logged("Traceback"), daemon.log()


@pytest.mark.parametrize("code", [429, 500])
async def test_an_api_server_that_is_starting_is_waited_for(
    kubeconfig: Path, devcluster: DevCluster, code: int
) -> None:
    """It answers that it cannot answer yet, which is in the log at once."""
    devcluster.faults.add(Fault(action=Effect.RESPOND, kind="pods", code=code))
    async with started(kubeconfig, "--leader-elect=false") as daemon:
        await until(daemon.is_ready, what="readiness")
        assert daemon.logged("The API server does not answer yet; trying again", devcluster.url, str(code))
        assert await daemon.stop() == 0


async def test_a_wrong_token_is_one_line(tmp_path: Path, devcluster: DevCluster) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig_text(devcluster.url, token="secret-but-wrong"))
    line = await refused("run", "--kubeconfig", str(path))
    assert line == (
        f"API server: {devcluster.url}: 401 Unauthorized; "
        "the kubeconfig's user is not accepted: log in again, or choose another --context"
    )


@pytest.mark.real
async def test_a_server_that_is_not_trusted_is_one_line(tmp_path: Path, real_server: Address) -> None:
    """Its certificate has an unknown issuer."""
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig_text(real_server.url, token=real_server.token))
    line = await refused("run", "--kubeconfig", str(path))
    assert line.startswith(f"API server: {real_server.url}: the certificate of ")
    assert line.endswith("; is certificate-authority of the kubeconfig this server's?")


async def test_a_server_that_is_no_api_server_is_one_line(tmp_path: Path) -> None:
    """It answers 200 with something other than a list."""

    async def greet(_: web.Request) -> web.Response:
        return web.Response(text="<html>hello</html>", content_type="text/html")

    async with answering(greet) as url:
        path = tmp_path / "kubeconfig"
        path.write_text(kubeconfig_text(url))
        line = await refused("run", "--kubeconfig", str(path))
    assert ": 200 BadAnswer: not a list: " in line


@pytest.fixture
def taken_port() -> Iterator[str]:
    """Yield a port on which somebody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield str(taken.getsockname()[1])


def test_devcluster_names_the_port_that_is_taken(
    tmp_path: Path, taken_port: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused_at_once(capsys, "devcluster", "--port", taken_port, "--kubeconfig", str(tmp_path / "k"))
    assert line == f"--port: found {taken_port} in use, expected a free port"


def test_devcluster_names_the_file_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused_at_once(capsys, "devcluster", "--kubeconfig", str(tmp_path / "no" / "k"))
    assert line.startswith("--kubeconfig: found ")

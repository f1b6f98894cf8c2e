"""`affinity-scheduler devcluster`: what it says, and the kubeconfig that it writes."""

import asyncio
import re
import shlex
import signal
from contextlib import asynccontextmanager

import pytest

from scheduler.cli.main import main
from scheduler.errors import SettingsError
from scheduler.sandbox.devcluster.command import node_label, node_resource
from tests.support.api_client import Api
from tests.support.daemon import refused
from tests.support.forking import forked

_DEADLINE_S = 60.0
_LAST_LINE = "kubectl get nodes"
#: Of a usual terminal.
_COLUMNS = 80


@asynccontextmanager
async def running(folder, *args):
    """Yield the lines that the command prints until it serves; at the end it has to exit with 0 and no error."""
    process = await forked("scheduler", "devcluster", "--nodes", "1", *args, folder=folder)
    try:
        lines: list[str] = []
        async with asyncio.timeout(_DEADLINE_S):
            while not lines or _LAST_LINE not in lines[-1]:
                line = await process.stdout.readline()
                assert line, (await process.stderr.read()).decode()
                lines.append(line.decode().rstrip("\n"))
        yield lines
    finally:
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(_DEADLINE_S):
            _, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")


def server_of(lines):
    return lines[0].split(" at ")[1].split(". ")[0]


@pytest.mark.asyncio
async def test_it_says_how_to_use_and_how_to_end_it(tmp_path, snapshot):
    """A second one in the same folder leaves the first its file."""
    path = tmp_path / "devcluster.kubeconfig"
    async with running(tmp_path) as lines:
        stated = "\n".join(lines).replace(shlex.quote(str(path)), "PATH")
        assert stated.replace(server_of(lines), "URL") == snapshot
        assert max(len(line) for line in lines if str(path) not in line) < _COLUMNS
        assert path.stat().st_mode & 0o777 == 0o600
        before = path.read_text()
        line = await refused("devcluster", "--kubeconfig", str(path))
        assert line.startswith(f"--kubeconfig: found {path}, which exists, expected a new file")
        assert path.read_text() == before
    assert not path.exists()


@pytest.mark.asyncio
async def test_nodes_get_the_values_of_labels_and_resources_in_turn(tmp_path):
    """A file that was replaced meanwhile stays."""
    labels = ("--node-label", "example.com/rack=r1,r2", "--node-label", "pool=", "--kubeconfig", "k")
    amounts = ("--node-resource", "nvidia.com/gpu=8,0", "--node-resource", "cpu=500m", "--version", "1.34")
    async with (
        running(tmp_path, "--nodes", "3", *labels, *amounts) as lines,
        Api(server_of(lines), {}) as api,
    ):
        nodes = (await api.get("/api/v1/nodes")).ok["items"]
        assert (await api.get("/version")).ok["minor"] == "34"
        (tmp_path / "k").unlink()
        (tmp_path / "k").write_text("somebody else's")
    assert (tmp_path / "k").read_text() == "somebody else's"
    found = [each["metadata"]["labels"] for each in nodes]
    assert [each["example.com/rack"] + each["pool"] for each in found] == ["r1", "r2", "r1"]
    for each in ("capacity", "allocatable"):
        shown = [
            tuple(node["status"][each][name] for name in ("nvidia.com/gpu", "cpu", "memory"))
            for node in nodes
        ]
        assert shown == [("8", "500m", "32Gi"), ("0", "500m", "32Gi"), ("8", "500m", "32Gi")]


@pytest.mark.parametrize("wrong", ["rack", "=r1", "a b=c", "a=b c", "a=b,c d"])
def test_a_label_that_no_node_may_have_is_refused(wrong):
    with pytest.raises(SettingsError, match=re.escape(f"--node-label: found {wrong!r}, expected ")):
        node_label(wrong)


@pytest.mark.parametrize(
    "wrong",
    ["nvidia.com/gpu", "nvidia.com/gpu=1.5", "nvidia.com/gpu=-1", "gpu=1", "cpu=fast", "a b/c=1"],
)
def test_an_amount_that_no_node_may_have_is_refused(wrong, snapshot):
    with pytest.raises(SettingsError) as refused:
        node_resource(wrong)
    assert str(refused.value) == snapshot


@pytest.mark.parametrize("arguments", ["--version 1.33", "--gpu-fabric 2", "--zones 0"])
def test_what_makes_no_sense_is_refused(arguments, capsys, snapshot):
    assert main(["devcluster", *arguments.split()]) == 2
    assert capsys.readouterr() == ("", snapshot)

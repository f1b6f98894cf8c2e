"""`affinity-scheduler devcluster`: what it says, and the kubeconfig that it writes."""

import asyncio
import re
import shlex
import signal
import sys
from contextlib import asynccontextmanager

import pytest

from scheduler.errors import SettingsError
from scheduler.sandbox.devcluster.command import node_label, node_resource
from tests.support.api_client import Api

pytestmark = pytest.mark.asyncio

_DEADLINE_S = 60.0
_LAST_LINE = "kubectl get nodes"
#: Of a usual terminal.
_COLUMNS = 80


async def started(folder, *args):
    """Return the command as a process in `folder`."""
    command = "import sys; from scheduler.cli.main import main; sys.exit(main())"
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        command,
        "devcluster",
        "--nodes",
        "1",
        *args,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@asynccontextmanager
async def running(folder, *args):
    """Yield the lines that the command prints until it serves; at the end it has to exit with 0 and no error."""
    process = await started(folder, *args)
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


async def refused(folder, *args):
    """Return the only line that the command prints as it refuses to start."""
    process = await started(folder, *args)
    async with asyncio.timeout(_DEADLINE_S):
        out, errors = await process.communicate()
    assert (process.returncode, out) == (2, b"")
    (line,) = errors.decode().splitlines()
    return line


async def test_it_says_how_to_use_and_how_to_end_it(tmp_path):
    async with running(tmp_path) as lines:
        path = shlex.quote(str(tmp_path / "devcluster.kubeconfig"))
        assert lines[0].startswith("1 node in 1 zone at http://127.0.0.1:")
        assert "Ctrl-C ends and deletes it" in lines[0]
        assert lines[1].startswith("Not here: ")
        assert "(no taint, and the pods of a deleted node stay), and the default" in lines
        assert max(len(line) for line in lines if path not in line) < _COLUMNS
        assert f"  affinity-scheduler run --kubeconfig {path}" in lines
        assert f"  export KUBECONFIG={path}" in lines
        assert (tmp_path / "devcluster.kubeconfig").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "devcluster.kubeconfig").exists()


async def test_nodes_get_the_values_of_labels_and_resources_in_turn(tmp_path):
    labels = ("--node-label", "example.com/rack=r1,r2", "--node-label", "pool=")
    amounts = ("--node-resource", "nvidia.com/gpu=8,0", "--node-resource", "cpu=500m", "--version", "1.34")
    async with (
        running(tmp_path, "--nodes", "3", *labels, *amounts) as lines,
        Api(server_of(lines), {}) as api,
    ):
        nodes = (await api.get("/api/v1/nodes")).ok["items"]
        assert (await api.get("/version")).ok["minor"] == "34"
    found = [each["metadata"]["labels"] for each in nodes]
    assert [(each["example.com/rack"], each["pool"]) for each in found] == [
        ("r1", ""),
        ("r2", ""),
        ("r1", ""),
    ]
    for each in ("capacity", "allocatable"):
        shown = [
            tuple(node["status"][each][name] for name in ("nvidia.com/gpu", "cpu", "memory"))
            for node in nodes
        ]
        assert shown == [("8", "500m", "32Gi"), ("0", "500m", "32Gi"), ("8", "500m", "32Gi")]


@pytest.mark.parametrize("wrong", ["rack", "=r1", "a b=c", "a=b c", "a=b,c d"])
async def test_a_label_that_no_node_may_have_is_refused(wrong):
    with pytest.raises(SettingsError, match=re.escape(f"--node-label: found {wrong!r}, expected ")):
        node_label(wrong)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ("nvidia.com/gpu", "NAME=QUANTITY"),
        ("nvidia.com/gpu=1.5", "whole numbers such as 8 or 16Gi"),
        ("nvidia.com/gpu=-1", "whole numbers"),
        ("gpu=1", "one of cpu, memory, pods, ephemeral-storage, or a name with a domain"),
        ("cpu=fast", "CPUs such as 16 or 500m"),
        ("a b/c=1", "prefix part"),
    ],
)
async def test_an_amount_that_no_node_may_have_is_refused(wrong, expected):
    with pytest.raises(SettingsError, match=f"^--node-resource: found {wrong!r}, expected .*{expected}"):
        node_resource(wrong)


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("--version", "1.33"), "--version: found 1.33, expected one of 1.34, 1.35, 1.36, 1.37"),
        (("--gpu-fabric", "2"), "--gpu-fabric: found 2, expected --gpus N beside it"),
    ],
)
async def test_what_makes_no_sense_is_refused(tmp_path, args, line):
    assert await refused(tmp_path, *args) == line


def server_of(lines):
    return lines[0].split(" at ")[1].split(". ")[0]


async def test_a_second_one_in_the_same_folder_leaves_the_first_its_file(tmp_path):
    path = tmp_path / "devcluster.kubeconfig"
    async with running(tmp_path):
        before = path.read_text()
        line = await refused(tmp_path)
        assert f"--kubeconfig: found {path}, which exists, expected a new file" in line
        assert path.read_text() == before


async def test_a_file_that_was_replaced_meanwhile_stays(tmp_path):
    async with running(tmp_path, "--kubeconfig", "k"):
        (tmp_path / "k").unlink()
        (tmp_path / "k").write_text("somebody else's")
    assert (tmp_path / "k").read_text() == "somebody else's"

"""The demo as a user runs it: every story for real, its last line, its exit code, and what it leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import aiohttp
import pytest

from scheduler.errors import SettingsError
from scheduler.sandbox.demo.command import STORIES, VERSIONS, playable
from scheduler.sandbox.devcluster.versions import NEWEST_MINOR, OLDEST_MINOR

COMMAND = (sys.executable, "-m", "scheduler", "demo")
#: What the stories place at least; updates that end evenly by chance are repeated and add to it.
LEAST_PLACED = 9 + 72 + 1000 + 4 + 7 + 11 + 13 + 8


@contextlib.asynccontextmanager
async def demo(
    *arguments: str, folder: Path, stdout: int = asyncio.subprocess.PIPE
) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    """Start the command, with its temporary files in `folder`; kill it at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder), "TERM": "xterm", "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def lines_until(process: asyncio.subprocess.Process, wanted: str) -> list[str]:
    """Return the lines of standard output up to the first that contains `wanted`."""
    assert process.stdout is not None
    lines: list[str] = []
    async for line in process.stdout:
        lines.append(line.decode().rstrip("\n"))
        if wanted in lines[-1]:
            return lines
    raise AssertionError(f"no line with {wanted!r} in {lines}")


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_stories_play_and_break_no_rule_and_the_cluster_is_kept_until_interrupted(
    tmp_path: Path,
) -> None:
    """With a stuck rollout, which the page explains."""
    async with demo("--serve", folder=tmp_path) as process:
        lines = await lines_until(process, "demo:")
        assert all(line.isprintable() for line in lines)
        found = re.fullmatch(r"demo: (\d+) stories, (\d+) pods placed, 0 rules broken", lines[-1])
        assert found is not None, lines[-12:]
        assert int(found[1]) == len(STORIES)
        assert int(found[2]) >= LEAST_PLACED
        kubectl = next(line for line in lines if "kubectl get pods -A -o wide" in line)
        kubeconfig = Path(kubectl.strip().removeprefix("KUBECONFIG=").split()[0])
        assert "server: http://127.0.0.1:" in kubeconfig.read_text()
        page = next(line for line in lines if line.endswith("is the scheduler's page")).split()[0]
        async with aiohttp.ClientSession() as session, session.get(f"{page}../api/v1/pending") as answer:
            groups = (await answer.json())["groups"]
        assert [(one["pods"], one["reason"]) for one in groups] == [
            (3, "node(s) didn't match pod anti-affinity rules")
        ]
        process.send_signal(signal.SIGINT)
        _, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.skipif(sys.platform != "linux", reason="children are found in /proc")
async def test_interrupting_a_story_ends_both_processes(tmp_path: Path) -> None:
    async with demo("--story", "1", folder=tmp_path) as process:
        await lines_until(process, "kubectl apply")
        children = children_of(process.pid)
        assert len(children) == 2
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 130
    assert not any(Path(f"/proc/{child}").exists() for child in children)


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.skipif(sys.platform != "linux", reason="children are found in /proc")
async def test_a_process_that_dies_fails_the_demo_at_once_and_leaves_its_logs(tmp_path: Path) -> None:
    """The scheduler: requests tell of the death of the cluster."""
    async with demo("--story", "1", folder=tmp_path) as process:
        await lines_until(process, "kubectl apply")
        os.kill(max(children_of(process.pid)), signal.SIGKILL)
        out, errors = await process.communicate()
    assert process.returncode == 1, out
    assert out.decode().splitlines()[-1] == "demo: failed"
    logs = Path(errors.decode().strip().rpartition(" ")[2])
    assert {path.name for path in logs.iterdir()} >= {"devcluster.log", "scheduler.log"}


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_closed_pipe_ends_the_demo_without_a_traceback(tmp_path: Path) -> None:
    """As in `affinity-scheduler demo | head`."""
    reader, writer = os.pipe()
    async with demo("--story", "1", folder=tmp_path, stdout=writer) as process:
        os.close(writer)
        os.close(reader)
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert "Traceback" not in errors.decode()


def test_a_story_that_needs_a_newer_kubernetes_is_left_out_and_said_to_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert f"1.{OLDEST_MINOR} to 1.{NEWEST_MINOR}" == f"{VERSIONS[0]} to {VERSIONS[-1]}"
    assert playable(None, NEWEST_MINOR) == list(range(1, len(STORIES) + 1))
    assert capsys.readouterr().err == ""
    assert set(range(1, len(STORIES) + 1)) - set(playable(None, OLDEST_MINOR)) == {7}
    assert capsys.readouterr().err == "story 7 is left out: it needs Kubernetes 1.36\n"
    with pytest.raises(SettingsError, match=r"found Kubernetes 1\.35, expected --version 1\.36"):
        playable(7, 35)

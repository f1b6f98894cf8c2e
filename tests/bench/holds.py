"""
How long the daemon's event loop is held, phase by phase, while it does what could hold it: on the embedded cluster.

Holds are wall time, so another process that takes the CPU shows here too.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import msgspec

from scheduler.devcluster.faults import FAULTS_PATH
from tests import build
from tests.bench.api_objects import Objects, objects_of
from tests.bench.loaded import SCHEDULER
from tests.bench.measuring import cpu_s
from tests.bench.scene import Scene
from tests.bench.servers import Server, started
from tests.integration.daemon import free_port
from tests.integration.waiting import until

_N_SCRAPES: Final = 5
_QUIET_S: Final = 1.0
#: Events of 20,000 waiting pods are written at a bounded rate.
_TIMEOUT_S: Final = 1800.0


class HoldResult(msgspec.Struct, frozen=True):
    """The longest hold of one phase, in ms, how many were above 10 ms, and what held it."""

    phase: str
    longest_ms: float
    n_above_10_ms: int
    what: str


def measure_holds(scene: Scene) -> list[HoldResult]:
    """Start, a burst of pods, scrapes, a relist, and an event that concerns every waiting pod."""
    with started("devcluster") as server:
        return asyncio.run(_measured(scene, server))


async def _measured(scene: Scene, server: Server) -> list[HoldResult]:
    port, noted = free_port(), server.folder / "held.json"
    command = [sys.executable, "-m", "tests.bench.held", str(noted), "run", "-v", "0"]
    command += ["--kubeconfig", str(server.kubeconfig()), "--port", str(port)]
    began: list[tuple[str, float]] = []

    def phase(name: str) -> None:
        began.append((name, time.monotonic()))

    async with objects_of(server) as objects:
        await objects.create_cluster(scene)
        await objects.create_pods([*scene.idle, *scene.measured], scheduler=SCHEDULER)
        with (server.folder / "held.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        try:
            await _phases(scene, objects, process, port, phase)
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await process.wait()
    phase("end")
    return _by_phase(json.loads(noted.read_text()), began)


async def _phases(
    scene: Scene, objects: Objects, process: Process, port: int, phase: Callable[[str], None]
) -> None:
    phase("start and lists")
    await until(
        lambda: objects.is_ok(f"http://127.0.0.1:{port}/readyz"), timeout_s=_TIMEOUT_S, what="readiness"
    )
    phase("first tries of every pod")
    await _until_bound(scene, objects, process)
    await _until_quiet(process)
    phase("scrapes")
    for _ in range(_N_SCRAPES):
        await objects.get(f"http://127.0.0.1:{port}/metrics")
        await asyncio.sleep(0.1)
    phase("relist of pods")
    await objects.post(FAULTS_PATH, [{"action": "expire-stream", "kind": "pods"}])
    await objects.create_pods(scene.idle[:1], scheduler="nobody", suffix="-late")
    await _until_quiet(process)
    phase("a node that every waiting pod could use")
    await objects.create_node(build.node("large", allocatable={"cpu": "16"}))
    await _until_quiet(process)


async def _until_bound(scene: Scene, objects: Objects, process: Process) -> None:
    """All measured pods have nodes. Raises TimeoutError, and RuntimeError where the process ends."""
    async with asyncio.timeout(_TIMEOUT_S):
        while True:
            _assert_alive(process)
            nodes = await objects.nodes_of_pods()
            if all(nodes.get(key) for key in scene.measured_keys):
                return
            await asyncio.sleep(2.0)


async def _until_quiet(process: Process) -> None:
    """The process has used no CPU to speak of for a second. Raises as `_until_bound`."""
    async with asyncio.timeout(_TIMEOUT_S):
        while True:
            before_s = cpu_s(process.pid)
            await asyncio.sleep(_QUIET_S)
            _assert_alive(process)
            if cpu_s(process.pid) - before_s < 0.03:
                return


def _assert_alive(process: Process) -> None:
    if process.returncode is not None:
        raise RuntimeError(f"the scheduler ended with exit code {process.returncode}")


def _by_phase(noted: list[tuple[float, float, str]], began: list[tuple[str, float]]) -> list[HoldResult]:
    results = []
    for (name, from_s), (_, to_s) in pairwise(began):
        held = sorted((elapsed_s, what) for at_s, elapsed_s, what in noted if from_s <= at_s < to_s)
        longest_s, what = held[-1] if held else (0.0, "")
        n_above = sum(elapsed_s > 0.010 for elapsed_s, _ in held)
        results.append(HoldResult(name, longest_s * 1000, n_above, what))
    return results

"""
The longest holds of the daemon's event loop by phase, on the embedded cluster.

A hold counts by its CPU time; its wall time also has the time of other processes on the CPU.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Callable
from itertools import pairwise
from typing import Final

import msgspec

from scheduler.devcluster.http.faults import FAULTS_PATH
from tests.bench.api_objects import Objects, objects_of
from tests.bench.held import Hold
from tests.bench.measuring import cpu_s
from tests.bench.scene import Scene
from tests.bench.servers import Server, started_with
from tests.support import build
from tests.support.ports import free_port
from tests.support.waiting import until

_ATTEMPTS: Final = re.compile(r'^scheduler_schedule_attempts_total\{.*result="(\w+)"\} (\S+)$', re.MULTILINE)
_N_SCRAPES: Final = 5
_QUIET_S: Final = 1.0
#: The timeout of unschedulable pods here, instead of five minutes: longer than all other phases.
_FLUSH_S: Final = 240
#: Conditions of 20,000 waiting pods are written at a bounded rate.
_TIMEOUT_S: Final = 1800.0
#: Longer than the minute between two sweeps.
_UPKEEP_S: Final = 65.0


class HoldResult(msgspec.Struct, frozen=True):
    """
    The longest hold of one phase in ms of CPU, the part of it in the garbage collector (`gc_ms`), its task, and the
    number of holds above 10 ms. `longest_wall_ms` is the longest by wall time, which may be another hold.
    """

    phase: str
    longest_ms: float
    gc_ms: float
    n_above_10_ms: int
    longest_wall_ms: float
    what: str


def measure_holds(scene: Scene) -> list[HoldResult]:
    """Measure every phase that concerns all pods or all waiting pods at once; see `_phases`."""
    with started_with(scene) as server:
        return asyncio.run(_measured(scene, server))


async def _measured(scene: Scene, server: Server) -> list[HoldResult]:
    port, noted = free_port(), server.folder / "held.json"
    command = [sys.executable, "-m", "tests.bench.held", str(noted), "run", "-v", "0"]
    command += ["--kubeconfig", str(server.kubeconfig()), "--port", str(port)]
    command += ["--pod-max-in-unschedulable-pods-duration", f"{_FLUSH_S}s"]
    began: list[tuple[str, float]] = []

    def phase(name: str) -> None:
        began.append((name, time.monotonic()))

    async with objects_of(server) as objects:
        with (server.folder / "held.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        try:
            await _phases(scene, objects, process, f"http://127.0.0.1:{port}", phase)
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await process.wait()
    phase("end")
    return _by_phase(msgspec.json.decode(noted.read_bytes(), type=list[Hold]), began)


async def _phases(
    scene: Scene, objects: Objects, process: Process, url: str, phase: Callable[[str], None]
) -> None:
    phase("start and lists")
    await until(lambda: objects.is_ok(f"{url}/readyz"), timeout_s=_TIMEOUT_S, what="readiness")
    phase("first tries of every pod")
    await _until_tried(scene, objects, process, url)
    await _until_quiet(process)
    phase("scrapes")
    for _ in range(_N_SCRAPES):
        await objects.get(f"{url}/metrics")
        await asyncio.sleep(0.1)
    phase("relist of pods")
    await objects.post(FAULTS_PATH, [{"action": "expire-stream", "kind": "pods"}])
    await objects.create_pods(scene.idle[:1], scheduler="nobody", suffix="-late")
    await _until_quiet(process)
    phase("recounts and sweeps")
    await asyncio.sleep(_UPKEEP_S)
    phase("a node that every waiting pod could use")
    await objects.create_node(build.node("large", allocatable={"cpu": "16"}))
    await _until_quiet(process)
    phase("the timeout of every waiting pod")
    await until(lambda: _flushed(objects, url), timeout_s=2.0 * _FLUSH_S, what="the flush")
    await _until_quiet(process)


async def _flushed(objects: Objects, url: str) -> bool:
    return b'event="UnschedulableTimeout"' in await objects.get(f"{url}/metrics")


async def _until_tried(scene: Scene, objects: Objects, process: Process, url: str) -> None:
    """Wait until every measured pod is bound and every idle pod was refused; raise as `_until_quiet`."""
    wanted = {"scheduled": len(scene.measured), "unschedulable": len(scene.idle)}
    async with asyncio.timeout(_TIMEOUT_S):
        while True:
            _assert_alive(process)
            text = (await objects.get(f"{url}/metrics")).decode()
            found = {result: int(float(n)) for result, n in _ATTEMPTS.findall(text)}
            if all(found.get(result, 0) >= n for result, n in wanted.items()):
                return
            await asyncio.sleep(2.0)


async def _until_quiet(process: Process) -> None:
    """
    Wait until the process has used almost no CPU for a second.

    Raises TimeoutError if that takes too long, and RuntimeError if the process ends.
    """
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


def _by_phase(noted: list[Hold], began: list[tuple[str, float]]) -> list[HoldResult]:
    results = []
    for (name, from_s), (_, to_s) in pairwise(began):
        held = [hold for hold in noted if from_s <= hold.at_s < to_s]
        longest = max(held, key=lambda hold: hold.cpu_s, default=Hold(0.0, 0.0, 0.0, 0.0, ""))
        results.append(
            HoldResult(
                phase=name,
                longest_ms=longest.cpu_s * 1000,
                gc_ms=longest.gc_s * 1000,
                n_above_10_ms=sum(hold.cpu_s > 0.010 for hold in held),
                longest_wall_ms=max((hold.wall_s for hold in held), default=0.0) * 1000,
                what=longest.what,
            )
        )
    return results

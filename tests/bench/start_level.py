"""
Starts: the commands that print and end, a scheduler from its start to its first binding, and a standby that takes over.

The standby has its caches when the leader gets SIGTERM, at a random moment of a retry period. Pods that are created
after the signal wait for the standby.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from tests.bench.api_objects import Objects, objects_of
from tests.bench.http_level import rested
from tests.bench.measuring import cpu_s
from tests.bench.scene import Scene
from tests.bench.schedulers import Contender, process
from tests.bench.servers import Server, ServerName, started
from tests.bench.templates import Planned
from tests.support.ports import free_port
from tests.support.snapshots import header

#: Pods that wait at the start, and as many at the takeover.
N_WAITING: Final = 10
_LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
_RETRY_PERIOD_S: Final = 2.0
#: After SIGTERM the leader begins no cycle once its loop has run; pods are created later than that.
_SIGNAL_S: Final = 0.01
_POLL_S: Final = 0.002
_TIMEOUT_S: Final = 120.0


class CommandResult(msgspec.Struct, frozen=True):
    """One command of one scheduler: its CPU and its wall time, medians of the rounds."""

    command: str
    scheduler: str
    cpu_s: float
    wall_s: float


class StartResult(msgspec.Struct, frozen=True):
    """
    One scheduler on one server, medians of the rounds in seconds.

    `filled_s`: from the start to filled caches, `filled_cpu_s` the CPU of that; `bind_s`: from there to the first
    binding that a watch shows. `release_s`: from SIGTERM to the release of the Lease; `takeover_s`: from there to the
    standby's first binding, and `takeover_max_s` the longest of the rounds.
    """

    server: str
    scheduler: str
    n_nodes: int
    n_running: int
    filled_s: float
    filled_cpu_s: float
    bind_s: float
    release_s: float
    takeover_s: float
    takeover_max_s: float = 0.0


def measure_commands(
    scene: Scene, contenders: Sequence[Contender], n_rounds: int, folder: Path
) -> list[CommandResult]:
    """Run every command in turn; raise RuntimeError if one fails."""
    commands = {
        "--help": ["--help"],
        "explain --on": ["explain", "waiting", "--on", str(_snapshot(scene, folder))],
    }
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    # The first round writes what Python compiles, and is not counted.
    for number in range(n_rounds + 1):
        for contender in contenders:
            for name, arguments in commands.items():
                spent = _timed([sys.executable, "-m", contender.module, *arguments], contender.checkout)
                if number:
                    found.setdefault((name, contender.label), []).append(spent)
    return [
        CommandResult(name, label, median(cpu for cpu, _ in runs), median(wall for _, wall in runs))
        for (name, label), runs in sorted(found.items())
    ]


def _snapshot(scene: Scene, folder: Path) -> Path:
    """Write the scene as a snapshot, with one pod that waits."""
    pods = [
        pod.template.pod(pod.namespace, pod.name, node=pod.node, scheduler="nobody") for pod in scene.running
    ]
    pods.append(scene.measured[0].template.pod("default", "waiting", node="", scheduler="affinity-scheduler"))
    path = folder / "snapshot.json.gz"
    path.write_bytes(gzip.compress(json.dumps({**header(), "nodes": scene.nodes, "pods": pods}).encode()))
    return path


def _timed(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """Run the command and return its CPU and its wall seconds."""
    began_s = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=folder)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {child.returncode}")
    return used.ru_utime + used.ru_stime, time.monotonic() - began_s


def measure_starts(
    scene: Scene,
    server_name: ServerName,
    contenders: Sequence[Contender],
    n_rounds: int,
    say: Callable[[str], None],
) -> list[StartResult]:
    """Start and succeed every contender in turn on one server; raise RuntimeError if pods stay unbound."""
    with started(server_name) as server:
        return asyncio.run(_in_turn(scene, server, contenders, n_rounds, say))


async def _in_turn(
    scene: Scene, server: Server, contenders: Sequence[Contender], n_rounds: int, say: Callable[[str], None]
) -> list[StartResult]:
    found: dict[str, list[StartResult]] = {contender.label: [] for contender in contenders}
    async with objects_of(server) as objects:
        await objects.create_cluster(scene)
        for number in range(n_rounds):
            for contender in contenders:
                say(f"start of {contender.label} on {server.name}, round {number + 1} of {n_rounds}")
                found[contender.label].append(await _run(scene, server, objects, contender))
    return [_median(runs) for runs in found.values()]


def _median(runs: Sequence[StartResult]) -> StartResult:
    fields = ("filled_s", "filled_cpu_s", "bind_s", "release_s", "takeover_s")
    values = {name: median(getattr(run, name) for run in runs) for name in fields}
    return msgspec.structs.replace(runs[0], **values, takeover_max_s=max(run.takeover_s for run in runs))


@dataclass
class _Seen:
    """When watches showed each pod bound, and the Lease without a holder, in monotonic seconds."""

    bound_s: dict[str, float] = field(default_factory=dict)
    released_s: float = 0.0

    async def watch_pods(self, objects: Objects, namespace: str) -> None:
        async for name in objects.bindings(namespace):
            self.bound_s.setdefault(name, time.monotonic())

    async def watch_lease(self, objects: Objects) -> None:
        async for line in objects.lines(f"{_LEASE}?watch=true"):
            if not json.loads(line)["object"]["spec"].get("holderIdentity"):
                self.released_s = time.monotonic()

    async def first_of(self, pods: Sequence[Planned]) -> float:
        """Wait until all of the pods are bound, and return the second of the first binding."""
        names = {pod.name for pod in pods}
        await _until(lambda: names <= self.bound_s.keys(), "bindings")
        return min(self.bound_s[name] for name in names)


@asynccontextmanager
async def _watching(objects: Objects, namespace: str) -> AsyncIterator[_Seen]:
    seen = _Seen()
    tasks = [
        asyncio.create_task(seen.watch_pods(objects, namespace)),
        asyncio.create_task(seen.watch_lease(objects)),
    ]
    try:
        yield seen
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(scene: Scene, server: Server, objects: Objects, contender: Contender) -> StartResult:
    first, second = scene.measured[:N_WAITING], scene.measured[N_WAITING : 2 * N_WAITING]
    await objects.create_pods(first, scheduler=contender.name)
    await rested(server)
    async with _watching(objects, first[0].namespace) as seen:
        began_s = time.monotonic()
        with _instance(contender, server, "leader") as (leader, leader_port):
            filled_s = await _filled(objects, leader_port)
            filled_cpu_s = cpu_s(leader.pid)
            bind_s = await seen.first_of(first)
            with _instance(contender, server, "standby") as (_, standby_port):
                await _filled(objects, standby_port)
                await asyncio.sleep(random.uniform(1.0, 1.0 + _RETRY_PERIOD_S))
                signalled_s = time.monotonic()
                leader.send_signal(signal.SIGTERM)
                await asyncio.sleep(_SIGNAL_S)
                await objects.create_pods(second, scheduler=contender.name)
                taken_s = await seen.first_of(second)
                released_s = seen.released_s
    await objects.delete_pods([*first, *second])
    if not signalled_s < released_s < taken_s:
        raise RuntimeError(f"{contender.label}: a pod was bound before the Lease was released")
    return StartResult(
        server=server.name,
        scheduler=contender.label,
        n_nodes=scene.size.n_nodes,
        n_running=len(scene.running),
        filled_s=filled_s - began_s,
        filled_cpu_s=filled_cpu_s,
        bind_s=max(0.0, bind_s - filled_s),
        release_s=released_s - signalled_s,
        takeover_s=taken_s - released_s,
    )


@contextmanager
def _instance(
    contender: Contender, server: Server, role: str
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run the contender's process for the block, and yield it with its port."""
    port = free_port()
    command = [*contender.command(server), "--port", str(port)]
    with process(command, server.folder / f"{role}.log", folder=contender.checkout) as instance:
        yield instance, port


async def _filled(objects: Objects, port: int) -> float:
    """Wait until the instance has its caches, and return the second of that."""
    ends_s = time.monotonic() + _TIMEOUT_S
    while not await objects.is_ok(f"http://127.0.0.1:{port}/readyz"):
        if time.monotonic() > ends_s:
            raise RuntimeError(f"no filled caches within {_TIMEOUT_S:.0f} s")
        await asyncio.sleep(_POLL_S)
    return time.monotonic()


async def _until(holds: Callable[[], bool], what: str) -> None:
    ends_s = time.monotonic() + _TIMEOUT_S
    while not holds():
        if time.monotonic() > ends_s:
            raise RuntimeError(f"no {what} within {_TIMEOUT_S:.0f} s")
        await asyncio.sleep(_POLL_S)

"""
Level 1: the pure core alone, loaded from bytes. No HTTP, no asyncio.

A decision is timed from PreFilter to argmax, a cycle from the queue to the binding ordered, in CPU time.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

import msgspec

from scheduler.engine.framework.observer import Observer
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.instructions import Bind, WriteReservation
from scheduler.engine.model.stimuli import BindDone, CycleDue, NodeGone, ObjectGone, PodGone, PodSeen
from tests.bench import templates
from tests.bench.loaded import SCHEDULER, LoadedMachine
from tests.bench.measuring import Spread, spread_us
from tests.bench.scene import Scene
from tests.support import build

#: Upstream's churn recreates one of each every second; this many decisions stand for it.
_CHURNED_EVERY: Final = 250


class CoreResult(msgspec.Struct, frozen=True):
    """
    One shape at one size. Durations in µs of CPU.

    `per_second`: decisions, from the queue to the binding ordered, nothing else done. `echo_us`: what the machine does
    after each: the answer to the binding and the watch's view of it.
    """

    shape: str
    n_nodes: int
    n_running: int
    n_pods: int
    decision: Spread
    cycle: Spread
    per_second: float
    echo_us: float


class _Stopwatch(Observer):
    """An observer that only notes how long the last decision took."""

    def __init__(self) -> None:
        self._began_ns = 0
        self.elapsed_ns = 0

    def begin(self, profile: Profile) -> Profile:
        self._began_ns = time.process_time_ns()
        return profile

    def end(self) -> None:
        self.elapsed_ns = time.process_time_ns() - self._began_ns


def measure_core(scene: Scene) -> CoreResult:
    """
    Time every decision about the scene's measured pods.

    Raises RuntimeError where a pod stays unbound, a rule is broken, or counts differ from a recount.
    """
    stopwatch = _Stopwatch()
    loaded = LoadedMachine(scene, stopwatch)
    try:
        decisions, cycles, echoes = _timed(loaded, stopwatch)
    finally:
        loaded.close()
    loaded.assert_success()
    return CoreResult(
        shape=scene.shape.name,
        n_nodes=scene.size.n_nodes,
        n_running=len(scene.running),
        n_pods=len(scene.measured),
        decision=spread_us(decisions),
        cycle=spread_us(cycles),
        per_second=len(cycles) * 1e9 / sum(cycles),
        echo_us=sum(echoes) / len(echoes) / 1000,
    )


def _timed(loaded: LoadedMachine, stopwatch: _Stopwatch) -> tuple[list[int], list[int], list[int]]:
    """Return the CPU nanoseconds of each decision, each cycle and each echo."""
    clock = time.process_time_ns
    decisions: list[int] = []
    cycles: list[int] = []
    echoes: list[int] = []
    n_churned = 0
    while len(decisions) < len(loaded.scene.measured) and loaded.machine.has_work():
        started_ns = clock()
        orders = loaded.handle(CycleDue())
        ended_ns = clock()
        loaded.now_s += 0.0005
        placed = [order for order in orders if isinstance(order, Bind | WriteReservation)]
        # A group takes one cycle, of which each member counts a part.
        spent_ns = (ended_ns - started_ns) // max(1, len(placed))
        for order in placed:
            decisions.append(stopwatch.elapsed_ns if len(placed) == 1 else spent_ns)
            cycles.append(spent_ns)
            echoes.append(_echoed(loaded, order))
        while loaded.scene.shape.churns and n_churned * _CHURNED_EVERY < len(decisions):
            n_churned += 1
            _churn(loaded, n_churned)
    return decisions, cycles, echoes


def _churn(loaded: LoadedMachine, number: int) -> None:
    """Recreate a node, a service and a pod that is too large for any node."""
    name = "churning"
    if number > 1:
        loaded.handle(PodGone(f"uid-{name}-{number - 1}"))
        loaded.handle(NodeGone(name))
        loaded.handle(ObjectGone("Service", f"default/{name}"))
    pod = templates.large(priority=10).pod("default", name, scheduler=SCHEDULER)
    pod["metadata"]["uid"] = f"uid-{name}-{number}"
    # Without room for pods, so every measured pod is placed on a node that stays.
    node = build.node(name, allocatable={"cpu": "4", "memory": "32Gi", "pods": "0"})
    for each in (pod, node, build.service(name, {"app": "nobody"})):
        loaded.see(each["kind"], msgspec.json.encode(each))


def _echoed(loaded: LoadedMachine, order: Bind | WriteReservation) -> int:
    """
    Have the volumes and the pod bound, and the watches show it. Returns: CPU nanoseconds that the machine takes for
    all of this.
    """
    seen = PodSeen(replace(order.pod, node_name=order.node_name, resource_version="bound"))
    started_ns = time.process_time_ns()
    if isinstance(order, WriteReservation):
        loaded.bind_volumes(order)
        loaded.handle(CycleDue())
    loaded.handle(BindDone(order.pod.uid))
    loaded.handle(seen)
    return time.process_time_ns() - started_ns

"""
Level 1: the pure core alone, loaded from bytes. No HTTP, no asyncio.

A decision is timed from PreFilter to argmax, a cycle from the queue to the binding ordered, in CPU time.
"""

from __future__ import annotations

import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import msgspec

from scheduler.daemon.metrics.instrument import CycleObserver
from scheduler.daemon.metrics.series import Family, Histogram, HistogramSeries
from scheduler.engine.framework.observer import Observer, Unobserved
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.instructions import Bind, Instruction, WriteReservation
from scheduler.engine.model.stimuli import BindDone, CycleDue, PodSeen
from tests.bench.bytes_level import FedMachine
from tests.bench.churn import Churn
from tests.bench.loaded import LoadedMachine, Profiles
from tests.bench.measuring import Spread, spread_us
from tests.bench.scene import Scene

#: Decisions that are looked into, apart from the timed ones: for shares of plugins and for memory.
_N_SHARES: Final = 200
_N_TRACED: Final = 20


class CoreResult(msgspec.Struct, frozen=True):
    """
    One shape at one size. Durations in µs of CPU.

    `per_second`: decisions, from the queue to the binding ordered, nothing else done. `echo_us`: what the machine does
    after each: the answer to the binding and the watch's view of it. `share_by_plugin`: of a decision's time; `core`
    is all that no plugin does. `transient_kib`: memory that one decision takes and gives back.
    """

    shape: str
    n_nodes: int
    n_running: int
    n_pods: int
    decision: Spread
    cycle: Spread
    per_second: float
    echo_us: float
    share_by_plugin: dict[str, float]
    transient_kib: float


class _Stopwatch(Unobserved):
    """An observer that only notes how long the last decision took."""

    def __init__(self) -> None:
        self._began_ns = 0
        self.elapsed_ns = 0

    def begin(self, profile: Profile) -> Profile:
        self._began_ns = time.process_time_ns()
        return profile

    def end(self) -> None:
        self.elapsed_ns = time.process_time_ns() - self._began_ns


def measure_core(scene: Scene, *, with_shares: bool = True) -> CoreResult:
    """
    Time every decision about the scene's measured pods.

    Raises RuntimeError where a pod stays unbound, a rule is broken, or counts differ from a recount.
    """
    stopwatch = _Stopwatch()
    loaded = _loaded(scene, lambda _profiles: stopwatch)
    try:
        decisions, cycles, echoes = _timed(loaded, stopwatch)
    finally:
        loaded.close()
    loaded.assert_success()
    shares, transient_kib = looked_into(scene) if with_shares else ({}, 0.0)
    return CoreResult(
        shape=scene.shape.name,
        n_nodes=scene.size.n_nodes,
        n_running=len(scene.running),
        n_pods=len(scene.measured),
        decision=spread_us(decisions),
        cycle=spread_us(cycles),
        per_second=len(cycles) * 1e9 / sum(cycles),
        echo_us=sum(echoes) / len(echoes) / 1000,
        share_by_plugin=shares,
        transient_kib=transient_kib,
    )


def _loaded(scene: Scene, observer: Callable[[Profiles], Observer]) -> LoadedMachine:
    """Return a machine whose queue has the measured pods."""
    fed = FedMachine(scene, observer)
    fed.load()
    fed.feed_measured()
    fed.loaded.settle()
    return fed.loaded


def _timed(loaded: LoadedMachine, stopwatch: _Stopwatch) -> tuple[list[int], list[int], list[int]]:
    """Return the CPU nanoseconds of each decision, each cycle and each echo."""
    clock = time.process_time_ns
    decisions: list[int] = []
    cycles: list[int] = []
    echoes: list[int] = []
    churn = Churn(loaded) if loaded.scene.shape.churns else None
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
        if churn is not None:
            churn.after(len(decisions))
    return decisions, cycles, echoes


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


def looked_into(scene: Scene) -> tuple[dict[str, float], float]:
    """Return each plugin's share of a decision's time, and the KiB that one decision allocates temporarily."""
    histogram = Histogram(Family("plugins", "", ("plugin", "point", "status"), (1.0,)))
    loaded = _loaded(scene, lambda profiles: _timing_plugins(profiles, histogram))
    try:
        before = _sums(histogram)
        whole_s = 0.0
        for _ in range(min(_N_SHARES, len(scene.measured))):
            started_s = time.process_time()
            orders = loaded.handle(CycleDue())
            whole_s += time.process_time() - started_s
            _confirm(loaded, orders)
        shares = {
            name: (total_s - before.get(name, 0.0)) / whole_s for name, total_s in _sums(histogram).items()
        }
        transient_kib = _transient_kib(loaded)
    finally:
        loaded.close()
    shares["core"] = 1.0 - sum(shares.values())
    return {name: round(share, 4) for name, share in shares.items() if share > 0}, transient_kib


def _timing_plugins(profiles: Profiles, histogram: Histogram) -> CycleObserver:
    """Return the observer that the daemon has, with every cycle sampled, in CPU time."""
    return CycleObserver(
        profiles.values(),
        decisions=(HistogramSeries((1.0,)), HistogramSeries((1.0,))),
        points=Histogram(Family("points", "", ("point", "status", "profile"), (1.0,))),
        plugins=histogram,
        sampled=1.0,
        now_s=time.process_time,
        seed=0,
    )


def _sums(histogram: Histogram) -> Mapping[str, float]:
    """Return seconds by plugin."""
    sums: defaultdict[str, float] = defaultdict(float)
    for (plugin, _, _), series in histogram.series.items():
        sums[plugin] += series.sum
    return sums


def _transient_kib(loaded: LoadedMachine) -> float:
    """Return the peak of memory that a decision allocates temporarily, of a few decisions; 0 without pods."""
    highest = 0
    tracemalloc.start()
    try:
        for _ in range(_N_TRACED):
            if not loaded.machine.has_work():
                break
            held = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            orders = loaded.handle(CycleDue())
            highest = max(highest, tracemalloc.get_traced_memory()[1] - held)
            _confirm(loaded, orders)
    finally:
        tracemalloc.stop()
    return highest / 1024


def _confirm(loaded: LoadedMachine, orders: list[Instruction]) -> None:
    for order in orders:
        if isinstance(order, Bind | WriteReservation):
            _echoed(loaded, order)

"""
The longest holds of the event loop in situations that concern all pods or nodes at once, in the whole daemon.

A hold counts by its CPU time; its wall time also has the time of other processes on the CPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import groupby
from typing import Final

import msgspec

from scheduler.daemon.loop.upkeep import disable_full_collections, measure_loop_lag
from tests.bench.held import Hold, Sampler, timed_callbacks
from tests.bench.hold_clusters import HoldCluster, HoldSize
from tests.bench.hold_situations import SITUATIONS, TIMEOUT_S, Running, Situation
from tests.support.waiting import until

#: The most CPU ms that any hold may take.
MOST_MS: Final = 10.0
_LAG_PERIOD_S: Final = 0.005


class HoldResult(msgspec.Struct, frozen=True):
    """
    The longest hold of one situation in ms of CPU, the part of it in the garbage collector (`gc_ms`), its task, and the
    number of holds above 10 ms.

    By wall time, in which another hold may be the longest: `longest_wall_ms` of a callback, `lag_ms` as the scheduler
    measures it, `sampled_ms` as another thread waits for the loop.
    """

    situation: str
    n_nodes: int
    n_running: int
    longest_ms: float
    gc_ms: float
    n_above_10_ms: int
    longest_wall_ms: float
    lag_ms: float
    sampled_ms: float
    what: str


def measure_holds(
    situations: Sequence[Situation], size: HoldSize, say: Callable[[str], None] = lambda _: None
) -> list[HoldResult]:
    """Return the longest hold of each situation. Raises RuntimeError if a situation does not come about."""
    results = []
    ordered = sorted(situations, key=SITUATIONS.index)
    for cluster, those in groupby(ordered, key=lambda situation: situation.cluster):
        say(f"holds: {size.n_nodes} nodes, {size.n_running} running pods, {cluster.name}")
        results += asyncio.run(_measured(cluster, list(those), size, say))
    return results


async def _measured(
    cluster: HoldCluster, situations: Sequence[Situation], size: HoldSize, say: Callable[[str], None]
) -> list[HoldResult]:
    task, results, lags_s = asyncio.current_task(), [], [0.0]
    assert task is not None

    def on_lag(lag_s: float) -> None:
        lags_s[0] = max(lags_s[0], lag_s)

    async with _started(cluster, size) as running:
        lag = asyncio.create_task(measure_loop_lag(on_lag, time.monotonic, _LAG_PERIOD_S), name="loop lag")
        with timed_callbacks() as noted, Sampler() as sampler:
            for situation in situations:
                say(f"holds: {situation.name}")
                await running.settled()
                noted.clear()
                sampler.reset()
                lags_s[0] = 0.0
                await situation.happens(running)
                # Without what this task does itself.
                held = [hold for hold in noted if hold.what != task.get_name()]
                results.append(_result(situation, size, held, lag_s=lags_s[0], sampled_s=sampler.longest_s))
        lag.cancel()
    return results


@contextlib.asynccontextmanager
async def _started(cluster: HoldCluster, size: HoldSize) -> AsyncIterator[Running]:
    """Run a scheduler whose caches are filled and whose waiting pods were tried."""
    disable_full_collections()
    running = Running(cluster, size)
    task = asyncio.create_task(running.scheduler.run(), name="scheduler")
    try:
        await until(lambda: _is_synced(running, task), timeout_s=TIMEOUT_S, what="filled caches")
        await running.settled()
        yield running
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        gc.unfreeze()


async def _is_synced(running: Running, task: asyncio.Task[int]) -> bool:
    if task.done():
        raise RuntimeError("the scheduler ended") from task.exception()
    return running.scheduler._caches.is_synced()


def _result(
    situation: Situation, size: HoldSize, noted: Sequence[Hold], *, lag_s: float, sampled_s: float
) -> HoldResult:
    longest = max(noted, key=lambda hold: hold.cpu_s, default=Hold(0.0, 0.0, 0.0, ""))
    return HoldResult(
        situation=situation.name,
        n_nodes=size.n_nodes,
        n_running=size.n_running,
        longest_ms=longest.cpu_s * 1000,
        gc_ms=longest.gc_s * 1000,
        n_above_10_ms=sum(hold.cpu_s * 1000 > MOST_MS for hold in noted),
        longest_wall_ms=max((hold.wall_s for hold in noted), default=0.0) * 1000,
        lag_ms=lag_s * 1000,
        sampled_ms=sampled_s * 1000,
        what=longest.what,
    )


def too_long(results: Iterable[HoldResult]) -> list[HoldResult]:
    """Return the situations with a hold of more CPU time than allowed."""
    return [result for result in results if result.longest_ms > MOST_MS]

"""
The longest holds of the event loop in situations that concern all pods or nodes at once, in the whole daemon.

A hold is one callback of the loop, and counts by its CPU time: its wall time also has that of other processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from asyncio import events
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec

from scheduler.daemon.loop.upkeep import disable_full_collections
from tests.bench.hold_clusters import HoldCluster, HoldSize
from tests.bench.hold_situations import SITUATIONS, TIMEOUT_S, Running, Situation
from tests.support.waiting import until

#: The most CPU ms that any hold may take.
MOST_MS: Final = 10.0
_NOTED_FROM_S: Final = 0.001


class HoldResult(msgspec.Struct, frozen=True):
    """
    The longest hold of one situation in ms of CPU, the part of it in the garbage collector (`gc_ms`), its task, and the
    number of holds above 10 ms.
    """

    situation: str
    n_nodes: int
    n_running: int
    longest_ms: float
    gc_ms: float
    n_above_10_ms: int
    what: str


class _Hold(NamedTuple):
    """CPU seconds of one callback, the part of them in the garbage collector, and its task."""

    cpu_s: float
    gc_s: float
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
    task, results = asyncio.current_task(), []
    assert task is not None
    async with _started(cluster, size) as running:
        with _timed_callbacks() as noted:
            for situation in situations:
                say(f"holds: {situation.name}")
                await running.settled()
                noted.clear()
                await situation.happens(running)
                # Without what this task does itself.
                held = [hold for hold in noted if hold.what != task.get_name()]
                results.append(_result(situation, size, held))
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


@contextlib.contextmanager
def _timed_callbacks() -> Iterator[list[_Hold]]:
    """
    Yield a list that gets the callbacks of 1 ms of CPU or more.

    Every callback is timed, at 1 µs each; asyncio's debug mode would slow all of them.
    """
    noted: list[_Hold] = []
    handle_class: Any = events.Handle  # asyncio's internals have no types
    original = handle_class._run
    collected_s, collection_began_s = 0.0, 0.0

    def note_collection(phase: str, _: object) -> None:
        nonlocal collected_s, collection_began_s
        if phase == "start":
            collection_began_s = time.thread_time()
        else:
            collected_s += time.thread_time() - collection_began_s

    def run(handle: Any) -> None:
        began_s, before_s = time.thread_time(), collected_s
        original(handle)
        cpu_s = time.thread_time() - began_s
        if cpu_s >= _NOTED_FROM_S:
            noted.append(_Hold(cpu_s, collected_s - before_s, _name_of(handle)))

    gc.callbacks.append(note_collection)
    handle_class._run = run  # every callback goes through here
    try:
        yield noted
    finally:
        handle_class._run = original
        gc.callbacks.remove(note_collection)


def _name_of(handle: Any) -> str:
    callback = handle._callback
    owner = getattr(callback, "__self__", None)
    # Not repr: aiohttp's responses cache their headers on first access, even if there are none yet.
    name = getattr(callback, "__qualname__", type(callback).__name__)
    return owner.get_name() if isinstance(owner, asyncio.Task) else str(name)


def _result(situation: Situation, size: HoldSize, noted: Sequence[_Hold]) -> HoldResult:
    longest = max(noted, key=lambda hold: hold.cpu_s, default=_Hold(0.0, 0.0, ""))
    return HoldResult(
        situation=situation.name,
        n_nodes=size.n_nodes,
        n_running=size.n_running,
        longest_ms=longest.cpu_s * 1000,
        gc_ms=longest.gc_s * 1000,
        n_above_10_ms=sum(hold.cpu_s * 1000 > MOST_MS for hold in noted),
        what=longest.what,
    )


def too_long(results: Iterable[HoldResult]) -> list[HoldResult]:
    """Return the situations with a hold of more CPU time than allowed."""
    return [result for result in results if result.longest_ms > MOST_MS]

"""The order in which evictions begin, and how many run at a time."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.daemon.writes.eviction_turns import EvictionTurns

pytestmark = pytest.mark.asyncio


class _Evictions:
    """Evictions that run until they are told to end."""

    def __init__(self, limit: int) -> None:
        self._turns = EvictionTurns(limit)
        self._ends: dict[str, asyncio.Event] = {}
        self.running: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, name: str, *, priority: int = 0, number: int = 0) -> None:
        self._ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._run(name, priority, number))
        await _idle()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await _idle()

    async def _run(self, name: str, priority: int, number: int) -> None:
        async with self._turns.turn(priority, number):
            self.running.append(name)
            await self._ends[name].wait()
            self.running.remove(name)


async def _idle() -> None:
    """Let all tasks run as far as they can: none waits for anything but another one."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_most_important_pod_goes_first_then_the_one_decided_first() -> None:
    evictions = _Evictions(limit=1)
    await evictions.ask("first")
    await evictions.ask("decided late", number=3)
    await evictions.ask("decided early", number=2)
    await evictions.ask("important", priority=1, number=4)
    began = []
    for name in ("first", "important", "decided early", "decided late"):
        began.append(list(evictions.running))
        await evictions.end(name)
    assert began == [["first"], ["important"], ["decided early"], ["decided late"]]


async def test_victims_of_one_pod_go_in_the_order_of_their_arrival() -> None:
    evictions = _Evictions(limit=1)
    for name in ("a", "b", "c"):
        await evictions.ask(name, number=1)
    await evictions.end("a")
    assert evictions.running == ["b"]


async def test_no_more_run_than_the_limit_and_a_freed_place_is_taken() -> None:
    evictions = _Evictions(limit=2)
    for name in ("a", "b", "c", "d"):
        await evictions.ask(name)
    assert evictions.running == ["a", "b"]
    await evictions.end("a")
    await evictions.end("b")
    assert evictions.running == ["c", "d"]
    await evictions.end("c")
    await evictions.end("d")
    for name in ("e", "f", "g"):
        await evictions.ask(name)
    assert evictions.running == ["e", "f"]


async def test_a_cancelled_eviction_gives_its_turn_to_the_next() -> None:
    evictions = _Evictions(limit=1)
    for name in ("a", "waiting", "called", "last"):
        await evictions.ask(name)
    evictions.tasks["waiting"].cancel()
    await _idle()
    await evictions.end("a")
    assert evictions.running == ["called"]
    evictions.tasks["called"].cancel()
    await _idle()
    assert evictions.running == ["called", "last"]


async def test_an_eviction_that_is_cancelled_as_it_is_called_passes_the_call_on() -> None:
    turns = EvictionTurns(1)
    began: list[str] = []

    async def evict(name: str) -> None:
        async with turns.turn(0, 0):
            began.append(name)

    async with turns.turn(0, 0):
        called, last = (asyncio.create_task(evict(name)) for name in ("called", "last"))
        await _idle()
    # The call is there, and the task has not run since.
    called.cancel()
    await last
    assert began == ["last"]

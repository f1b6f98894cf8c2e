"""The virtual clock of embedded runs: it leaps over waits, and busy work cannot stop it."""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos.virtual import run_virtually


def test_the_clock_leaps_over_waits() -> None:
    async def hours() -> float:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await asyncio.sleep(7200.0)
        return loop.time() - began_s

    assert run_virtually(hours()) == pytest.approx(7200.0)


def test_work_takes_no_time() -> None:
    async def work() -> float:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for _ in range(1000):
            await asyncio.sleep(0)
        return loop.time() - began_s

    assert run_virtually(work()) == 0.0


def test_a_task_that_never_waits_reaches_its_timeouts() -> None:
    async def spin() -> None:
        async with asyncio.timeout(75.0):
            while True:  # noqa: ASYNC110 - it is this that must end
                await asyncio.sleep(0)

    with pytest.raises(TimeoutError):
        run_virtually(spin())

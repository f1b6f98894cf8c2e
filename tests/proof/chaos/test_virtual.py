"""Busy work cannot stop the virtual clock of embedded runs."""

from __future__ import annotations

import asyncio

import pytest

from tests.proof.chaos.virtual import run_virtually


def test_a_task_that_never_waits_reaches_its_timeouts() -> None:
    async def spin() -> None:
        async with asyncio.timeout(75.0):
            while True:  # noqa: ASYNC110 - it is this that must end
                await asyncio.sleep(0)

    with pytest.raises(TimeoutError):
        run_virtually(spin())

"""Waiting for a condition, never for a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

#: Only what never comes true takes so long, on whatever machine.
TIMEOUT_S = 60.0
_PERIOD_S = 0.02


async def until(
    ask: Callable[[], Awaitable[T]],
    holds: Callable[[T], object] = bool,
    *,
    timeout_s: float = TIMEOUT_S,
    what: str = "",
) -> T:
    """The first answer that holds. Fails with the last answer where there is none in time."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    while not holds(answer := await ask()):
        assert loop.time() < deadline_s, (
            f"{what or 'it'} did not come true in {timeout_s:g} s; last: {answer!r}"
        )
        await asyncio.sleep(_PERIOD_S)
    return answer

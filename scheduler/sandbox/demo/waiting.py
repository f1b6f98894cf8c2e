"""Waiting until the cluster or a process reaches a state, and the failure of a story that does not."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Final

from scheduler.errors import SchedulerError

#: The longest wait for anything that takes a second on an idle machine.
PATIENCE_S: Final = 45.0
#: The time between two looks, so that the demo takes no CPU time from the scheduler.
_LOOK_S: Final = 0.03


class StoryFailed(SchedulerError):  # noqa: N818 - an outcome, not an error
    """A story did not end as expected. The demo catches it, shows it and ends with 1."""


async def until(
    is_so: Callable[[], bool | Awaitable[bool]],
    failing: Callable[[], str],
    *,
    within_s: float = PATIENCE_S,
) -> None:
    """
    Wait until `is_so`.

    Raises StoryFailed with the text of `failing`, if that takes longer than `within_s`.
    """
    ends_s = time.monotonic() + within_s
    while True:
        found = is_so()
        if await found if inspect.isawaitable(found) else found:
            return
        if time.monotonic() > ends_s:
            raise StoryFailed(f"{failing()} after {within_s:.0f} s")
        await asyncio.sleep(_LOOK_S)

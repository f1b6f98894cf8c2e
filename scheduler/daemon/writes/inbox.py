"""The queue of stimuli for the machine. Informers wait while it is full; results of instructions do not."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final

from scheduler.engine.model.stimuli import Stimulus

#: Stimuli in the queue before informers have to wait; a list page has 500.
_HIGH_WATER: Final = 5_000


class Inbox:
    """A FIFO queue of stimuli with one reader."""

    def __init__(self, high_water: int = _HIGH_WATER) -> None:
        self._high_water = high_water
        self._waiting: deque[Stimulus] = deque()
        self._arrived = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    def __len__(self) -> int:
        return len(self._waiting)

    async def put(self, stimuli: Iterable[Stimulus]) -> None:
        """Wait for room, then append all stimuli. A cancelled call appends all of them or none."""
        await self._has_room.wait()
        self._waiting.extend(stimuli)
        if len(self._waiting) >= self._high_water:
            self._has_room.clear()
        if self._waiting:
            self._arrived.set()

    def put_now(self, stimulus: Stimulus) -> None:
        """Append the result of an instruction, even if the queue is full: instructions in flight are bounded."""
        self._waiting.append(stimulus)
        self._arrived.set()

    def take(self, limit: int) -> list[Stimulus]:
        """Remove and return up to `limit` stimuli, oldest first."""
        taken = [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]
        if len(self._waiting) < self._high_water:
            self._has_room.set()
        if not self._waiting:
            self._arrived.clear()
        return taken

    def nudge(self) -> None:
        """Wake the reader without a stimulus."""
        self._arrived.set()

    async def wait(self, timeout_s: float | None) -> None:
        """Return when a stimulus is waiting, after a nudge, or after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()
        except TimeoutError:
            return
        if not self._waiting:
            self._arrived.clear()

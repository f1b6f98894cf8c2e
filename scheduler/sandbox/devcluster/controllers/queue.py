"""Work that is due at some time, done in slices of an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Callable
from itertools import count
from typing import Final, Generic, TypeVar

T = TypeVar("T")
#: Longest time to hold the event loop.
_SLICE_S: Final = 0.005


class WorkQueue(Generic[T]):
    """Items in the order in which they are due, by the monotonic clock `now_s`."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._heap: list[tuple[float, int, T]] = []
        self._order = count()
        self._woken = asyncio.Event()

    def put(self, item: T, due_s: float) -> None:
        """Add an item."""
        heapq.heappush(self._heap, (due_s, next(self._order), item))
        self._woken.set()

    async def run(self, process: Callable[[T, float], None]) -> None:
        """Hand every item, with its time, to `process` once it is due, until cancelled."""
        while True:
            self._woken.clear()
            began_s = self._now_s()
            while self._heap and self._heap[0][0] <= self._now_s():
                due_s, _, item = heapq.heappop(self._heap)
                process(item, due_s)
                if self._now_s() - began_s > _SLICE_S:
                    await asyncio.sleep(0)
                    began_s = self._now_s()
            wait_s = max(self._heap[0][0] - self._now_s(), 0.0) if self._heap else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()

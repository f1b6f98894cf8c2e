"""A queue by key in which the newest value wins. Of one key one value is written at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

_V = TypeVar("_V")


class NewestQueue(Generic[_V]):
    """
    Values by key, of which `write` gets the newest, those that wait longest first.

    `n_writers` are written at a time, `n_most` while more than `many` wait.
    """

    def __init__(
        self, write: Callable[[_V], Awaitable[None]], *, n_writers: int = 1, n_most: int = 1, many: int = 0
    ) -> None:
        self._write = write
        self._least_waiting = [0] * n_writers + [many] * (n_most - n_writers)
        self._waiting: dict[Hashable, _V] = {}
        #: By key: set once it is written.
        self._in_flight: dict[Hashable, asyncio.Event] = {}
        self._arrived = asyncio.Event()

    def put(self, key: Hashable, value: _V) -> None:
        """Have the value written in place of what waits of its key."""
        self._waiting[key] = value
        self._arrived.set()

    def waiting(self, key: Hashable) -> _V | None:
        """Return what waits of the key."""
        return self._waiting.get(key)

    async def hasten(self, key: Hashable) -> None:
        """Write what waits before all others, and return once it is written or given up."""
        await self._idle(key)
        if key in self._waiting:
            await self._write_alone(key)

    async def cancel(self, key: Hashable) -> None:
        """Drop what waits of the key, and return once nothing of it is in flight."""
        self._waiting.pop(key, None)
        await self._idle(key)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for least in self._least_waiting:
                group.create_task(self._work(least))

    async def _work(self, least: int) -> None:
        while True:
            free = (key for key in self._waiting if key not in self._in_flight)
            key = next(free, None) if len(self._waiting) > least else None
            if key is None:
                self._arrived.clear()
                await self._arrived.wait()
            else:
                await self._write_alone(key)

    async def _write_alone(self, key: Hashable) -> None:
        finished = self._in_flight[key] = asyncio.Event()
        try:
            await self._write(self._waiting.pop(key))
        finally:
            del self._in_flight[key]
            finished.set()
            self._arrived.set()

    async def _idle(self, key: Hashable) -> None:
        while (in_flight := self._in_flight.get(key)) is not None:
            await in_flight.wait()

"""Waits for conditions instead of times."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from scheduler.sandbox.devcluster.storage.store import ObjectStore

T = TypeVar("T")

#: Reached only by conditions that never hold, on any machine.
TIMEOUT_S = 60.0
_PERIOD_S = 0.02
#: Pauses grow to it: an answer of a daemon's metrics takes longer to read than the first pause.
_LONGEST_PERIOD_S = 0.1


async def until(
    ask: Callable[[], Awaitable[T]],
    holds: Callable[[T], object] = bool,
    *,
    timeout_s: float = TIMEOUT_S,
    period_s: float = _PERIOD_S,
    what: str = "",
) -> T:
    """Return the first value that holds. Fails with the last value after the timeout."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    while not holds(answer := await ask()):
        assert loop.time() < deadline_s, (
            f"{what or 'it'} did not come true in {timeout_s:g} s; last: {answer!r}"
        )
        await asyncio.sleep(period_s)
        period_s = max(period_s, min(1.25 * period_s, _LONGEST_PERIOD_S))
    return answer


class Turns:
    """Counts in `n` how often other tasks may run inside the context."""

    def __init__(self) -> None:
        self.n = 0

    async def __aenter__(self) -> Turns:
        self._counting = asyncio.create_task(self._count())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._counting.cancel()

    async def _count(self) -> None:
        while True:
            self.n += 1
            await asyncio.sleep(0)


async def until_written(store: ObjectStore, holds: Callable[[], object]) -> None:
    """Wait for a write of an embedded cluster after which `holds()` is true. Raises: TimeoutError."""
    written = asyncio.Event()

    def on_write(*_: object) -> None:
        written.set()

    store.history.listeners.append(on_write)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while not holds():
                written.clear()
                await written.wait()
    finally:
        store.history.listeners.remove(on_write)

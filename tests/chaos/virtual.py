"""
An event loop whose clock is nobody's: when nothing is left to do it leaps to the next timer.

Client, proxy and server are all in the loop, and a loopback socket delivers at once, so nothing is ever waited for:
minutes of backoffs and leases pass in a second, and one seed gives one run, as far as sockets allow.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

#: Real seconds after which a silent socket has nothing to say: the kernel delivers on loopback within microseconds.
_REAL_WAIT_S = 0.002
_START_S = 10_000.0


class _Selector(selectors.DefaultSelector):
    """Never waits: where nothing is ready, `leap` is told how long the loop would have slept."""

    leap: Callable[[float], None]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if (ready := super().select(0)) or timeout == 0:
            return list(ready)
        if (ready := super().select(_REAL_WAIT_S)) or timeout is None:
            return list(ready)
        self.leap(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its `time` is virtual, and with it every sleep and timeout."""

    def __init__(self) -> None:
        self._virtual_s = _START_S
        selector = _Selector()
        selector.leap = self._leap
        super().__init__(selector)

    def time(self) -> float:
        return self._virtual_s

    def _leap(self, seconds: float) -> None:
        self._virtual_s += max(seconds, 1e-9)


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """What `main` returns, on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)

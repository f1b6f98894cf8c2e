"""Drops what a state keeps and nothing uses, between other work: once a minute, a few milliseconds at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

SWEEP_PERIOD_S: Final = 60.0
#: Between two pieces of a sweep.
SWEEP_PAUSE_S: Final = 0.05


class Sweeper:
    """
    Sweeps a state whenever it is called, if that is due.

    `sweeping` returns a sweep that has not begun, `ClusterState.sweeping`. `next_s`: when the next piece is due.
    """

    def __init__(self, sweeping: Callable[[], Iterator[None]], *, now_s: Callable[[], float]) -> None:
        """`now_s` is a monotonic clock."""
        self._sweeping, self._now_s = sweeping, now_s
        #: The rest of a sweep that has begun.
        self._rest: Iterator[None] | None = None
        self.next_s = now_s() + SWEEP_PERIOD_S

    def sweep(self) -> None:
        """Do the next piece of a sweep if it is due."""
        now_s = self._now_s()
        if now_s < self.next_s:
            return
        if self._rest is None:
            self._rest = self._sweeping()
        for _ in self._rest:
            self.next_s = now_s + SWEEP_PAUSE_S
            return
        self._rest = None
        self.next_s = now_s + SWEEP_PERIOD_S

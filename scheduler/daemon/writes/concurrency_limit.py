"""Limits the binds in flight by additive increase and multiplicative decrease, as TCP congestion control does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Hides the server's latency and keeps its queues short.
MAX_LIMIT: Final = 64
#: A server that cannot handle four binds at a time is down.
MIN_LIMIT: Final = 4
#: Kubernetes' SLO has 99 % of writes within a second; a slower response means a queue at the server.
SLOW_S: Final = 1.0
#: Shortest time between two decreases: all binds in flight meet the same overload.
_DECREASE_PERIOD_S: Final = 1.0


class BindLimit:
    """The limit on binds in flight: starts at `MAX_LIMIT` and never falls below `MIN_LIMIT`."""

    def __init__(self, *, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._limit = float(MAX_LIMIT)
        self._decreased_at_s = -_DECREASE_PERIOD_S

    def __call__(self) -> int:
        """Return the current limit."""
        return int(self._limit)

    def on_answer(self, seconds: float) -> None:
        """Adapt the limit to a bind that was answered after `seconds`."""
        if seconds > SLOW_S:
            self.on_overload()
        else:
            self._limit = min(float(MAX_LIMIT), self._limit + 1.0 / self._limit)

    def on_overload(self) -> None:
        """Halve the limit: the server sent 429 or did not answer."""
        now_s = self._now_s()
        if now_s - self._decreased_at_s >= _DECREASE_PERIOD_S:
            self._decreased_at_s = now_s
            self._limit = max(float(MIN_LIMIT), self._limit / 2.0)

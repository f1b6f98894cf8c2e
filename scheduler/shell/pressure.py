"""
How many binds may be under way: one more for every round that goes well, half as many when the server is pressed.

Additive increase, multiplicative decrease, as TCP keeps a shared line full without a word between its users.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Enough to hide the server's latency, few enough to keep its queues short.
CEILING: Final = 64
#: So many are never too many: a server that cannot bear four is down.
FLOOR: Final = 4
#: Kubernetes promises 99 % of its writes within a second; a slower answer means a queue.
SLOW_S: Final = 1.0
#: Bad news of one moment count once: binds under way all meet the same pressure.
_ONCE_PER_S: Final = 1.0


class BindLimit:
    """
    The limit on binds in flight, between `FLOOR` and `CEILING`; it starts at the latter.

    Args:
        now_s: a monotonic clock.
    """

    def __init__(self, *, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._limit = float(CEILING)
        self._shrunk_at_s = -_ONCE_PER_S

    def __call__(self) -> int:
        """The limit now."""
        return int(self._limit)

    def on_answer(self, seconds: float) -> None:
        """A bind was answered after so long."""
        if seconds > SLOW_S:
            self.on_pressure()
        else:
            self._limit = min(float(CEILING), self._limit + 1.0 / self._limit)

    def on_pressure(self) -> None:
        """The server asked for less (429), or did not answer."""
        now_s = self._now_s()
        if now_s - self._shrunk_at_s >= _ONCE_PER_S:
            self._shrunk_at_s = now_s
            self._limit = max(float(FLOOR), self._limit / 2.0)

"""A token bucket that limits the rate of requests, and of what others make the process do. No clock."""

from __future__ import annotations


class TokenBucket:
    """Allows `burst` requests at once, `qps` a second in the long run, in order, as client-go's util/flowcontrol."""

    def __init__(self, *, qps: float, burst: int, now_s: float) -> None:
        self._qps = qps
        self._burst = max(burst, 1)
        #: Negative while callers wait: each has taken its token in advance.
        self._tokens = float(self._burst)
        self._filled_at_s = now_s

    def reserve(self, now_s: float) -> float:
        """Take one token and return the seconds to wait before using it."""
        self._fill(now_s)
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._qps)

    def take(self, now_s: float) -> bool:
        """Take one token if there is one; return whether there was."""
        self._fill(now_s)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _fill(self, now_s: float) -> None:
        elapsed_s = max(0.0, now_s - self._filled_at_s)
        self._tokens = min(self._tokens + elapsed_s * self._qps, float(self._burst))
        self._filled_at_s = now_s

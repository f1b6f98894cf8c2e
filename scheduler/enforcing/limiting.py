"""How fast and how far enforcement may go."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 60.0
#: So many pods may always go: a share of a small cluster would be less than one pod.
ALWAYS_ALLOWED: Final = 3

_UNLIMITED: Final = 1 << 62

#: Pause after a first refusal by a disruption budget, doubled with each further one up to the cap.
BACKOFF_S: Final = 5.0
BACKOFF_CAP_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Settings of an enforcer. Numbers of evictions are per 60 s."""

    evictions: int = 30
    evictions_per_namespace: int = 10
    evictions_per_node: int = 10
    #: Of the pods that declare enforced rules; where more would go, nobody does. 1 and more: no limit.
    max_share: float = 0.1
    #: How long affinity may lack its match, where the pod does not say.
    grace_s: float = 60.0
    #: How long anti-affinity has to be broken before anything follows: what watches show is not one moment's state.
    settle_s: float = 1.0

    def allowed_at_once(self, n_enforced_pods: int) -> int:
        """How many pods may be about to go. A share of 1 is no limit: those that go need not be those that declare."""
        if self.max_share >= 1.0:
            return _UNLIMITED
        return max(ALWAYS_ALLOWED, int(self.max_share * n_enforced_pods))


class Evictions:
    """The evictions of the last 60 s."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._past: deque[tuple[float, str, str]] = deque()
        self._by_namespace: Counter[str] = Counter()
        self._by_node: Counter[str] = Counter()

    def note(self, namespace: str, node_name: str, now_s: float) -> None:
        """One more, now."""
        self._past.append((now_s, namespace, node_name))
        self._by_namespace[namespace] += 1
        self._by_node[node_name] += 1

    def allow(self, namespace: str, node_name: str, now_s: float) -> bool:
        """Whether one more is within all limits."""
        self._forget(now_s)
        return (
            len(self._past) < self._limits.evictions
            and self._by_namespace[namespace] < self._limits.evictions_per_namespace
            and self._by_node[node_name] < self._limits.evictions_per_node
        )

    def next_free_s(self) -> float | None:
        """When the oldest of them counts no more; None where there is none."""
        return self._past[0][0] + WINDOW_S if self._past else None

    def _forget(self, now_s: float) -> None:
        while self._past and self._past[0][0] + WINDOW_S <= now_s:
            _, namespace, node_name = self._past.popleft()
            self._by_namespace -= Counter((namespace,))
            self._by_node -= Counter((node_name,))


@dataclass(slots=True)
class Backoff:
    """A pod whose eviction was refused: how often in a row, and when it is tried again."""

    tries: int = 0
    at_s: float = 0.0

    def refused(self, now_s: float, retry_after_s: float | None) -> None:
        """Once more; the server's own wish counts where it is longer."""
        pause_s = min(BACKOFF_S * 2.0 ** min(self.tries, 16), BACKOFF_CAP_S)
        self.tries += 1
        self.at_s = now_s + max(pause_s, min(retry_after_s or 0.0, BACKOFF_CAP_S))

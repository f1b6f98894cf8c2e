"""Limits the number and the rate of evictions."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from scheduler.tools.enforcer.eviction_plan import PlannedEviction
from scheduler.tools.enforcer.instructions import EvictionShare, ReportTooManyEvictions
from scheduler.tools.enforcer.limits import EvictionLimits

WINDOW_S: Final = 60.0
#: Pause after the first refusal by a disruption budget. Each further refusal doubles it, up to the cap.
BACKOFF_S: Final = 5.0
BACKOFF_CAP_S: Final = 300.0


class RecentEvictions:
    """The evictions of the last 60 s, limited in total, per node, and per namespace: of the pod and of the rule."""

    def __init__(self, limits: EvictionLimits) -> None:
        self._limits = limits
        self._past: deque[tuple[float, PlannedEviction]] = deque()

    def note(self, eviction: PlannedEviction, now_s: float) -> None:
        """Count the eviction."""
        self._past.append((now_s, eviction))

    def allow(self, eviction: PlannedEviction, now_s: float) -> bool:
        """Return whether the eviction is within all limits. O(evictions of the last 60 s)."""
        while self.next_free_s() <= now_s:
            self._past.popleft()
        past, pod, limits = [each for _, each in self._past], eviction.pod, self._limits
        declared_in = eviction.violation.pod.namespace
        n_declared = sum(each.violation.pod.namespace == declared_in for each in past)
        return (
            len(past) < limits.evictions
            and sum(each.pod.namespace == pod.namespace for each in past) < limits.evictions_per_namespace
            and n_declared < limits.evictions_per_namespace
            and sum(each.pod.node_name == pod.node_name for each in past) < limits.evictions_per_node
        )

    def next_free_s(self) -> float:
        """Return when the oldest eviction stops counting; infinite if there is none."""
        return self._past[0][0] + WINDOW_S if self._past else inf


@dataclass(slots=True)
class EvictionBackoff:
    """The refused evictions of one pod in a row, and when to try again."""

    tries: int = 0
    at_s: float = 0.0

    def refused(self, now_s: float, retry_after_s: float | None) -> None:
        """Count a refusal. A longer Retry-After of the server replaces the pause."""
        pause_s = min(BACKOFF_S * 2.0 ** min(self.tries, 16), BACKOFF_CAP_S)
        self.tries += 1
        self.at_s = now_s + max(pause_s, min(retry_after_s or 0.0, BACKOFF_CAP_S))


def too_many(
    evictions: Iterable[PlannedEviction],
    in_grace: Mapping[str, int],
    n_enforced: Mapping[str, int],
    limits: EvictionLimits,
) -> dict[EvictionShare, ReportTooManyEvictions]:
    """
    Return the shares that the plan exceeds.

    `in_grace`: pods whose rule is broken and that are not due yet, `n_enforced`: pods with enforced rules, by
    namespace. O(evictions).
    """
    counts = Counter(share for planned in evictions for share in shares_of(planned))
    for namespace, n in in_grace.items():
        share = EvictionShare(namespace, by_others=False)
        # Pods in their grace period make a plan too large, but are no plan.
        if share in counts:
            counts[share] += n
    found = {}
    for share, n_would_go in counts.items():
        n = n_enforced.get(share.namespace, 0)
        n_allowed = limits.allowed_at_once(n)
        if n_would_go > n_allowed:
            found[share] = ReportTooManyEvictions(share, n_would_go, n, n_allowed)
    return found


def shares_of(planned: PlannedEviction) -> list[EvictionShare]:
    """Return the shares that the eviction counts for: of the rule's namespace, and of the pod's if it is another."""
    own = EvictionShare(planned.violation.pod.namespace, by_others=False)
    if planned.pod.namespace == own.namespace:
        return [own]
    return [own, EvictionShare(planned.pod.namespace, by_others=True)]

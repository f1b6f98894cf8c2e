"""
The node whose eviction does the least harm.

Source: framework/preemption/preemption.go, pickOneNodeForPreemption (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.plugins.default_preemption.candidates import Candidate, importance

#: Makes every priority positive, so that a node with more pods of a negative priority is not better.
_LOWEST_PRIORITY = 1 << 31


def best_of(candidates: Sequence[Candidate]) -> Candidate:
    """
    Return the best of at least one candidate; of several that are equally good, the first.

    In this order: fewest broken budgets, lowest priority of the first victim, smallest sum of priorities, fewest
    victims, and the victims of the highest priority started latest.
    """
    best = min(map(harm, candidates))
    equal = [one for one in candidates if harm(one) == best]
    return max(equal, key=_earliest_start)


def harm(candidate: Candidate) -> tuple[int, int, int, int]:
    """Return a key that sorts candidates by harm, except for the times at which victims started."""
    priorities = [pod.priority for pod in candidate.victims]
    total = sum(priority + _LOWEST_PRIORITY for priority in priorities)
    return candidate.n_violations, priorities[0], total, len(priorities)


def _earliest_start(candidate: Candidate) -> str:
    return min(importance(pod) for pod in candidate.victims)[1]

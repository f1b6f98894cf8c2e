"""
The share of its pods that a namespace may lose at once, for its own rules and for other namespaces' rules.

A plan that evicts many pods is more often a mistake, such as a wrong label on nodes, than a wish. It is judged by
namespace, since no other namespace may decide whether a namespace's rules are enforced: neither by rules that cannot
hold, which would stop the enforcement of all, nor by many trivial rules, which would raise the share of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from scheduler.tools.enforcer.eviction_limits import EvictionLimits
from scheduler.tools.enforcer.eviction_plan import PlannedEviction
from scheduler.tools.enforcer.instructions import ReportTooManyEvictions, Share


def too_many(
    evictions: Iterable[PlannedEviction],
    in_grace: Mapping[str, int],
    n_enforced: Mapping[str, int],
    limits: EvictionLimits,
) -> dict[Share, ReportTooManyEvictions]:
    """
    Return the shares that the plan exceeds.

    `in_grace`: pods whose rule is broken and that are not due yet, `n_enforced`: pods with enforced rules, by
    namespace. O(evictions).
    """
    counts = Counter(share for planned in evictions for share in shares_of(planned))
    for namespace, n in in_grace.items():
        share = Share(namespace, by_others=False)
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


def shares_of(planned: PlannedEviction) -> list[Share]:
    """Return the shares that the eviction counts for: of the rule's namespace, and of the pod's if it is another."""
    own = Share(planned.declaring_namespace, by_others=False)
    if planned.pod.namespace == own.namespace:
        return [own]
    return [own, Share(planned.pod.namespace, by_others=True)]

"""The name of the enforcer, and the limits of what it may do: the defaults of its flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Of its Lease and of its events.
NAME: Final = "affinity-scheduler-enforcer"
#: This many evictions are always allowed, since a share of a small cluster is less than one pod.
ALWAYS_ALLOWED: Final = 3

_UNLIMITED: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class EvictionLimits:
    """The limits of one enforcer. Numbers of evictions are per 60 s."""

    evictions: int = 30
    evictions_per_namespace: int = 10
    evictions_per_node: int = 10
    #: If more than this share of a namespace's pods with enforced rules would be evicted, none is. 1 or more: no limit.
    max_share: float = 0.1
    #: How long affinity may lack a match, unless the pod has its own grace period.
    grace_s: float = 60.0
    #: How long anti-affinity has to be broken before the enforcer acts, since watches arrive at different times.
    settle_s: float = 1.0

    def allowed_at_once(self, n_enforced_pods: int) -> int:
        """Return how many pods may be due for eviction. A share of 1 is no limit: pods without rules may be due too."""
        if self.max_share >= 1.0:
            return _UNLIMITED
        return max(ALWAYS_ALLOWED, int(self.max_share * n_enforced_pods))


@dataclass(frozen=True, slots=True)
class RebalanceLimits:
    """
    When pods move. `min_gain`: in points of the scheduler's weighted scores, as `explain` shows them. `for_groups`: how
    many may move so that one waiting group fits.
    """

    min_gain: int = 100
    hold_s: float = 30.0
    pause_s: float = 60.0
    cool_down_s: float = 600.0
    memory_s: float = 86_400.0
    for_groups: int = 0

"""The enforcer's Prometheus series: broken rules, waiting evictions by reason, evictions."""

from __future__ import annotations

from collections import Counter
from typing import Final

from scheduler.daemon.metrics.process import ControllerMetrics
from scheduler.daemon.metrics.series import Family
from scheduler.tools.enforcer.machine import Enforcer

BROKEN_RULES: Final = Family(
    "affinity_scheduler_broken_rules",
    "Rules of running pods that do not hold and only had to hold at scheduling; they cause no eviction.",
    ("rule",),
)
ENFORCED_BROKEN: Final = Family(
    "affinity_scheduler_enforced_rules_broken",
    "Enforced rules of running pods that do not hold, including those within their grace period.",
    ("rule",),
)
ENFORCED_PODS: Final = Family(
    "affinity_scheduler_enforced_pods", "Running pods that declare at least one enforced rule."
)
WAITING: Final = Family(
    "affinity_scheduler_enforcement_waiting",
    "Evictions that wait: for the end of a grace period (grace), for another eviction to end (turn), for the limits on "
    "evictions (limit), for a disruption budget (budget), because too many pods would be evicted (share); and broken "
    "rules that no eviction would repair (beyond help).",
    ("reason",),
)
VIOLATIONS: Final = Family(
    "affinity_scheduler_violations_total",
    "Broken rules found, each once for each pod; enforced or not.",
    ("rule", "enforced"),
)
EVICTIONS: Final = Family(
    "affinity_scheduler_enforcement_evictions_total",
    "Evictions requested, by result: evicted, gone (the pod did not exist), blocked (by a disruption budget or "
    "throttling, retried later) or failed.",
    ("rule", "result"),
)
REFUSALS: Final = Family(
    "affinity_scheduler_enforcement_refusals_total",
    "Number of times that enforcement stopped because more than the allowed share of pods would be evicted.",
)
MOVES: Final = Family(
    "affinity_scheduler_rebalancing_evictions_total",
    "Evictions of pods that would be placed clearly better, by result as above; 0 without --rebalance.",
    ("result",),
)
COST_WRITES: Final = Family(
    "affinity_scheduler_deletion_cost_writes_total",
    "Writes of controller.kubernetes.io/pod-deletion-cost, by result: written or failed (retried later); 0 without "
    "--deletion-costs=write.",
    ("result",),
)
REASONS: Final = ("grace", "turn", "limit", "budget", "share", "beyond help")
_SIDES: Final = ("affinity", "anti-affinity")


class EnforcementMetrics(ControllerMetrics):
    """The series of one enforcer."""

    def __init__(self, *, version: str) -> None:
        super().__init__(version=version)
        self.violations = self._counter(VIOLATIONS)
        self.evictions = self._counter(EVICTIONS)
        self.refusals = self._counter(REFUSALS)
        self.moves = self._counter(MOVES)
        self.cost_writes = self._counter(COST_WRITES)

    def register_enforcer(self, enforcer: Enforcer) -> None:
        """Read the result of the enforcer's last check at every scrape. Call once."""

        def broken(*, enforced: bool) -> dict[str, int]:
            found = Counter(
                each.side for each in enforcer.status.violations if each.rule.enforced == enforced
            )
            return {side: found[side] for side in _SIDES}

        self._callback(BROKEN_RULES, lambda: broken(enforced=False))
        self._callback(ENFORCED_BROKEN, lambda: broken(enforced=True))
        self._callback(WAITING, lambda: {reason: enforcer.status.waiting[reason] for reason in REASONS})
        self._callback(ENFORCED_PODS, lambda: sum(enforcer.status.n_enforced.values()))

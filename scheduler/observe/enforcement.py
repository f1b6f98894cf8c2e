"""The enforcer's Prometheus series: what is broken, what waits and why, who was evicted."""

from __future__ import annotations

from typing import Final

from scheduler.enforcing.instructions import EvictionResult, ViolationReport
from scheduler.enforcing.machine import Enforcer
from scheduler.observe.process import InformedMetrics
from scheduler.observe.series import Family

BROKEN_RULES: Final = Family(
    "affinity_scheduler_broken_rules",
    "Required rules of running pods that do not hold where they only had to hold at scheduling; nobody is evicted.",
    ("rule",),
)
ENFORCED_BROKEN: Final = Family(
    "affinity_scheduler_enforced_rules_broken",
    "Enforced rules of running pods that do not hold, those within their grace period included.",
    ("rule",),
)
ENFORCED_PODS: Final = Family(
    "affinity_scheduler_enforced_pods", "Running pods that declare at least one enforced rule."
)
WAITING: Final = Family(
    "affinity_scheduler_enforcement_waiting",
    "Pods that would have to go and stay for now: within their grace period, until another eviction has ended (turn), "
    "because of the limits on evictions (limit), of a disruption budget (budget), because too many would go at once "
    "(share); and broken rules that no eviction would mend (beyond help).",
    ("reason",),
)
VIOLATIONS: Final = Family(
    "affinity_scheduler_violations_total",
    "Broken rules found, each once for each pod; enforced or not.",
    ("rule", "enforced"),
)
EVICTIONS: Final = Family(
    "affinity_scheduler_enforcement_evictions_total",
    "Evictions asked for: evicted, gone (there was no such pod any more), blocked (refused by a disruption budget or "
    "throttled, tried again later) or failed.",
    ("rule", "result"),
)
REFUSALS: Final = Family(
    "affinity_scheduler_enforcement_refusals_total",
    "Times that enforcement stopped because more than the allowed share of pods would have gone.",
)
REASONS: Final = ("grace", "turn", "limit", "budget", "share", "beyond help")
_SIDES: Final = ("affinity", "anti-affinity")


class EnforcementMetrics(InformedMetrics):
    """The series of one enforcer."""

    def __init__(self, *, version: str) -> None:
        super().__init__(version=version)
        self._violations = self._counts(VIOLATIONS)
        self._evictions = self._counts(EVICTIONS)
        self._refusals = self._counts(REFUSALS)

    def watch(self, enforcer: Enforcer) -> None:
        """How the enforcer's rules stood at its last look is part of every scrape from now on. Call once."""

        def broken(*, enforced: bool) -> dict[str, int]:
            counts = enforcer.status.enforced if enforced else enforcer.status.not_enforced
            return {side: counts[side] for side in _SIDES}

        self._reading(BROKEN_RULES, lambda: broken(enforced=False))
        self._reading(ENFORCED_BROKEN, lambda: broken(enforced=True))
        self._reading(WAITING, lambda: {reason: enforcer.status.waiting[reason] for reason in REASONS})

        def pods() -> dict[tuple[str, ...], int]:
            return {(): enforcer.index.n_enforced_pods}

        self._reading(ENFORCED_PODS, pods)

    def on_found(self, report: ViolationReport) -> None:
        """A broken rule was told for the first time."""
        self._violations.add(report.side.value, str(report.enforced).lower())

    def on_evicted(self, report: ViolationReport, ended: EvictionResult) -> None:
        """An eviction has ended so."""
        self._evictions.add(report.side.value, ended.value)

    def on_refused(self) -> None:
        """Enforcement has stopped: too many pods would go."""
        self._refusals.add()

"""The enforcer's Prometheus series: what is broken, what waits and why, who was evicted."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from scheduler.enforcing.machine import Enforcer
from scheduler.enforcing.orders import Ended, Telling
from scheduler.observe.metrics import (
    BUILD_INFO,
    EVENTS_DROPPED,
    LEADER,
    MALFORMED_OBJECTS,
    REST_DURATION,
    REST_REQUESTS,
    WATCH_RESTARTS,
)
from scheduler.observe.series import Counts, Family, Histogram, Reading

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


class EnforcementMetrics:
    """The series of one enforcer."""

    def __init__(self, *, version: str) -> None:
        self._registry = CollectorRegistry()
        self._requests = self._counts(REST_REQUESTS)
        self._request_duration = Histogram(REST_DURATION)
        self._malformed = self._counts(MALFORMED_OBJECTS)
        self._watch_restarts = self._counts(WATCH_RESTARTS)
        self._events_dropped = self._counts(EVENTS_DROPPED)
        self._violations = self._counts(VIOLATIONS)
        self._evictions = self._counts(EVICTIONS)
        self._refusals = self._counts(REFUSALS)
        build = {(version, platform.python_version()): 1}
        self._registry.register(Reading(BUILD_INFO, lambda: build))
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)

    def render(self) -> bytes:
        """All series in Prometheus' text format 0.0.4."""
        return self._request_duration.text().encode() + generate_latest(self._registry)

    def watch(self, enforcer: Enforcer) -> None:
        """How the enforcer's rules stood at its last look is part of every scrape from now on. Call once."""

        def broken(*, enforced: bool) -> dict[str, int]:
            counts = enforcer.standing.enforced if enforced else enforcer.standing.ordinary
            return {side: counts[side] for side in _SIDES}

        self._registry.register(Reading(BROKEN_RULES, lambda: broken(enforced=False)))
        self._registry.register(Reading(ENFORCED_BROKEN, lambda: broken(enforced=True)))
        self._registry.register(
            Reading(WAITING, lambda: {reason: enforcer.standing.waiting[reason] for reason in REASONS})
        )

        def pods() -> dict[tuple[str, ...], int]:
            return {(): enforcer.index.n_enforced_pods}

        self._registry.register(Reading(ENFORCED_PODS, pods))

    def watch_leadership(self, name: str, leads: Callable[[], bool]) -> None:
        """Whether this instance holds the Lease is part of every scrape from now on. Call once."""
        self._registry.register(Reading(LEADER, lambda: {name: int(leads())}))

    def on_found(self, telling: Telling) -> None:
        """A broken rule was told for the first time."""
        self._violations.add(telling.side.value, str(telling.enforced).lower())

    def on_evicted(self, telling: Telling, ended: Ended) -> None:
        """An eviction has ended so."""
        self._evictions.add(telling.side.value, ended.value)

    def on_refused(self) -> None:
        """Enforcement has stopped: too many pods would go."""
        self._refusals.add()

    def on_request(self, verb: str, method: str, code: str, host: str, seconds: float) -> None:
        """The API server answered, or did not (`<error>`); a watch counts as a request but has no latency."""
        self._requests.add(code, method, host)
        if verb != "watch":
            self._request_duration.of(method, host).observe(seconds)

    def on_malformed(self, kind: str) -> None:
        """An object of this kind could not be read."""
        self._malformed.add(kind)

    def on_watch_restart(self, kind: str) -> None:
        """Listing or watching this kind begins again after an error."""
        self._watch_restarts.add(kind)

    def on_event_dropped(self) -> None:
        """A Kubernetes event will not be written."""
        self._events_dropped.add()

    def _counts(self, family: Family) -> Counts:
        counts = Counts(family)
        self._registry.register(counts)
        return counts

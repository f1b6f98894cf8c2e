"""
The enforcer as a pure machine: stimuli in, instructions out.

    apply(stimulus)                    update the state and the index of rules
    check(now_s)                       broken rules -> how long each is broken -> pods to evict -> at most one Evict
    on_eviction_result(uid, result)    count the pod as terminating, or try again later

Invariants:
 1. One eviction at a time, so that each check sees what the last eviction changed.
 2. An evicted pod counts as terminating from the result on, even if an older watch event says otherwise.
 3. Times are of this process's monotonic clock: after a restart, all waits begin anew.
 4. A check without leadership keeps time and returns no instructions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import (
    NodeGone,
    NodeSeen,
    ObjectGone,
    ObjectSeen,
    PodGone,
    PodSeen,
    Stimulus,
)
from scheduler.engine.state.cluster import MARKED_BY_LABEL, ClusterState
from scheduler.engine.state.matching import NamespaceRule
from scheduler.tools.enforcer.eviction_limits import (
    EvictionBackoff,
    RecentEvictions,
    shares_of,
    too_many,
)
from scheduler.tools.enforcer.eviction_plan import EvictionPlan, EvictionPlanner, PlannedEviction
from scheduler.tools.enforcer.instructions import (
    EnforcerInstruction,
    Evict,
    EvictionResult,
    EvictionShare,
    ReportViolation,
    ViolationCause,
)
from scheduler.tools.enforcer.limits import EvictionLimits
from scheduler.tools.enforcer.rules import RuleIndex
from scheduler.tools.enforcer.violations import Violation, selects, violation_report, violations
from scheduler.tools.explain.declared_rules import DeclaredRule
from scheduler.tools.explain.simulation.watch_events import apply_event

#: A report costs 50 µs. The next check goes on with the rest.
_MAX_REPORTS_PER_CHECK: Final = 200


@dataclass(slots=True)
class EnforcementStatus:
    """The result of the last check, for gauges and `--once`."""

    #: Pods due for eviction by the reason why they still run, and rules that no eviction would mend.
    waiting: Counter[str] = field(default_factory=Counter)
    #: Pods with an enforced rule that are not terminating, by namespace.
    n_enforced: Counter[str] = field(default_factory=Counter)
    #: Broken rules, enforced ones first, and the evictions planned for them.
    violations: list[Violation] = field(default_factory=list)
    evictions: tuple[PlannedEviction, ...] = ()


@dataclass(frozen=True, slots=True)
class _BrokenPeriod:
    """The time since when a rule of a pod is broken, and why."""

    since_s: float
    cause: ViolationCause


class Enforcer:
    """Decides which pods to evict. Not thread-safe; nothing inside awaits."""

    def __init__(
        self,
        limits: EvictionLimits,
        *,
        is_movable: Callable[[Pod], bool],
        acts: bool,
        exempt_namespaces: frozenset[str] = frozenset(),
        annotating: NamespaceRule = MARKED_BY_LABEL,
        rebalances: bool = False,
    ) -> None:
        """
        Start with an empty state.

        `is_movable`: returns whether a pod may be evicted and would then be placed anew. `acts`: whether evictions are
        carried out, else each is returned once, and no result is expected. `exempt_namespaces`, `annotating`: as in
        the scheduler's configuration. `rebalances`: whether a `Rebalancer` decides on the state.
        """
        self.state = ClusterState(
            exempt_namespaces, annotating=annotating, max_derived_bytes=None, decides=rebalances
        )
        self.index = RuleIndex(self.state, exempt_namespaces)
        self.status = EnforcementStatus()
        self._planner = EvictionPlanner(self.state, is_movable)
        self._limits = limits
        self._acts = acts
        self._evictions = RecentEvictions(limits)
        #: By UID and rule: a changed rule starts a new period, a change of the pod's labels does not.
        self._periods: dict[tuple[str, DeclaredRule], _BrokenPeriod] = {}
        #: Rules reported per pod, by UID.
        self._reported: dict[str, set[DeclaredRule]] = {}
        self._backoffs: dict[str, EvictionBackoff] = {}
        #: The pod whose eviction has no result yet.
        self._in_flight: PlannedEviction | None = None
        #: Pods evicted and not yet seen to be deleted.
        self._evicted_uids: set[str] = set()
        #: In a dry run, pods whose eviction was returned.
        self._announced: set[str] = set()
        #: Pods placed since the last check; None before the first.
        self._placed_since_check: set[str] | None = None
        #: The shares that the last plan exceeded.
        self._exceeded: frozenset[EvictionShare] = frozenset()
        #: When to check next even if nothing changes.
        self.wake_s = inf

    # Stimuli.

    def apply(self, stimulus: Stimulus) -> None:
        """Update the state and the index of rules."""
        match stimulus:
            case PodSeen(pod) if pod.node_name and not pod.is_terminal:
                if self._placed_since_check is not None and pod.uid not in self.state.placed:
                    self._placed_since_check.add(pod.uid)
                if pod.uid in self._evicted_uids and not pod.terminating:
                    pod = replace(pod, terminating=True)
                self.state.upsert_pod(pod)
                self.index.sync_pod(pod.uid)
            case PodSeen(pod) if pod.is_terminal:
                self._remove_pod(pod.uid)
            case PodGone(uid):
                self._remove_pod(uid)
            case NodeSeen() | NodeGone() | ObjectSeen() | ObjectGone():
                apply_event(self.state, stimulus)
            case _:
                pass  # pods without a node, and kinds that only the scheduler reads

    def _remove_pod(self, uid: str) -> None:
        self.state.remove_pod(uid)
        self.index.sync_pod(uid)
        for by_uid in (self._reported, self._backoffs):
            by_uid.pop(uid, None)
        self._evicted_uids.discard(uid)
        self._announced.discard(uid)

    @property
    def is_evicting(self) -> bool:
        """Whether an eviction has no result yet."""
        return self._in_flight is not None

    # Checks.

    def check(self, now_s: float, *, leads: bool = True) -> list[EnforcerInstruction]:
        """Return what to report and to evict now. O(rules x nodes + pods in the domains of rules that are due)."""
        self.wake_s = inf
        found = violations(self.state, self.index)
        self._update_times(found, now_s)
        enforced = [each for each in found if each.rule.enforced]
        plan = self._planner.plan([each for each in enforced if self._is_due(each, now_s)])
        in_grace = self._in_grace(enforced, plan)
        self.status = EnforcementStatus(
            waiting=Counter({"grace": in_grace.total(), "beyond help": len(plan.unfixable)}),
            n_enforced=self.index.n_enforced(),
            violations=sorted(found, key=lambda each: not each.rule.enforced),
            evictions=plan.evictions,
        )
        if not leads:
            return []
        return [*self._reports(found, now_s), *self._eviction_instructions(plan, in_grace, now_s)]

    def _update_times(self, violations: Iterable[Violation], now_s: float) -> None:
        periods: dict[tuple[str, DeclaredRule], _BrokenPeriod] = {}
        for violation in violations:
            key = (violation.uid, violation.rule)
            periods[key] = self._periods.get(key) or _BrokenPeriod(now_s, self._cause(violation))
        self._periods = periods
        self._placed_since_check = set()

    def _cause(self, violation: Violation) -> ViolationCause:
        if self._placed_since_check is None:
            return ViolationCause.UNKNOWN
        if violation.uid in self._placed_since_check:
            return ViolationCause.PLACEMENT
        if violation.is_affinity:
            return ViolationCause.CHANGE
        rule = violation.rule
        ids = self.state.nodes.column(rule.topology_key).ids
        newly_placed = (
            self.state.placed[uid] for uid in self._placed_since_check if uid in self.state.placed
        )
        breaks_rule = any(
            ids[each.row] == ids[violation.row] and selects(self.state, rule, each.label_set)
            for each in newly_placed
        )
        return ViolationCause.PLACEMENT if breaks_rule else ViolationCause.CHANGE

    def _is_due(self, violation: Violation, now_s: float) -> bool:
        """Return whether the rule has been broken for long enough to act; if not, note when to check again."""
        wait_s = self._limits.settle_s
        if violation.is_affinity:
            own_s = self.state.placed[violation.uid].pod.affinity_grace_s
            wait_s = own_s if isinstance(own_s, (int, float)) else self._limits.grace_s
        return self._is_time(self._periods[violation.uid, violation.rule].since_s + wait_s, now_s)

    def _is_time(self, at_s: float, now_s: float) -> bool:
        """Return whether `at_s` has come; otherwise the next check is then at the latest."""
        if at_s > now_s:
            self.wake_s = min(self.wake_s, at_s)
        return at_s <= now_s

    def _in_grace(self, enforced: Iterable[Violation], plan: EvictionPlan) -> Counter[str]:
        """Return the pods that wait for a match of their enforced affinity, by namespace."""
        planned_uids = {each.pod.uid for each in plan.evictions}
        waiting = (each.uid for each in enforced if each.is_affinity and each.uid not in planned_uids)
        unfixable = (each.uid for each in plan.unfixable if each.is_affinity)
        return self._by_namespace(waiting) - self._by_namespace(unfixable)

    def _by_namespace(self, uids: Iterable[str]) -> Counter[str]:
        return Counter(self.state.placed[uid].pod.namespace for uid in uids)

    def _reports(self, violations: Iterable[Violation], now_s: float) -> list[EnforcerInstruction]:
        """Return reports of violations not reported yet, affinity after its grace period: peers may just restart."""
        reports: list[EnforcerInstruction] = []
        for violation in violations:
            rule = violation.rule
            period = self._periods[violation.uid, rule]
            has_grace = violation.is_affinity and not rule.enforced
            wait_s = self._limits.grace_s if has_grace else self._limits.settle_s
            reported = self._reported.setdefault(violation.uid, set())
            if rule in reported or not self._is_time(period.since_s + wait_s, now_s):
                continue
            if len(reports) == _MAX_REPORTS_PER_CHECK:
                self.wake_s = now_s
                break
            reported.add(rule)
            pod = self.state.placed[violation.uid].pod
            report = violation_report(self.state, violation, pod.uid, None)
            reports.append(ReportViolation(pod, report, period.cause))
        return reports

    def _eviction_instructions(
        self, plan: EvictionPlan, in_grace: Counter[str], now_s: float
    ) -> list[EnforcerInstruction]:
        uids = {each.pod.uid for each in plan.evictions}
        self._backoffs = {uid: backoff for uid, backoff in self._backoffs.items() if uid in uids}
        self._announced &= uids
        exceeded = too_many(plan.evictions, in_grace, self.status.n_enforced, self._limits)
        instructions: list[EnforcerInstruction] = [
            report for share, report in exceeded.items() if share not in self._exceeded
        ]
        self._exceeded = frozenset(exceeded)
        for planned in plan.evictions:
            if not exceeded.keys().isdisjoint(shares_of(planned)):
                self.status.waiting["share"] += 1
            elif self._may_evict(planned, now_s):
                self._in_flight = planned if self._acts else None
                report = violation_report(self.state, planned.violation, planned.pod.uid, planned.other)
                instructions.append(Evict(planned.pod, report))
        return instructions

    def _may_evict(self, planned: PlannedEviction, now_s: float) -> bool:
        pod = planned.pod
        if not self._acts:
            is_new = pod.uid not in self._announced
            self._announced.add(pod.uid)
            return is_new
        backoff = self._backoffs.get(pod.uid)
        if backoff is not None and not self._is_time(backoff.at_s, now_s):
            self.status.waiting["budget"] += 1
            return False
        if self._in_flight is not None:
            self.status.waiting["turn"] += self._in_flight.pod.uid != pod.uid
            return False
        if self._evictions.allow(planned, now_s):
            return True
        self.status.waiting["limit"] += 1
        self._is_time(self._evictions.next_free_s(), now_s)
        return False

    # Results.

    def on_eviction_result(
        self, uid: str, result: EvictionResult, now_s: float, *, retry_after_s: float | None = None
    ) -> None:
        """Take the result of the eviction in flight."""
        planned, self._in_flight = self._in_flight, None
        if planned is None or planned.pod.uid != uid:
            return
        if result in (EvictionResult.BLOCKED, EvictionResult.FAILED):
            self._backoffs.setdefault(uid, EvictionBackoff()).refused(now_s, retry_after_s)
            return
        if result is EvictionResult.EVICTED:
            self._evictions.note(planned, now_s)
        self.note_evicted(uid)

    def note_evicted(self, uid: str) -> None:
        """Count the pod, which the API server has evicted, as terminating from now on."""
        placed = self.state.placed.get(uid)
        if placed is not None:
            self._evicted_uids.add(uid)
            self.state.upsert_pod(replace(placed.pod, terminating=True))
            self.index.sync_pod(uid)

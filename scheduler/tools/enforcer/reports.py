"""
Reports enforcement to operators: log lines, metrics, and events on the pods.

Events never delay anything. One is written per broken rule of a pod, and one per eviction. They name no object of
another namespace; the log does.
"""

from __future__ import annotations

import socket
from typing import Final, Literal

from scheduler.daemon.kube.event_series import EventKey
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.writes.recorder import EventRecorder, pod_reference
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.wording import named_to
from scheduler.tools.enforcer.deletion_costs import WriteDeletionCost
from scheduler.tools.enforcer.evictor import EvictionOutcome
from scheduler.tools.enforcer.instructions import (
    Evict,
    EvictionResult,
    Move,
    ReportTooManyEvictions,
    ReportViolation,
    ViolationCause,
    ViolationReport,
)
from scheduler.tools.enforcer.limits import NAME
from scheduler.tools.enforcer.metrics import EnforcementMetrics

ENFORCED_REASON: Final = "RequiredDuringExecutionViolated"
#: Event reason for rules that only had to hold when the pod was scheduled.
ORDINARY_REASON: Final = "AffinityRuleBroken"
#: Event reason for a pod that is evicted for a better node.
MOVED_REASON: Final = "Rebalanced"
_NOT_ENFORCED: Final = "(it is not enforced, so no pod is evicted)"


class EnforcementReporter:
    """Reports broken rules and evictions; without `recorder` it writes no events."""

    def __init__(self, metrics: EnforcementMetrics, log: Logger, recorder: EventRecorder | None) -> None:
        self._metrics, self._log, self._recorder = metrics, log, recorder
        self._instance = f"{NAME}-{socket.gethostname()}"

    def on_violation(self, found: ReportViolation) -> None:
        """
        Report a broken rule.

        The event ends with the cause: a pod was placed against the rule, or a change broke it later, which is allowed
        for a rule that has to hold only at scheduling. Between two checks the two cannot be told apart; before the
        first check the cause is unknown.
        """
        report = found.report
        self._metrics.violations.add(report.side, str(report.enforced).lower())
        message = "Enforced rule is broken" if report.enforced else "Required rule does not hold"
        self._log.info(1, message, origin=found.cause.name.lower(), **_log_pairs(found.pod, report))
        any_more = " any more" if found.cause is ViolationCause.CHANGE else ""
        state = "is broken" if report.enforced else f"does not hold{any_more} {_NOT_ENFORCED}"
        note = f"Required {report.rule}: {state} in {report.domain}{_beside(found.pod, report)}; {found.cause.value}"
        self._record_broken(found.pod, report, "Judging", note)

    def on_would_evict(self, instruction: Evict) -> None:
        """Report what a dry run would evict."""
        self._log.info(0, "Would evict", **_log_pairs(instruction.pod, instruction.report))

    def on_eviction_ended(self, instruction: Evict, outcome: EvictionOutcome) -> None:
        """Report the end of an eviction."""
        pod, report = instruction.pod, instruction.report
        self._metrics.evictions.add(report.side, outcome.ended.value)
        pairs = _log_pairs(pod, report)
        match outcome.ended:
            case EvictionResult.EVICTED:
                self._log.info(0, "Evicted", **pairs)
                is_own = report.declared_in == pod.namespace
                rule = f"required {report.rule}" if is_own else "anti-affinity of a pod of another namespace"
                note = f"Evicted: {rule} was broken in {report.domain}{_beside(pod, report)}"
                self._record_broken(pod, report, "Evicting", note)
            case EvictionResult.GONE:
                self._log.info(2, "The pod to be evicted is gone", **pairs)
            case EvictionResult.BLOCKED:
                self._log.info(1, "Eviction not allowed now; retrying later", err=outcome.message, **pairs)
            case EvictionResult.FAILED:
                self._log.error("Eviction failed; retrying later", err=outcome.message, **pairs)

    def on_too_many_evictions(self, refused: ReportTooManyEvictions) -> None:
        """Report that too many pods of a namespace, or for its rules, would have to be evicted."""
        self._metrics.refusals.add()
        self._log.error(
            "Too many pods would be evicted; no evictions until there are fewer",
            namespace=refused.share.namespace,
            rulesOf="other namespaces" if refused.share.by_others else "this namespace",
            pods=refused.n_would_go,
            enforcedPods=refused.n_enforced,
            allowed=refused.n_allowed,
        )

    def on_would_write_cost(self, write: WriteDeletionCost) -> None:
        """Report what a dry run would write."""
        self._log.info(0, "Would write the cost of deletion", pod=write.pod.key, cost=write.cost)

    def on_cost_written(self, write: WriteDeletionCost, problem: str) -> None:
        """Report the result of a write; `problem`: empty if it succeeded."""
        self._metrics.cost_writes.add("failed" if problem else "written")
        if problem:
            self._log.info(1, "Cost of deletion not written; retrying later", pod=write.pod.key, err=problem)
        else:
            self._log.info(2, "Wrote the cost of deletion", pod=write.pod.key, cost=write.cost)

    def on_would_move(self, move: Move) -> None:
        """Report what a dry run would move."""
        self._log.info(0, "Would move", **_move_pairs(move))

    def on_move_ended(self, move: Move, outcome: EvictionOutcome) -> None:
        """Report the end of the eviction of a pod that is to move."""
        self._metrics.moves.add(outcome.ended.value)
        if outcome.ended is not EvictionResult.EVICTED:
            self._log.info(1, "Not moved", err=outcome.message or outcome.ended.value, **_move_pairs(move))
            return
        self._log.info(0, "Evicted to move", **_move_pairs(move))
        better, why = "a better", move.why
        if move.group is not None:
            group = named_to(move.pod.namespace, "pod group", move.group.text)
            better, why = "another", f"so that {group} fits, which waits"
        note = f"Evicted to move from {move.pod.node_name} to {better} node such as {move.node_name}: {why}"
        self._record("Normal", move.pod, "Evicting", MOVED_REASON, note)

    def _record_broken(self, pod: Pod, report: ViolationReport, action: str, note: str) -> None:
        reason = ENFORCED_REASON if report.enforced else ORDINARY_REASON
        is_own = report.other is not None and report.other.namespace == pod.namespace
        self._record("Warning", pod, action, reason, note, report.other if is_own else None)

    def _record(
        self,
        type_: Literal["Normal", "Warning"],
        pod: Pod,
        action: str,
        reason: str,
        note: str,
        related: Pod | None = None,
    ) -> None:
        if self._recorder is not None:
            key = EventKey(
                type=type_,
                action=action,
                reason=reason,
                reporting_controller=NAME,
                reporting_instance=self._instance,
                regarding=pod_reference(pod),
                related=None if related is None else pod_reference(related),
            )
            self._recorder.record(key, note)


def _log_pairs(pod: Pod, report: ViolationReport) -> dict[str, object]:
    """Return a broken rule as the pairs of a log line."""
    pairs: dict[str, object] = {"pod": pod.key, "rule": report.rule, "domain": report.domain}
    return pairs if report.other is None else {**pairs, "other": report.other.key}


def _move_pairs(move: Move) -> dict[str, object]:
    return {"pod": move.pod.key, "node": move.pod.node_name, "better": move.node_name, "why": move.why}


def _beside(pod: Pod, report: ViolationReport) -> str:
    if report.other is None:
        return ""
    return f", beside {named_to(pod.namespace, 'pod', report.other.key).removeprefix('pod ')}"

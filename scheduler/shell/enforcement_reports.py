"""
What operators learn of enforcement: log lines, metrics, and events on the pods.

Events never hold anything up; one is written for each broken rule of a pod, and one for each eviction.
"""

from __future__ import annotations

import socket
from typing import Final

from scheduler.enforcing.instructions import (
    Evict,
    EvictionResult,
    ReportTooManyEvictions,
    ReportViolation,
    ViolationCause,
    ViolationReport,
)
from scheduler.kube.event_series import EventKey, ObjectReference
from scheduler.model.pods import Pod
from scheduler.observe.enforcement import EnforcementMetrics
from scheduler.observe.logs import Logger
from scheduler.shell.evictor import Outcome
from scheduler.shell.recorder import EventRecorder

NAME: Final = "affinity-scheduler-enforcer"
ENFORCED_REASON: Final = "RequiredDuringExecutionViolated"
#: Of rules that only had to hold when the pod was scheduled.
ORDINARY_REASON: Final = "AffinityRuleBroken"
_NOT_ENFORCED: Final = "(it is not enforced, so nobody is evicted)"


class Reports:
    """
    Tells what was found and done.

    Args:
        metrics: counts it.
        log: gets a line for it.
        recorder: writes its events; None for none.
    """

    def __init__(self, metrics: EnforcementMetrics, log: Logger, recorder: EventRecorder | None) -> None:
        self._metrics, self._log, self._recorder = metrics, log, recorder
        self._instance = f"{NAME}-{socket.gethostname()}"

    def on_found(self, found: ReportViolation) -> None:
        """
        A rule is broken.

        Of a rule that only had to hold at scheduling this is no fault by itself: its own name says that it is ignored
        during execution. What was seen of how it came about stands behind it: a placement, which no scheduler that
        knows the rule would have made, or a change after which it no longer holds. A pod that came and a label that
        changed between two looks cannot be told apart; neither can anything from before the first.
        """
        report = found.report
        self._metrics.on_found(report)
        message = "Enforced rule is broken" if report.enforced else "Required rule does not hold"
        self._log.info(1, message, origin=found.cause.name.lower(), **_pairs(found.pod, report))
        any_more = " any more" if found.cause is ViolationCause.CHANGE else ""
        state = "is broken" if report.enforced else f"does not hold{any_more} {_NOT_ENFORCED}"
        note = f"Required {report.rule}: {state} in {report.domain}{_beside(report)}; {found.cause.value}"
        self._record(found.pod, report, "Judging", note)

    def on_would_evict(self, order: Evict) -> None:
        """A pod would be evicted."""
        self._log.info(0, "Would evict", **_pairs(order.pod, order.report))

    def on_ended(self, order: Evict, outcome: Outcome) -> None:
        """An eviction has ended."""
        pod, report = order.pod, order.report
        self._metrics.on_evicted(report, outcome.ended)
        pairs = _pairs(pod, report)
        match outcome.ended:
            case EvictionResult.EVICTED:
                self._log.info(0, "Evicted", **pairs)
                note = f"Evicted: required {report.rule} was broken in {report.domain}{_beside(report)}"
                self._record(pod, report, "Evicting", note)
            case EvictionResult.GONE:
                self._log.info(2, "The pod to be evicted is gone", **pairs)
            case EvictionResult.BLOCKED:
                self._log.info(1, "Eviction not allowed now; retrying later", err=outcome.message, **pairs)
            case EvictionResult.FAILED:
                self._log.error("Eviction failed; retrying later", err=outcome.message, **pairs)

    def on_refused(self, refused: ReportTooManyEvictions) -> None:
        """Too many pods would go."""
        self._metrics.on_refused()
        self._log.error(
            "Too many pods would have to go; nobody is evicted until fewer would",
            pods=refused.n_would_go,
            enforcedPods=refused.n_enforced,
            allowed=refused.n_allowed,
        )

    def _record(self, pod: Pod, report: ViolationReport, action: str, note: str) -> None:
        if self._recorder is None:
            return
        key = EventKey(
            type="Warning",
            action=action,
            reason=ENFORCED_REASON if report.enforced else ORDINARY_REASON,
            reporting_controller=NAME,
            reporting_instance=self._instance,
            regarding=_reference(pod),
            related=None if report.other is None else _reference(report.other),
        )
        self._recorder.record(key, note)


def _pairs(pod: Pod, report: ViolationReport) -> dict[str, object]:
    """A broken rule for the log."""
    pairs: dict[str, object] = {"pod": pod.key, "rule": report.rule, "domain": report.domain}
    return pairs if report.other is None else {**pairs, "other": report.other.key}


def _beside(report: ViolationReport) -> str:
    return "" if report.other is None else f", beside {report.other.key}"


def _reference(pod: Pod) -> ObjectReference:
    return ObjectReference("Pod", pod.namespace, pod.name, pod.uid, resource_version=pod.resource_version)

"""Logs attempts to schedule pods: every success, and failures up to a rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from scheduler.daemon.kube.rate_limit import TokenBucket
from scheduler.daemon.metrics.logs import Logger
from scheduler.engine.model.gated_fields import FIELDS, reason_without_effect
from scheduler.engine.model.instructions import Attempted
from scheduler.engine.model.semantics import Semantics
from scheduler.engine.model.terms import Problem
from scheduler.engine.state.cluster import ClusterState

#: Failures logged per second and at once. A user who changes the labels of a pending pod has it tried again each time.
_FAILURES_PER_S: Final = 20.0
_FAILURES_AT_ONCE: Final = 2000


class AttemptLog:
    """Writes a line for each attempt; of failures beyond the rate only their number, with the next line."""

    def __init__(self, log: Logger, now_s: Callable[[], float]) -> None:
        self._log = log
        self._now_s = now_s
        self._bucket = TokenBucket(qps=_FAILURES_PER_S, burst=_FAILURES_AT_ONCE, now_s=now_s())
        self._n_left_out = 0

    def write(self, attempt: Attempted) -> None:
        """Log the attempt."""
        pod = attempt.pod.key
        if attempt.result == "scheduled":
            n_nodes = {"evaluatedNodes": attempt.n_evaluated, "feasibleNodes": attempt.n_feasible}
            self._log.info(2, "Successfully bound pod to node", pod=pod, node=attempt.message, **n_nodes)
        elif not self._bucket.take(self._now_s()):
            self._n_left_out += 1
        else:
            if self._n_left_out:
                self._log.info(0, "Failed attempts were not logged: too many", n=self._n_left_out)
                self._n_left_out = 0
            if attempt.result == "unschedulable":
                self._log.info(2, "Unable to schedule pod; no fit; waiting", pod=pod, err=attempt.message)
            else:
                self._log.error("Error scheduling pod; retrying", pod=pod, err=attempt.message)


#: Both are in every version that can be emulated. Source: kubernetes/kubernetes#141340 and #141785, mended in 1.38.
_EMPTY_SPREAD_SELECTOR: Final = "a topology spread constraint with an empty labelSelector has no effect"
_EMPTY_BUDGET_SELECTOR: Final = (
    "preemption does not respect a PodDisruptionBudget with an empty selector, which selects all pods"
)
_MENDED_IN: Final = "1.38"


class DefectLog:
    """Logs each defect of the emulated version, and each field without effect, the first time that a pod meets it."""

    def __init__(self, log: Logger, state: ClusterState, semantics: Semantics) -> None:
        self._log, self._state, self._semantics = log, state, semantics
        self._version = str(semantics.version)
        self._logged: set[str] = set()

    def write(self, attempt: Attempted) -> None:
        """Log each defect that the pod is the first to meet, and each new field without effect."""
        for gate in attempt.pod.spec.without_effect:
            if gate not in self._logged:
                self._logged.add(gate)
                reason = reason_without_effect(FIELDS[gate], gate, self._semantics)
                self._log.info(0, "Field without effect", pod=attempt.pod.key, reason=reason)
        for defect in self._met(attempt):
            if defect not in self._logged:
                self._logged.add(defect)
                pairs = {"defect": defect, "emulated": self._version, "mendedIn": _MENDED_IN}
                self._log.info(0, "Defect of the emulated version", pod=attempt.pod.key, **pairs)

    def _met(self, attempt: Attempted) -> Iterator[str]:
        for constraint in attempt.pod.spec.spread:
            selector = constraint.selector
            if not isinstance(selector, Problem) and selector.is_empty and not constraint.match_label_keys:
                yield _EMPTY_SPREAD_SELECTOR
        for namespace in {namespace for namespace, _ in attempt.victims}:
            if any(budget.selector.is_empty for budget in self._state.budgets.within(namespace)):
                yield _EMPTY_BUDGET_SELECTOR

"""Logs once that a pod met a defect of the emulated version, or has a field without effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from scheduler.daemon.metrics.logs import Logger
from scheduler.engine.model.gated_fields import FIELDS, reason_without_effect
from scheduler.engine.model.instructions import Attempted
from scheduler.engine.model.semantics import Semantics
from scheduler.engine.model.terms import Problem
from scheduler.engine.state.cluster import ClusterState

#: Both are in every version that can be emulated. Source: kubernetes/kubernetes#141340 and #141785, mended in 1.38.
_EMPTY_SPREAD_SELECTOR: Final = "a topology spread constraint with an empty labelSelector has no effect"
_EMPTY_BUDGET_SELECTOR: Final = (
    "preemption does not respect a PodDisruptionBudget with an empty selector, which selects all pods"
)
_MENDED_IN: Final = "1.38"


class DefectLog:
    """Looks at each attempt; a defect, and a field without effect, has one line in the life of the process."""

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
                self._log.info(
                    0,
                    "Defect of the emulated version",
                    pod=attempt.pod.key,
                    defect=defect,
                    emulated=self._version,
                    mendedIn=_MENDED_IN,
                )

    def _met(self, attempt: Attempted) -> Iterator[str]:
        for constraint in attempt.pod.spec.spread:
            selector = constraint.selector
            if not isinstance(selector, Problem) and selector.is_empty and not constraint.match_label_keys:
                yield _EMPTY_SPREAD_SELECTOR
        for namespace in {namespace for namespace, _ in attempt.victims}:
            if any(budget.selector.is_empty for budget in self._state.budgets.within(namespace)):
                yield _EMPTY_BUDGET_SELECTOR

"""
Masks of the nodes that satisfy a node rule or a set of tolerations, cached until nodes change.

Source: component-helpers scheduling/corev1/nodeaffinity, corev1 helpers (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduler.engine.model.terms import (
    NodeRequirement,
    NodeTerm,
    RequiredNodeAffinity,
    Taint,
    Toleration,
    parse_int64,
)
from scheduler.engine.state.arrays import Amounts, Mask
from scheduler.engine.state.columns import ABSENT
from scheduler.engine.state.derived import DerivedValues
from scheduler.engine.state.node_table import NodeTable

#: Effects that keep a pod off a node.
HARD_EFFECTS: Final = ("NoSchedule", "NoExecute")


class NodeMasks:
    """Masks by rule. Returned masks must not be written to."""

    def __init__(self, nodes: NodeTable, derived: DerivedValues) -> None:
        self._nodes = nodes
        self._derived = derived

    def matching(self, rule: RequiredNodeAffinity) -> Mask:
        """Return the rows whose node matches nodeSelector and one of the terms. O(n_rows * requirements) at first."""

        def compute() -> Mask:
            mask = self._nodes.alive.copy()
            for key, value in rule.node_selector or ():
                mask &= self._has_value(key, (value,))
            if rule.terms is not None:
                any_term = np.zeros(self._nodes.n_rows, dtype=np.bool_)
                for term in rule.terms:
                    any_term |= self.matching_term(term)
                mask &= any_term
            return mask

        return self._derived.get(rule, compute)

    def matching_names(self, term: NodeTerm) -> Mask:
        """Return the rows whose node matches a term of one rule about names; computed each time."""
        (requirement,) = term.names
        return self._named(requirement) & self._nodes.alive

    def matching_term(self, term: NodeTerm) -> Mask:
        """Return the rows whose node matches the term; no row if the term is empty or does not parse."""

        def compute() -> Mask:
            if term.is_empty or term.problem is not None:
                return np.zeros(self._nodes.n_rows, dtype=np.bool_)
            mask = self._nodes.alive.copy()
            for requirement in term.expressions:
                mask &= self.satisfying(requirement)
            for requirement in term.names:
                mask &= self._named(requirement)
            return mask

        return self._derived.get(term, compute)

    def tolerated(self, tolerations: tuple[Toleration, ...]) -> Mask:
        """Return the rows whose taints that keep pods off are all tolerated."""
        return self._derived.get(
            ("tolerated", tolerations),
            lambda: np.equal(self.n_untolerated_taints(tolerations, HARD_EFFECTS), 0),
        )

    def n_untolerated_taints(self, tolerations: tuple[Toleration, ...], effects: tuple[str, ...]) -> Amounts:
        """Return how many taints of these effects on each row are not tolerated: int64 array of shape (n_rows,)."""

        def compute() -> Amounts:
            return self._nodes.per_taints(lambda taints: len(untolerated(taints, tolerations, effects)))

        return self._derived.get(("n_untolerated_taints", tolerations, effects), compute)

    def eligible(
        self,
        keys: tuple[str, ...],
        rule: RequiredNodeAffinity | None = None,
        tolerations: tuple[Toleration, ...] | None = None,
    ) -> Mask:
        """Return the live nodes that have every label of `keys`, match the rule, and have no untolerated taint."""

        def compute() -> Mask:
            mask = self._nodes.alive.copy()
            for label in keys:
                mask &= self._nodes.column(label).ids[: self._nodes.n_rows] != ABSENT
            if rule is not None:
                mask &= self.matching(rule)
            if tolerations is not None:
                mask &= self.tolerated(tolerations)
            return mask

        return self._derived.get(("eligible", keys, rule, tolerations), compute)

    def satisfying(self, requirement: NodeRequirement) -> Mask:
        """Return the rows whose node satisfies one expression about a label; computed each time."""
        column = self._nodes.column(requirement.key)
        ids = column.ids[: self._nodes.n_rows]
        match requirement.operator:
            case "In":
                return self._has_value(requirement.key, requirement.values)
            case "NotIn":
                return ~self._has_value(requirement.key, requirement.values)
            case "Exists":
                return np.not_equal(ids, ABSENT)
            case "DoesNotExist":
                return np.equal(ids, ABSENT)
            case _:
                return self._satisfying_order(requirement)

    def _named(self, requirement: NodeRequirement) -> Mask:
        """Return the rows whose name satisfies an expression with at most one value."""
        named = np.zeros(self._nodes.n_rows, dtype=np.bool_)
        row = self._nodes.row_by_name.get(requirement.values[0]) if requirement.values else None
        if row is not None:
            named[row] = True
        return named if requirement.operator == "In" else ~named

    def _has_value(self, key: str, values: Sequence[str]) -> Mask:
        column = self._nodes.column(key)
        ids = column.ids[: self._nodes.n_rows]
        wanted = [column.id_by_value[value] for value in values if value in column.id_by_value]
        if len(wanted) == 1:
            return np.equal(ids, wanted[0])
        is_wanted = np.zeros(column.n_ids, dtype=np.bool_)
        is_wanted[wanted] = True
        return is_wanted[ids]

    def _satisfying_order(self, requirement: NodeRequirement) -> Mask:
        """Return the rows that satisfy Gt or Lt. Label and bound must be int64 in base 10; no other label matches."""
        column = self._nodes.column(requirement.key)
        bound = parse_int64(requirement.values[0])
        satisfies = np.zeros(column.n_ids, dtype=np.bool_)
        for value, domain in column.id_by_value.items():
            number = parse_int64(value)
            if number is not None and bound is not None:
                satisfies[domain] = number > bound if requirement.operator == "Gt" else number < bound
        return satisfies[column.ids[: self._nodes.n_rows]]


def untolerated(
    taints: Sequence[Taint], tolerations: Sequence[Toleration], effects: Sequence[str]
) -> tuple[Taint, ...]:
    """Return the taints with one of the effects that no toleration covers."""
    return tuple(
        taint
        for taint in taints
        if taint.effect in effects and not any(t.tolerates(taint) for t in tolerations)
    )

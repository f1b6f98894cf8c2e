"""
Terms that running pods declare, counted per node row: the symmetric half of affinity.

kube-scheduler walks all running pods to find the terms that select an incoming pod. Here equal terms share one entry,
an incoming pod's label set already knows the selections that match it, and each selection knows its terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from scheduler.model.pods import PodSpec
from scheduler.model.terms import AffinityTerm, usable
from scheduler.state.columns import RowCounts
from scheduler.state.selection import PodMatcher, Selection, SelectionIndex, declared_rule


class TermKind(Enum):
    """Which of a pod's four lists declares the term."""

    REQUIRED = "required affinity"
    REQUIRED_ANTI = "required anti-affinity"
    PREFERRED = "preferred affinity"
    PREFERRED_ANTI = "preferred anti-affinity"


@dataclass(slots=True, eq=False)
class DeclaredTerm:
    """One distinct term of running pods. `counts` has how often pods on a row declare it."""

    kind: TermKind
    topology_key: str
    weight: int
    selection: Selection
    counts: RowCounts = field(default_factory=RowCounts)


TermKey = tuple[TermKind, PodMatcher, str, int]


class DeclaredTerms:
    """All terms that at least one placed pod declares."""

    def __init__(self, selections: SelectionIndex) -> None:
        self._selections = selections
        self._terms: dict[TermKey, DeclaredTerm] = {}

    def place(self, spec: PodSpec, row: int, delta: int) -> None:
        """A pod of the spec came to the row (delta 1) or left it (delta -1). O(terms of the spec)."""
        if not spec.has_affinity_fields:
            return
        for key in term_keys(spec):
            term = self._terms.get(key)
            if term is None:
                term = self._declare(key)
            term.counts.add(row, delta)
            if term.counts.total == 0:
                del self._terms[key]
                _listed(term).remove(term)

    def _declare(self, key: TermKey) -> DeclaredTerm:
        kind, matcher, topology_key, weight = key
        term = DeclaredTerm(kind, topology_key, weight, self._selections.selection(matcher))
        _listed(term).append(term)
        self._terms[key] = term
        return term

    def all(self) -> dict[TermKey, DeclaredTerm]:
        """Every declared term by its key, for the audit."""
        return self._terms


def _listed(term: DeclaredTerm) -> list[DeclaredTerm]:
    """The list of its selection that the term belongs in."""
    forbids = term.kind is TermKind.REQUIRED_ANTI
    return term.selection.forbidding_terms if forbids else term.selection.scoring_terms


def term_keys(spec: PodSpec) -> Iterator[TermKey]:
    """The key of each term that a pod of the spec declares; a list that does not parse declares nothing."""
    affinity = spec.affinity
    for kind, terms in (
        (TermKind.REQUIRED, affinity.required),
        (TermKind.REQUIRED_ANTI, affinity.required_anti),
        (TermKind.PREFERRED, affinity.preferred),
        (TermKind.PREFERRED_ANTI, affinity.preferred_anti),
    ):
        for term in usable(terms):
            yield kind, declared_matcher(term), term.topology_key, term.weight


def declared_matcher(term: AffinityTerm) -> PodMatcher:
    """Who a running pod's term selects."""
    return PodMatcher(((declared_rule(term), term.selector),))

"""
Terms that running pods declare, counted per node row: the symmetric half of affinity.

kube-scheduler walks all running pods to find the terms that select an incoming pod. Here equal terms share one entry,
an incoming pod's label set already knows the selections that match it, and each selection knows its terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from weakref import WeakKeyDictionary

from scheduler.model.pods import PodSpec
from scheduler.model.terms import AffinityTerm, usable
from scheduler.state.domain_limits import DomainLimit, DomainLimits
from scheduler.state.matching import PodMatcher, declared_rule
from scheduler.state.node_table import NodeTable
from scheduler.state.row_counts import RowCounts
from scheduler.state.selection import LabelSet, Selection, SelectionIndex


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
    #: Selected pods that a domain may have, and whether a pod that declares the term is among them.
    max_pods: int = 1
    selects_itself: bool = False
    counts: RowCounts = field(default_factory=RowCounts)
    #: The domains that it has filled; None where it lets none but one pod be.
    limit: DomainLimit | None = None


#: Kind, who is selected, topology key, weight, limit, and (where the limit is above 1) whether the declarer counts.
TermKey = tuple[TermKind, PodMatcher, str, int, int, bool]


class DeclaredTerms:
    """All terms that at least one placed pod declares."""

    def __init__(
        self, selections: SelectionIndex, nodes: NodeTable, exempt_namespaces: frozenset[str] = frozenset()
    ) -> None:
        """No pod declares anything."""
        self._selections = selections
        self.limits = DomainLimits(selections, nodes)
        self._exempt_namespaces = exempt_namespaces
        self._terms: dict[TermKey, DeclaredTerm] = {}
        #: Moves where a term is declared for the first time, or by nobody any more.
        self.version = 0
        #: What pods of a spec declare, where that depends on the spec alone; outlived terms are noticed at use.
        self._by_spec: WeakKeyDictionary[PodSpec, tuple[DeclaredTerm, ...]] = WeakKeyDictionary()

    def place(self, label_set: LabelSet, spec: PodSpec, row: int) -> tuple[DeclaredTerm, ...]:
        """A pod came to the row. Returns the terms it declares, to be handed to `lift`. O(terms of the spec)."""
        declared = self._by_spec.get(spec)
        if declared is None or not all(term.counts.total for term in declared):
            declared = tuple(self._term(key) for key in self.keys(label_set, spec))
            if not self.has_limits(spec):
                self._by_spec[spec] = declared
        for term in declared:
            term.counts.add(row, 1)
        if limits := [term.limit for term in declared if term.limit is not None]:
            self.limits.declare(limits, row)
        return declared

    def lift(self, declared: tuple[DeclaredTerm, ...], row: int) -> None:
        """The pod that declared these terms left the row."""
        if limits := [term.limit for term in declared if term.limit is not None]:
            self.limits.withdraw(limits, row)
        for term in declared:
            term.counts.add(row, -1)
            if term.counts.total == 0 and self._terms.pop(_key(term), None) is not None:
                self._unlist(term)

    def keys(self, label_set: LabelSet, spec: PodSpec) -> Iterator[TermKey]:
        """The key of each term that the pod declares; a list that does not parse declares nothing."""
        affinity = spec.affinity
        for term in usable(affinity.required):
            yield TermKind.REQUIRED, declared_matcher(term), term.topology_key, 0, 1, False
        # Pods of exempt namespaces are invisible to required anti-affinity: they declare none and are not selected.
        if spec.namespace not in self._exempt_namespaces:
            for term in usable(affinity.required_anti):
                matcher = declared_matcher(term, self._exempt_namespaces)
                selects_itself = term.max_pods > 1 and self._selects(matcher, label_set)
                yield TermKind.REQUIRED_ANTI, matcher, term.topology_key, 0, term.max_pods, selects_itself
        for term in usable(affinity.preferred):
            yield TermKind.PREFERRED, declared_matcher(term), term.topology_key, term.weight, 1, False
        for term in usable(affinity.preferred_anti):
            yield TermKind.PREFERRED_ANTI, declared_matcher(term), term.topology_key, term.weight, 1, False

    def has_limits(self, spec: PodSpec) -> bool:
        """Whether the spec lets more than one pod be in a domain; its keys then depend on namespace labels."""
        return any(term.max_pods > 1 for term in usable(spec.affinity.required_anti))

    def has_any_limits(self) -> bool:
        """Whether `has_limits` may hold for the spec of any placed pod. O(1)."""
        return bool(self.limits)

    def _selects(self, matcher: PodMatcher, label_set: LabelSet) -> bool:
        return label_set in self._selections.selection(matcher).label_sets

    def _term(self, key: TermKey) -> DeclaredTerm:
        term = self._terms.get(key)
        if term is None:
            kind, matcher, topology_key, weight, max_pods, selects_itself = key
            selection = self._selections.selection(matcher)
            term = DeclaredTerm(kind, topology_key, weight, selection, max_pods, selects_itself)
            self._list(term)
            self._terms[key] = term
        return term

    def _list(self, term: DeclaredTerm) -> None:
        self.version += 1
        _listed(term).append(term)
        if term.max_pods > 1:
            # A declaring pod does not count against itself.
            room = term.max_pods - 1 + int(term.selects_itself)
            term.limit = DomainLimit(term.topology_key, room, term.selection, term.counts)
            self.limits.add(term.limit)

    def _unlist(self, term: DeclaredTerm) -> None:
        self.version += 1
        _listed(term).remove(term)
        if term.limit is not None:
            self.limits.drop(term.limit)

    def all(self) -> dict[TermKey, DeclaredTerm]:
        """Every declared term by its key, for the audit."""
        return self._terms


def _listed(term: DeclaredTerm) -> list[DeclaredTerm]:
    """The list of its selection that the term belongs in."""
    if term.kind is not TermKind.REQUIRED_ANTI:
        return term.selection.scoring_terms
    return term.selection.forbidding_terms if term.max_pods == 1 else term.selection.limiting_terms


def _key(term: DeclaredTerm) -> TermKey:
    return (
        term.kind,
        term.selection.matcher,
        term.topology_key,
        term.weight,
        term.max_pods,
        term.selects_itself,
    )


def declared_matcher(term: AffinityTerm, exempt: frozenset[str] = frozenset()) -> PodMatcher:
    """Who a running pod's term selects."""
    return PodMatcher(((declared_rule(term), term.selector),), exempt)

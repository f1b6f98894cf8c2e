"""
Pods and terms counted per node row, derived from the pod columns and patched pod by pod.

A count is computed when a decision first asks for it; a selector that no decision asks for costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from scheduler.engine.state.arrays import Amounts, Counts, Mask, read_only
from scheduler.engine.state.change_log import ChangeLog, RowChange
from scheduler.engine.state.columns import LabelColumn, PerDomain
from scheduler.engine.state.derived import DerivedValues
from scheduler.engine.state.existing_terms import ExistingPodTerm, ExistingTerms
from scheduler.engine.state.label_sets import LabelSet, LabelSets
from scheduler.engine.state.matching import PodMatcher
from scheduler.engine.state.node_table import NodeTable
from scheduler.engine.state.pod_columns import PodColumns
from scheduler.engine.state.rule_guard import not_for_rules

#: Bytes of a dictionary entry.
_ENTRY_BYTES: Final = 100
#: Bytes of a part of a matcher, which a count is kept by.
_PART_BYTES: Final = 700
#: Sets of domains that one count is kept for: topology keys with their eligible nodes. The oldest go first.
_MOST_DOMAINS: Final = 16
#: Label sets for which one count remembers whether it selects them; then it forgets all. Hot counts stay.
_MOST_VERDICTS: Final = 20_000
#: Terms that may select a label set and are tried one by one; more are weighed as arrays.
_FEW_TERMS: Final = 256
#: Terms that came or went and are weighed one by one; after more than that, all are weighed again.
_MANY_TERMS: Final = 4096
#: A term on more than one row in this many is added as an array, any other row by row.
_DENSE_SHARE: Final = 16


class KeyDomains(NamedTuple):
    """The domains of a key, formed by the `eligible` nodes: one array until nodes change, None for all."""

    column: LabelColumn
    eligible: Mask | None = None


@dataclass(slots=True, eq=False)
class PodCounts:
    """
    The number of pods that a matcher selects.

    `by_row`: int32 array of shape (n_rows,). `version`: the log's version when it last changed. `n_parts`: of the
    matcher. What readers get cannot be written to.
    """

    by_row: Counts
    version: int
    n_parts: int = 1
    #: The pods in domains, and as readers get them.
    _by_domain: dict[tuple[str, int], tuple[KeyDomains, PerDomain, PerDomain]] = field(default_factory=dict)
    _selects: dict[LabelSet, bool] = field(default_factory=dict)
    #: Of `by_row`.
    _own: Counts = field(init=False)

    def __post_init__(self) -> None:
        self._own, self.by_row = self.by_row, read_only(self.by_row)

    @property
    def nbytes(self) -> int:
        """Bytes, including the memo of selected label sets and the matcher."""
        by_domain = sum(
            pods.amounts.nbytes + (0 if eligible is None else eligible.nbytes)
            for (_, eligible), pods, _ in self._by_domain.values()
        )
        own = self.by_row.nbytes + _PART_BYTES * self.n_parts
        return own + by_domain + _ENTRY_BYTES * len(self._selects)

    def per_domain(self, domains: KeyDomains) -> PerDomain:
        """Return the pods in each of the domains. O(n_rows) the first time, then O(1)."""
        # `id()` is a safe key: the entry holds a strong reference to the array.
        key = (domains.column.key, id(domains.eligible))
        entry = self._by_domain.get(key)
        if entry is None:
            if len(self._by_domain) >= _MOST_DOMAINS:
                # Bounded: pods may have one selector with many node rules, and each change is applied to all kept ones.
                del self._by_domain[next(iter(self._by_domain))]
            added_up = self._added_up(domains)
            entry = self._by_domain[key] = (domains, added_up, added_up.read_only)
        return entry[2]

    def patch(
        self,
        changes: Sequence[RowChange],
        version: int,
        matches: Callable[[LabelSet], bool],
        *,
        live_only: bool,
    ) -> None:
        """Apply the changes up to the version. O(changes * cached domains)."""
        by_row, selects = self._own, self._selects
        for row, delta, label_set, is_live, _ in changes:
            if label_set is None or (live_only and not is_live):
                continue
            selected = selects.get(label_set)
            if selected is None:
                if len(selects) >= _MOST_VERDICTS:
                    selects.clear()
                selected = selects[label_set] = matches(label_set)
            if selected:
                by_row[row] += delta
                self.version = version
                for (_, eligible), pods, _ in self._by_domain.values():
                    if eligible is None or eligible.item(row):
                        pods.add(row, delta)

    def same_as(self, other: PodCounts) -> bool:
        """Return whether the counts are equal; for the audit."""
        return np.array_equal(self.by_row, other.by_row) and all(
            np.array_equal(pods.amounts, self._added_up(domains).amounts)
            for domains, pods, _ in self._by_domain.values()
        )

    def _added_up(self, domains: KeyDomains) -> PerDomain:
        eligible = domains.eligible
        return domains.column.per_domain(self.by_row if eligible is None else self.by_row * eligible)


@dataclass(slots=True, eq=False)
class TermSums:
    """
    The weighted sums of the existing terms that select one label set.

    `by_key`: sums per domain by topology key, which cannot be written to. `weights`: the weight of each term
    that was weighed alone, 0 if the term does not select the label set; it has every limiting term that does.
    """

    _own: dict[str, PerDomain] = field(default_factory=dict)
    weights: dict[ExistingPodTerm, int] = field(default_factory=dict)
    by_key: dict[str, PerDomain] = field(init=False)

    def __post_init__(self) -> None:
        self.by_key = {key: sums.read_only for key, sums in self._own.items()}

    def own(self, key: str, column: LabelColumn, n_rows: int) -> PerDomain:
        """Return the writable sums of the topology key; zeros at first."""
        sums = self._own.get(key)
        if sums is None:
            sums = self._own[key] = PerDomain(np.zeros(column.n_ids, dtype=np.int64), column.ids[:n_rows])
            self.by_key[key] = sums.read_only
        return sums

    def replace_by(self, other: TermSums) -> None:
        """Have the sums and weights of the other."""
        self._own, self.weights, self.by_key = other._own, other.weights, other.by_key

    @property
    def nbytes(self) -> int:
        """Bytes, including the weights."""
        by_key = sum(sums.amounts.nbytes for sums in self.by_key.values())
        return by_key + _ENTRY_BYTES * (len(self.weights) + 1)

    def same_as(self, other: TermSums) -> bool:
        """Return whether the sums are equal; a key whose sums are all 0 counts as absent. For the audit."""
        keys = self.by_key.keys() | other.by_key.keys()
        return all(np.array_equal(self._amounts(key), other._amounts(key)) for key in keys)

    def _amounts(self, key: str) -> Amounts:
        sums = self.by_key.get(key)
        return np.zeros(0, dtype=np.int64) if sums is None or not sums.amounts.any() else sums.amounts


@dataclass(frozen=True, slots=True)
class PodCounter:
    """Counts pods and terms per row. Returned values are valid until the next stimulus."""

    _log: ChangeLog
    _derived: DerivedValues
    _nodes: NodeTable
    _pods: PodColumns
    _label_sets: LabelSets
    _terms: ExistingTerms

    def selected(self, matcher: PodMatcher, *, live_only: bool = False) -> PodCounts:
        """Return the pods per row that the matcher selects; `live_only` leaves terminating ones out."""
        label_sets = self._label_sets

        def compute() -> PodCounts:
            selected = label_sets.selected(matcher)
            by_row = self._pods.per_row(selected, self._nodes.n_rows, live_only=live_only)
            return PodCounts(by_row, self._log.version, len(matcher.parts))

        def patch(counts: PodCounts, changes: Sequence[RowChange]) -> None:
            counts.patch(
                changes, self._log.version, partial(label_sets.matches, matcher), live_only=live_only
            )

        return self._derived.get((matcher, live_only), compute, patch)

    def declaring(self, term: ExistingPodTerm) -> Counts:
        """Return the pods per row that declare the term: int32 array of shape (n_rows,)."""

        def compute() -> Counts:
            counts = np.zeros(self._nodes.n_rows, dtype=np.int32)
            n = len(term.pods_by_row)
            counts[np.fromiter(term.pods_by_row, np.intp, n)] = np.fromiter(
                term.pods_by_row.values(), np.int32, n
            )
            return counts

        def patch(counts: Counts, changes: Sequence[RowChange]) -> None:
            for change in changes:
                counts[change.row] += change.delta * change.terms.count(term)

        return self._derived.get(("declaring", term), compute, patch)

    @not_for_rules
    def term_sums(
        self,
        purpose: Hashable,
        label_set: LabelSet,
        weight_of: Callable[[ExistingPodTerm], int],
        *,
        limiting: bool = False,
    ) -> TermSums:
        """
        Return the sums of the existing terms that select pods of the label set.

        Args:
            purpose: the cache key of `weight_of`; equal purposes must give equal weights.
            label_set: of the incoming pod.
            weight_of: returns the weight of a term by its kind, its own weight and `by_annotation`, 0 to leave it out.
            limiting: whether of the terms with maxPodsPerDomain above 1, or of all others.

        The first call: O(terms that may select the label set + their rows).
        """
        terms = self._terms
        if not limiting:
            label_set = terms.alike(label_set)

        def compute() -> TermSums:
            if not limiting and terms.n_may_select(label_set) > _FEW_TERMS:
                return TermSums(terms.sums(label_set, weight_of, self._columns_of, self._nodes.n_rows))
            term_sums = TermSums()
            # Weighed first: for each purpose most terms have no weight, and to try a selector takes 2 µs.
            for term in terms.may_select(label_set, limiting=limiting):
                weight = weight_of(term)
                if weight and self._label_sets.matches(term.key.matcher, label_set):
                    term_sums.weights[term] = weight
                    if self._is_somewhere(term):
                        self._add(term_sums, term, weight)
            return term_sums

        def patch(term_sums: TermSums, changes: Sequence[RowChange]) -> None:
            weights = term_sums.weights
            if not limiting:
                if sum(len(change.terms) for change in changes) > _MANY_TERMS:
                    term_sums.replace_by(compute())
                    return
                if len(weights) > _MANY_TERMS:
                    weights.clear()
            for row, delta, _, _, changed in changes:
                for term in changed:
                    if term.is_limiting is not limiting or not (weight := weight_of(term)):
                        continue
                    if term not in weights:
                        matches = self._label_sets.matches(term.key.matcher, label_set)
                        weights[term] = weight if matches else 0
                    weight = weights[term]
                    if weight and self._is_somewhere(term):
                        self._sums(term_sums, term).add(row, weight * delta)
                    if not term.pods_by_row:
                        # The term's last pod has left. An equal term of another pod is another object.
                        del weights[term]

        return self._derived.get((purpose, label_set), compute, patch)

    def _columns_of(self, keys: Collection[str]) -> dict[str, LabelColumn]:
        """Return the columns of the keys that a node has."""
        return {key: self._nodes.column(key) for key in self._nodes.labels & keys}

    def _is_somewhere(self, term: ExistingPodTerm) -> bool:
        """Return whether a node has the term's topology key: pods name keys as they like, and sums are kept by key."""
        return term.key.topology_key in self._nodes.labels

    def _add(self, term_sums: TermSums, term: ExistingPodTerm, weight: int) -> None:
        sums = self._sums(term_sums, term)
        if len(term.pods_by_row) * _DENSE_SHARE > self._nodes.n_rows:
            column = self._nodes.column(term.key.topology_key)
            np.add(sums.amounts, weight * column.per_domain(self.declaring(term)).amounts, out=sums.amounts)
        else:
            for row, n_pods in term.pods_by_row.items():
                sums.add(row, weight * n_pods)

    def _sums(self, term_sums: TermSums, term: ExistingPodTerm) -> PerDomain:
        """Return the sums of the term's topology key, which may be written to."""
        key = term.key.topology_key
        return term_sums.own(key, self._nodes.column(key), self._nodes.n_rows)

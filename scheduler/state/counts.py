"""
Pods and terms counted per node row, derived from the pod columns and patched pod by pod.

A count is made when a decision first asks for it; nobody pays for selectors that no decision asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from scheduler.state.arrays import Amounts, Counts
from scheduler.state.change_log import Change, ChangeLog
from scheduler.state.derived import DerivedValues
from scheduler.state.existing_terms import ExistingPodTerm, ExistingTerms
from scheduler.state.label_sets import LabelSet, LabelSets
from scheduler.state.matching import PodMatcher
from scheduler.state.node_table import NodeTable
from scheduler.state.pod_columns import PodColumns

#: Bytes of a dictionary entry.
_ENTRY_BYTES: Final = 100
#: A term on so large a share of the rows is added as an array, any other row by row.
_DENSE_SHARE: Final = 16


@dataclass(slots=True, eq=False)
class PodCounts:
    """
    Pods that a matcher selects.

    `by_row`: int32 array of shape (n_rows,), not to be written to. `version`: of the log when it last changed.
    """

    by_row: Counts
    version: int
    _selects: dict[LabelSet, bool] = field(default_factory=dict)

    def same_as(self, other: PodCounts) -> bool:
        """Return whether the counts are equal; for the audit."""
        return np.array_equal(self.by_row, other.by_row)

    @property
    def nbytes(self) -> int:
        """Bytes, the verdicts on label sets included."""
        return self.by_row.nbytes + _ENTRY_BYTES * len(self._selects)

    def patch(
        self, changes: Sequence[Change], version: int, matches: Callable[[LabelSet], bool], *, live_only: bool
    ) -> None:
        """Follow the changes, which lead to the version. O(changes), 0.1 µs each."""
        by_row, selects = self.by_row, self._selects
        for row, delta, label_set, is_live, _ in changes:
            if label_set is None or (live_only and not is_live):
                continue
            selected = selects.get(label_set)
            if selected is None:
                selected = selects[label_set] = matches(label_set)
            if selected:
                by_row[row] += delta
                self.version = version


@dataclass(slots=True, eq=False)
class TermSums:
    """
    The weighted sum of the existing terms that select one label set.

    `by_key`: by topology key an int64 array of shape (n_rows,), not to be written to. `weights`: by term its weight,
    0 if it does not count.
    """

    by_key: dict[str, Amounts] = field(default_factory=dict)
    weights: dict[ExistingPodTerm, int] = field(default_factory=dict)

    def same_as(self, other: TermSums) -> bool:
        """Return whether the sums are equal; a key whose sums are all 0 counts as absent. For the audit."""
        keys = self.by_key.keys() | other.by_key.keys()
        return not any(np.any(self.by_key.get(key, 0) - other.by_key.get(key, 0)) for key in keys)

    @property
    def nbytes(self) -> int:
        """Bytes, the weights of terms included."""
        return sum(sums.nbytes for sums in self.by_key.values()) + _ENTRY_BYTES * (len(self.weights) + 1)

    def sums_of(self, key: str, n_rows: int) -> Amounts:
        """Return the sums by the topology key, to be written to."""
        sums = self.by_key.get(key)
        if sums is None:
            sums = self.by_key[key] = np.zeros(n_rows, dtype=np.int64)
        return sums


class PodCounter:
    """Answers which pods and which terms are on which row. Values are valid until the next stimulus."""

    def __init__(
        self,
        *,
        log: ChangeLog,
        derived: DerivedValues,
        nodes: NodeTable,
        pods: PodColumns,
        label_sets: LabelSets,
        terms: ExistingTerms,
    ) -> None:
        self._log = log
        self._derived = derived
        self._nodes = nodes
        self._pods = pods
        self._label_sets = label_sets
        self._terms = terms

    def selected(self, matcher: PodMatcher, *, live_only: bool = False) -> PodCounts:
        """Return the pods per row that the matcher selects; `live_only` leaves terminating ones out."""
        label_sets = self._label_sets

        def compute() -> PodCounts:
            selected = label_sets.selected(matcher)
            return PodCounts(
                self._pods.per_row(selected, self._nodes.n_rows, live_only=live_only), self._log.version
            )

        def patch(counts: PodCounts, changes: Sequence[Change]) -> None:
            counts.patch(
                changes, self._log.version, lambda one: label_sets.matches(matcher, one), live_only=live_only
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

        def patch(counts: Counts, changes: Sequence[Change]) -> None:
            for change in changes:
                counts[change.row] += change.delta * change.terms.count(term)

        return self._derived.get(("declaring", term), compute, patch)

    def term_sums(
        self, purpose: Hashable, label_set: LabelSet, weight_of: Callable[[ExistingPodTerm], int]
    ) -> TermSums:
        """
        Return the sum of the existing terms that select pods of the label set.

        Args:
            purpose: names `weight_of`; equal purposes must weigh alike.
            label_set: of the incoming pod.
            weight_of: the weight of a term, 0 to leave it out.

        Cost: O(terms in changes since the last call), 0.2 µs each; O(terms that may select it + their rows) at first.
        """

        def compute() -> TermSums:
            found = TermSums()
            for term in self._terms.selecting(label_set):
                weight = found.weights[term] = weight_of(term)
                if weight:
                    self._add(found, term, weight)
            return found

        def patch(found: TermSums, changes: Sequence[Change]) -> None:
            weights = found.weights
            for row, delta, _, _, terms in changes:
                for term in terms:
                    weight = weights.get(term)
                    if weight is None:
                        selects = self._label_sets.matches(term.key.matcher, label_set)
                        weight = weights[term] = weight_of(term) if selects else 0
                    if weight:
                        sums = found.sums_of(term.key.topology_key, self._nodes.n_rows)
                        sums[row] += weight * delta

        return self._derived.get((purpose, label_set), compute, patch)

    def _add(self, found: TermSums, term: ExistingPodTerm, weight: int) -> None:
        n_rows = self._nodes.n_rows
        sums = found.sums_of(term.key.topology_key, n_rows)
        if len(term.pods_by_row) * _DENSE_SHARE > n_rows:
            sums += np.multiply(self.declaring(term), weight, dtype=np.int64)
        else:
            for row, n_pods in term.pods_by_row.items():
                sums[row] += weight * n_pods

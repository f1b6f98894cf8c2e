"""Sums of many terms' counts over domains, kept up to date by what changed instead of being added up anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from scheduler.state.arrays import Amounts
from scheduler.state.columns import ABSENT, LabelColumn
from scheduler.state.declared import DeclaredTerm
from scheduler.state.selection import LabelSet


@dataclass(slots=True)
class _Part:
    """How far one term is contained in the sum."""

    column: LabelColumn
    column_version: int
    counts_version: int
    #: Declaring pods on nodes that have the topology key.
    n_reaching: int


#: Label sets whose sums are kept, 40 KB each at 5,000 nodes: pods of a stateful set have one each.
MAX_KEPT: Final = 1024


class KeptSums:
    """The sums of the label sets that were asked about last."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[LabelSet, TermSums] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, label_set: LabelSet, column_of: Callable[[str], LabelColumn]) -> TermSums:
        """The sums of the label set, empty ones where none are kept; past `MAX_KEPT` the oldest go."""
        sums = self._kept.get(label_set)
        if sums is None:
            while len(self._kept) >= MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            sums = self._kept[label_set] = TermSums(column_of)
        return sums


class TermSums:
    """
    For the pods of one label set: the weighted sum, per node, of how often terms are declared in the node's domain.

    With a thousand tenants a pod is selected by a thousand terms, of which one or two have moved since the last
    decision. Keeps one array, whatever the number of terms.
    """

    def __init__(self, column_of: Callable[[str], LabelColumn]) -> None:
        self._column_of = column_of
        self._parts: dict[DeclaredTerm, _Part] = {}
        self._total: Amounts = np.zeros(0, dtype=np.int64)
        self._n_reaching = 0

    def updated(self, terms: Sequence[tuple[DeclaredTerm, int]], n_rows: int) -> Amounts | None:
        """
        The sum over `terms`, each times its weight; None where no term is declared on a node that has its key.

        int64 array of shape (n_rows,), not to be written to, valid until the next stimulus. It may be 0 everywhere and
        still not be None: upstream tells the two apart.
        Cost: O(terms) look-ups of 0.1 µs, O(n_rows) per change of a term; all are added anew where nodes changed.
        """
        if not self._follow(terms, n_rows):
            self._build(terms, n_rows)
        return self._total if self._n_reaching else None

    def _follow(self, terms: Sequence[tuple[DeclaredTerm, int]], n_rows: int) -> bool:
        """Adds what changed since the last time; False where that is not known for every term."""
        if len(self._total) != n_rows:
            return False
        behind: list[tuple[DeclaredTerm, int, _Part | None]] = []
        n_known = 0
        for term, weight in terms:
            part = self._parts.get(term)
            if part is None:
                behind.append((term, weight, None))
                continue
            n_known += 1
            if part.column_version != part.column.version:
                return False
            if part.counts_version != term.counts.version:
                behind.append((term, weight, part))
        if n_known != len(self._parts):
            return False
        for term, weight, part in behind:
            changes = term.counts.changes_since(0 if part is None else part.counts_version)
            if changes is None:
                return False
            self._add(term, weight, self._new_part(term) if part is None else part, changes)
        return True

    def _new_part(self, term: DeclaredTerm) -> _Part:
        column = self._column_of(term.topology_key)
        part = self._parts[term] = _Part(column, column.version, 0, 0)
        return part

    def _add(self, term: DeclaredTerm, weight: int, part: _Part, changes: Iterable[tuple[int, int]]) -> None:
        ids = part.column.ids[: len(self._total)]
        for row, delta in changes:
            domain = ids[row]
            if domain == ABSENT:
                continue
            if part.column.is_unique:
                self._total[row] += delta * weight
            else:
                np.add(self._total, delta * weight, out=self._total, where=ids == domain)
            part.n_reaching += delta
            self._n_reaching += delta
        part.counts_version = term.counts.version

    def _build(self, terms: Iterable[tuple[DeclaredTerm, int]], n_rows: int) -> None:
        self._parts = {}
        self._total = np.zeros(n_rows, dtype=np.int64)
        self._n_reaching = 0
        for term, weight in terms:
            part = self._new_part(term)
            part.counts_version = term.counts.version
            counts = term.counts.rows(n_rows)
            part.n_reaching = int(counts[part.column.ids[:n_rows] != ABSENT].sum())
            self._total += weight * term.counts.per_node(part.column, n_rows)
            self._n_reaching += part.n_reaching

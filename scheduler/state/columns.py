"""A node label as a column of domain ids, and pods counted per node row; together they give counts per domain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler.state.arrays import Amounts, Counts, Mask, Rows, grown

#: Domain id of a node that lacks the label. Real domains start at 1, so that a gather needs no mask.
ABSENT: Final = 0

_FIRST_CAPACITY: Final = 64

#: Changes that counts remember; following more of them one by one costs more than a sum over all rows.
_REMEMBERED_CHANGES: Final = 16

#: Topology keys for which counts keep their sums per node, 40 KB each at 5,000 nodes. Pods have one to three.
_KEPT_KEYS: Final = 8

#: Rows for each of which an array takes as much memory as a dict for one row with pods.
_SPARSE_SHARE: Final = 16


class LabelColumn:
    """
    One node label over all rows: equal values share a domain id.

    Relabelling a node changes its id here and nothing else: pods are counted per row, never per domain.
    """

    def __init__(self, key: str, capacity: int, version: int = 0) -> None:
        self.key = key
        #: intp, shape (capacity,). ABSENT where the row has no live node or the node lacks the label.
        self.ids: Rows = np.zeros(capacity, dtype=np.intp)
        #: Domain id of each value in use; ids of vanished values are given out again.
        self.id_by_value: dict[str, int] = {}
        #: Nodes per domain id; index 0 is not used.
        self._members: list[int] = [0]
        self._free: list[int] = []
        self._value_by_id: list[str] = [""]
        self._n_shared = 0
        #: Nodes that have the label.
        self.n_labelled = 0
        #: Moves whenever an id moves: what is derived from the column is stamped with it.
        self.version = version
        self._in_use: tuple[int, Mask] = (-1, np.zeros(1, dtype=np.bool_))

    @property
    def n_ids(self) -> int:
        """One more than the highest domain id: the length of arrays indexed by domain."""
        return len(self._members)

    @property
    def is_unique(self) -> bool:
        """Whether no two nodes share a value, as with the hostname: a node's counts are then its domain's."""
        return self._n_shared == 0

    @property
    def n_domains(self) -> int:
        """Number of values that at least one node has."""
        return len(self.id_by_value)

    def value_of(self, domain_id: int) -> str:
        """The label value of a domain."""
        return self._value_by_id[domain_id]

    def set(self, row: int, value: str | None) -> None:
        """The row now has this value, or lacks the label where None. O(1)."""
        if row >= len(self.ids):
            self.ids = grown(self.ids, max(row + 1, 2 * len(self.ids)), ABSENT)
        old = int(self.ids[row])
        new = self.id_by_value.get(value, ABSENT) if value is not None else ABSENT
        if old == new and (value is None or new != ABSENT):
            return
        if value is not None and new == ABSENT:
            new = self._add_domain(value)
        self.ids[row] = new
        self.version += 1
        self.n_labelled += (new != ABSENT) - (old != ABSENT)
        if new != ABSENT:
            self._members[new] += 1
            self._n_shared += self._members[new] == 2
        if old != ABSENT:
            self._members[old] -= 1
            self._n_shared -= self._members[old] == 1
            if self._members[old] == 0:
                del self.id_by_value[self._value_by_id[old]]
                self._free.append(old)

    def _add_domain(self, value: str) -> int:
        if self._free:
            domain = self._free.pop()
            self._value_by_id[domain] = value
        else:
            domain = len(self._members)
            self._members.append(0)
            self._value_by_id.append(value)
        self.id_by_value[value] = domain
        return domain

    def sums(self, amounts: Amounts | Counts) -> Amounts:
        """
        Amounts added up per domain: int64 array of shape (n_ids,), entry ABSENT always 0.

        Args:
            amounts: shape (n_rows,), any integers below 2**53 in sum (bincount adds in float64).

        Cost: O(n_rows), 6 µs at 5,000.
        """
        totals = np.bincount(self.ids[: len(amounts)], weights=amounts, minlength=self.n_ids).astype(np.int64)
        totals[ABSENT] = 0
        return totals

    def in_use(self) -> Mask:
        """Which domains have a node: bool array of shape (n_ids,), not to be written to. O(n_ids) after a change."""
        if self._in_use[0] != self.version:
            self._in_use = (self.version, np.array(self._members) > 0)
        return self._in_use[1]

    def present(self, eligible: Mask) -> Mask:
        """Which domains have an eligible node: bool array of shape (n_ids,), entry ABSENT always False."""
        found = np.zeros(self.n_ids, dtype=np.bool_)
        found[self.ids[: len(eligible)][eligible]] = True
        found[ABSENT] = False
        return found


@dataclass(slots=True)
class _PerNode:
    """Counts seen through one column, as of these versions. `totals` per domain id; none where it is unique."""

    version: int
    column_version: int
    totals: Amounts | None
    found: Amounts


class RowCounts:
    """
    Pods of one kind per node row. Sparse until a decision asks for it, dense from then on.

    Invariant: equal to a recount over all placed pods after every stimulus (state.audit).
    """

    __slots__ = ("_changes", "_dense", "_per_node", "_sparse", "total", "version")

    def __init__(self, by_row: dict[int, int] | None = None) -> None:
        """The counts that the dict holds, none of them 0; it is theirs from now on."""
        self._changes: list[tuple[int, int]] = []
        self._sparse: dict[int, int] | None = {} if by_row is None else by_row
        self._dense: Counts = np.zeros(0, dtype=np.int32)
        self._per_node: dict[str, _PerNode] = {}
        #: Pods counted on all rows, rows of vanished nodes included.
        self.total = sum(self._sparse.values()) if self._sparse else 0
        #: Changes so far; what was there from the beginning counts as one that is not remembered.
        self.version = int(self.total != 0)

    def add(self, row: int, delta: int) -> None:
        """The row has `delta` pods more (or fewer). O(1)."""
        self.version += 1
        self.total += delta
        self._changes.append((row, delta))
        if len(self._changes) > 2 * _REMEMBERED_CHANGES:
            del self._changes[:_REMEMBERED_CHANGES]
        if self._sparse is None:
            if row >= len(self._dense):
                self._dense = grown(self._dense, max(row + 1, 2 * len(self._dense)))
            self._dense[row] += delta
            return
        count = self._sparse.get(row, 0) + delta
        if count:
            self._sparse[row] = count
        else:
            del self._sparse[row]

    def at(self, row: int) -> int:
        """Pods on the row. O(1)."""
        if self._sparse is not None:
            return self._sparse.get(row, 0)
        return self._dense.item(row) if row < len(self._dense) else 0

    def few(self, n_rows: int) -> Iterable[tuple[int, int]] | None:
        """(row, pods) of every row that has some, where they are so few that an array would be larger; else None."""
        if self._sparse is None or len(self._sparse) * _SPARSE_SHARE > n_rows:
            return None
        return self._sparse.items()

    def changes_since(self, version: int) -> list[tuple[int, int]] | None:
        """(row, delta) of each change after `version`, oldest first; None where they are too many to know."""
        n_changes = self.version - version
        if n_changes > min(len(self._changes), _REMEMBERED_CHANGES):
            return None
        return self._changes[len(self._changes) - n_changes :]

    def rows(self, n_rows: int) -> Counts:
        """int32 array of shape (n_rows,): a view, valid until the next stimulus."""
        if self._sparse is not None:
            highest = max(self._sparse, default=-1)
            self._dense = np.zeros(max(n_rows, highest + 1, _FIRST_CAPACITY), dtype=np.int32)
            for row, count in self._sparse.items():
                self._dense[row] = count
            self._sparse = None
        if len(self._dense) < n_rows:
            self._dense = grown(self._dense, max(n_rows, 2 * len(self._dense)))
        return self._dense[:n_rows]

    def per_node(self, column: LabelColumn, n_rows: int) -> Amounts:
        """
        For every node the pods in its domain of `column`; 0 where the node lacks the label.

        int64 array of shape (n_rows,), not to be written to.
        Cost: O(1) where nothing moved, one gather where a few pods did (4 µs at 5,000 nodes), else O(n_rows).
        """
        return self._seen(column, n_rows).found

    def per_domain(self, column: LabelColumn, n_rows: int) -> Amounts:
        """Pods in each domain of `column`: int64 array of shape (n_ids,), not to be written to. Cost as `per_node`."""
        totals = self._seen(column, n_rows).totals
        return column.sums(self.rows(n_rows)) if totals is None else totals

    def _seen(self, column: LabelColumn, n_rows: int) -> _PerNode:
        kept = self._per_node.get(column.key)
        changes = None
        if kept is not None and kept.column_version == column.version and len(kept.found) == n_rows:
            if kept.version == self.version:
                return kept
            changes = self.changes_since(kept.version)
        if kept is None or changes is None:
            kept = self._seen_through(column, n_rows)
            self._keep(column.key, kept)
        else:
            self._follow(kept, column.ids[:n_rows], changes)
        return kept

    def _keep(self, key: str, seen: _PerNode) -> None:
        if key not in self._per_node and len(self._per_node) == _KEPT_KEYS:
            del self._per_node[next(iter(self._per_node))]
        self._per_node[key] = seen

    def _seen_through(self, column: LabelColumn, n_rows: int) -> _PerNode:
        counts, ids = self.rows(n_rows), column.ids[:n_rows]
        totals = None if column.is_unique else column.sums(counts)
        found = np.where(ids != ABSENT, counts, 0).astype(np.int64) if totals is None else totals.take(ids)
        return _PerNode(self.version, column.version, totals, found)

    def _follow(self, kept: _PerNode, ids: Rows, changes: Iterable[tuple[int, int]]) -> None:
        # Rows without a node, some of them beyond `ids`, are in no domain.
        moved = [(row, delta) for row, delta in changes if row < len(ids) and ids.item(row) != ABSENT]
        if moved and kept.totals is None:
            kept.found = kept.found.copy()
            for row, delta in moved:
                kept.found[row] += delta
        elif moved and kept.totals is not None:
            kept.totals = kept.totals.copy()
            for row, delta in moved:
                kept.totals[ids.item(row)] += delta
            kept.found = kept.totals.take(ids)
        kept.version = self.version

    def items(self) -> Iterator[tuple[int, int]]:
        """(row, count) of every row that has pods; for the audit and for explanations."""
        if self._sparse is not None:
            yield from self._sparse.items()
            return
        for row in np.flatnonzero(self._dense).tolist():
            yield row, int(self._dense[row])

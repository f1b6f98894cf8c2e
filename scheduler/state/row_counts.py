"""Pods of one kind counted per node row; together with a label column they give counts per domain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from scheduler.state.arrays import Amounts, Counts, Mask, Rows, grown
from scheduler.state.columns import ABSENT, LabelColumn, Reached

_FIRST_CAPACITY: Final = 64

#: Changes that counts remember; following more of them one by one costs more than a sum over all rows.
_REMEMBERED_CHANGES: Final = 16

#: Rows for each of which an array takes as much memory as a dict for one row with pods.
_SPARSE_SHARE: Final = 16

#: Topology keys and thresholds for which counts keep who reaches them, 10 KB each at 5,000 nodes.
_KEPT_THRESHOLDS: Final = 8

#: Topology keys and masks for which counts keep their sums per domain: up to 40 KB each, little but for hostnames.
_KEPT_MASKS: Final = 4

_K = TypeVar("_K")
_V = TypeVar("_V")


class PerDomain:
    """
    Pods in each domain of a column, counted on the nodes of `among` (None: all) alone.

    `totals`: int64 array of shape (n_ids,), entry ABSENT 0. `domains`: ids of the domains that those nodes make, in
    ascending order. Neither is to be written to, and both are of when `follow` was called last.
    """

    __slots__ = (
        "_column",
        "_column_version",
        "_fewest",
        "_n_fewest",
        "_version",
        "among",
        "domains",
        "totals",
    )

    def __init__(self, counts: RowCounts, column: LabelColumn, n_rows: int, among: Mask | None) -> None:
        """As of now. O(n_rows)."""
        pods = counts.rows(n_rows)
        self.among = among
        self.totals: Amounts = column.sums(pods if among is None else np.where(among, pods, 0))
        self.domains: Rows = column.domains(among)
        self._version = counts.version
        self._column, self._column_version = column, column.version
        #: The fewest pods in one of the domains, and in how many; 0 domains where that has to be looked up.
        self._fewest = self._n_fewest = 0

    def follow(self, counts: RowCounts) -> bool:
        """It is of now, from the same counts; False where it cannot be: too much has changed. O(1) where little has."""
        column = self._column
        if column.version != self._column_version:
            return False
        if counts.version == self._version:
            return True
        changes = counts.changes_since(self._version)
        if changes is None:
            return False
        ids, among = column.ids, self.among
        for row, delta in changes:
            # Rows without a node, some of them beyond `ids`, are in no domain.
            domain = ids.item(row) if row < len(ids) else ABSENT
            if domain != ABSENT and (among is None or among.item(row)):
                before = self.totals.item(domain)
                self.totals[domain] = after = before + delta
                if self._n_fewest:
                    self._move(before, after)
        self._version = counts.version
        return True

    def fewest(self) -> int:
        """The fewest pods in one of the domains, 0 without domains. O(1) until the last of the emptiest gets one."""
        if not self._n_fewest and len(self.domains):
            amounts = self.totals.take(self.domains)
            self._fewest = int(amounts.min())
            self._n_fewest = int(np.count_nonzero(amounts == self._fewest))
        return self._fewest

    def _move(self, before: int, after: int) -> None:
        self._n_fewest -= before == self._fewest
        if after < self._fewest:
            self._fewest, self._n_fewest = after, 1
        else:
            self._n_fewest += after == self._fewest


@dataclass(slots=True)
class _Followed:
    """Nodes that are domains of their own, pods counted on the nodes of `among` alone, as of these versions."""

    reached: Reached
    among: Mask | None
    version: int
    column_version: int

    def follow(self, counts: RowCounts, ids: Rows, least: int, changes: Sequence[tuple[int, int]]) -> None:
        """The counts have changed by these (row, delta) since."""
        reached, among = self.reached, self.among
        for row, _ in changes:
            # Rows without a node, some of them beyond `ids`, are in no domain.
            if row >= len(reached.mask) or ids.item(row) == ABSENT:
                continue
            reaches = counts.at(row) >= least and (among is None or among.item(row))
            if reached.mask.item(row) != reaches:
                reached.mask[row], reached.below[row] = reaches, not reaches
                reached.n += 1 if reaches else -1
        self.version = counts.version


class RowCounts:
    """
    Pods of one kind per node row. Sparse until a decision asks for it, dense from then on.

    Invariant: equal to a recount over all placed pods after every stimulus (state.audit).
    """

    __slots__ = ("_changes", "_dense", "_per_domain", "_reached", "_sparse", "total", "version")

    def __init__(self, by_row: dict[int, int] | None = None) -> None:
        """The counts that the dict holds, none of them 0; it is theirs from now on."""
        self._changes: list[tuple[int, int]] = []
        self._sparse: dict[int, int] | None = {} if by_row is None else by_row
        self._dense: Counts = np.zeros(0, dtype=np.int32)
        #: By topology key, threshold and the mask's identity, which is its own for as long as it is kept here.
        self._reached: dict[tuple[str, int, int], _Followed] = {}
        #: By topology key and the mask's identity, likewise.
        self._per_domain: dict[tuple[str, int], PerDomain] = {}
        #: Pods counted on all rows, rows of vanished nodes included.
        self.total = sum(self._sparse.values()) if self._sparse else 0
        #: Changes so far; what was there from the beginning counts as one that is not remembered.
        self.version = int(self.total != 0)

    def add(self, row: int, delta: int) -> None:
        """The row has `delta` pods more (or fewer). O(1)."""
        self.version += 1
        self.total += delta
        changes, dense = self._changes, self._dense
        changes.append((row, delta))
        if len(changes) > 2 * _REMEMBERED_CHANGES:
            del changes[:_REMEMBERED_CHANGES]
        if self._sparse is None:
            if row >= len(dense):
                self._dense = dense = grown(dense, max(row + 1, 2 * len(dense)))
            dense[row] = dense.item(row) + delta
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

        int64 array of shape (n_rows,). Cost: one gather (4 µs at 5,000 nodes) where few pods moved, else O(n_rows).
        """
        # No id is beyond them; other modes look first.
        return self.per_domain(column, n_rows).totals.take(column.ids[:n_rows], mode="clip")

    def reached(self, column: LabelColumn, least: int, n_rows: int, among: Mask | None = None) -> Reached:
        """
        The nodes in whose domain of `column` there are `least` pods or more; nodes without the label are not.

        Args:
            column: of the topology key.
            least: at least 1.
            n_rows: nodes.
            among: as in `per_domain`.

        Cost: O(1) where a few pods moved and it was asked shortly before, O(domains) where they have several nodes;
        where the nodes in other domains are asked for than lately a gather (8 µs at 5,000 nodes), else O(n_rows).
        """
        if not column.is_unique:
            return column.parted(self.per_domain(column, n_rows, among).totals >= least, n_rows)
        key = (column.key, least, id(among))
        kept = self._reached.get(key)
        if kept is not None and kept.column_version == column.version and len(kept.reached.mask) == n_rows:
            if kept.version == self.version:
                return kept.reached
            changes = self.changes_since(kept.version)
            if changes is not None:
                kept.follow(self, column.ids, least, changes)
                return kept.reached
        # Where a node is its domain its own pods decide.
        mask: Mask = (self.rows(n_rows) >= least) & (column.ids[:n_rows] != ABSENT)
        reached = Reached.by(mask if among is None else mask & among)
        _keep(self._reached, key, _Followed(reached, among, self.version, column.version), _KEPT_THRESHOLDS)
        return reached

    def per_domain(self, column: LabelColumn, n_rows: int, among: Mask | None = None) -> PerDomain:
        """
        Pods in each domain of `column`, and which domains there are; where asked, as if there were some nodes alone.

        Args:
            column: of the topology key.
            n_rows: nodes.
            among: the nodes that hold counted pods and make domains, shape (n_rows,). What is found is kept with this
                very array, which is then never written to.

        Cost: O(1) where few pods moved, else O(n_rows).
        """
        key = (column.key, id(among))
        kept = self._per_domain.get(key)
        if kept is None or not kept.follow(self):
            kept = PerDomain(self, column, n_rows, among)
            _keep(self._per_domain, key, kept, _KEPT_MASKS)
        return kept

    def items(self) -> Iterator[tuple[int, int]]:
        """(row, count) of every row that has pods; for the audit and for explanations."""
        if self._sparse is not None:
            yield from self._sparse.items()
            return
        for row in np.flatnonzero(self._dense).tolist():
            yield row, int(self._dense[row])


def _keep(kept: dict[_K, _V], key: _K, value: _V, n_most: int) -> None:
    """The value stands under the key; what came first goes where there are more."""
    if key not in kept and len(kept) == n_most:
        del kept[next(iter(kept))]
    kept[key] = value

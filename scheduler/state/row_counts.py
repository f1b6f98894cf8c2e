"""Pods of one kind counted per node row; together with a label column they give counts per domain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

import numpy as np

from scheduler.state.arrays import Amounts, Counts, Mask, Rows, grown
from scheduler.state.columns import ABSENT, LabelColumn, Reached

_FIRST_CAPACITY: Final = 64

#: Changes that counts remember; following more of them one by one costs more than a sum over all rows.
_REMEMBERED_CHANGES: Final = 16
_MOST_CHANGES: Final = 2 * _REMEMBERED_CHANGES

#: Rows for each of which an array takes as much memory as a dict for one row with pods.
_SPARSE_SHARE: Final = 16

#: Topology keys and thresholds for which counts keep who reaches them, 10 KB each at 5,000 nodes.
_KEPT_THRESHOLDS: Final = 8

#: Topology keys and masks for which counts keep their sums per domain: up to 40 KB each, little but for hostnames.
_KEPT_MASKS: Final = 4

_K = TypeVar("_K")
_F = TypeVar("_F", bound="_Follower")


class _Follower:
    """What is told of every pod that comes or goes, until several have and nobody has read it."""

    __slots__ = ("_column", "_column_version", "_n_rows", "among", "is_told", "was_read")

    def __init__(self, column: LabelColumn, n_rows: int, among: Mask | None) -> None:
        """Of the column as it is now. `among`: held, since its identity is part of what this is found by."""
        self._column, self._column_version, self._n_rows = column, column.version, n_rows
        self.among = among
        #: See `RowCounts.add`.
        self.is_told = self.was_read = True

    def is_of(self, column: LabelColumn, n_rows: int) -> bool:
        """Whether the column is the same, and as it was, and so many nodes."""
        is_same = self._column is column and self._column_version == column.version
        return is_same and self._n_rows == n_rows


class PerDomain(_Follower):
    """
    Pods in each domain of a column, counted on the nodes of `among` (None: all) alone.

    `totals`: int64 array of shape (n_ids,), entry ABSENT 0. `domains`: ids of the domains that those nodes make, in
    ascending order. Neither is to be written to. Both are of now for as long as it is told and labels are the same.
    """

    __slots__ = ("_fewest", "_least", "_n_domains_with", "_reached", "domains", "totals")

    def __init__(self, counts: RowCounts, column: LabelColumn, n_rows: int, among: Mask | None) -> None:
        """As of now. O(n_rows)."""
        super().__init__(column, n_rows, among)
        pods = counts.rows(n_rows)
        self.totals: Amounts = column.sums(pods if among is None else np.where(among, pods, 0))
        self.domains: Rows = column.domains(among)
        #: In how many of the domains there are so many pods, and the fewest of these; None before anybody asks.
        self._n_domains_with: dict[int, int] | None = None
        self._fewest = 0
        #: The last answer of `reached`, None where it is another now, and to what.
        self._reached: Reached | None = None
        self._least = 0

    def tell(self, row: int, delta: int) -> None:
        """The row has `delta` pods more. O(1)."""
        column, among = self._column, self.among
        if column.version != self._column_version:
            # Nobody asks it any more, and it has no place for new domains.
            return
        # Rows without a node, some of them beyond the ids, are in no domain.
        domain = column.ids.item(row) if row < len(column.ids) else ABSENT
        if domain == ABSENT or not (among is None or among.item(row)):
            return
        before = self.totals.item(domain)
        self.totals[domain] = after = before + delta
        if self._n_domains_with is not None:
            self._move(self._n_domains_with, before, after)
        if (before < self._least) is not (after < self._least):
            self._reached = None

    def reached(self, least: int) -> Reached:
        """
        The nodes in whose domain there are `least` pods or more, `least` being at least 1.

        O(1) where no domain has got so many or lost them since the same was asked, else as `LabelColumn.parted`.
        """
        self.was_read = True
        found = self._reached
        if found is None or least != self._least:
            found = self._reached = self._column.parted(self.totals >= least, self._n_rows)
            self._least = least
        return found

    def fewest(self) -> int:
        """The fewest pods in one of the domains, 0 without domains. O(domains) for the first time, then O(1)."""
        if self._n_domains_with is None:
            self._n_domains_with = dict(Counter(self.totals.take(self.domains).tolist()))
            self._fewest = min(self._n_domains_with, default=0)
        return self._fewest

    def _move(self, n_domains_with: dict[int, int], before: int, after: int) -> None:
        """A domain has so many pods now. O(1), or O(different numbers) where it was the last of the emptiest."""
        n_domains_with[after] = n_domains_with.get(after, 0) + 1
        n_domains_with[before] -= 1
        if not n_domains_with[before]:
            del n_domains_with[before]
        if after < self._fewest:
            self._fewest = after
        elif self._fewest not in n_domains_with:
            self._fewest = min(n_domains_with)


class _PerNode(_Follower):
    """Which nodes that are domains of their own have so many pods, counted on the nodes of `among` alone."""

    __slots__ = ("_counting", "_least", "_now")

    def __init__(
        self, counts: RowCounts, column: LabelColumn, n_rows: int, among: Mask | None, least: int
    ) -> None:
        """As of now. O(n_rows)."""
        super().__init__(column, n_rows, among)
        self._least = least
        #: Nodes that make domains and hold counted pods.
        self._counting: Mask = column.ids[:n_rows] != ABSENT
        if among is not None:
            self._counting &= among
        self._now = Reached.by((counts.rows(n_rows) >= least) & self._counting)

    def tell(self, row: int, n_pods: int) -> None:
        """The row has so many pods now. O(1)."""
        counting, now = self._counting, self._now
        # Rows without a node, some of them beyond all nodes, are in no domain.
        if row < len(counting) and counting.item(row):
            reaches = n_pods >= self._least
            if now.mask.item(row) is not reaches:
                now.mask[row], now.below[row] = reaches, not reaches
                now.n += 1 if reaches else -1

    def reached(self, _least: int) -> Reached:
        """Those nodes; what it is asked is what it was made for. O(1)."""
        self.was_read = True
        return self._now


class Threshold:
    """So many pods in a domain: which nodes have them, asked again and again while nodes are the same."""

    __slots__ = ("_column", "_counts", "_follower", "_least", "_n_rows")

    def __init__(self, counts: RowCounts, column: LabelColumn, least: int, n_rows: int) -> None:
        """Nobody has asked."""
        self._counts = counts
        self._column = column
        self._least = least
        self._n_rows = n_rows
        self._follower: PerDomain | _PerNode | None = None

    def reached(self) -> Reached:
        """See `RowCounts.reached`. O(1) where no domain of several nodes has got so many pods or lost them."""
        follower = self._follower
        if follower is None or not follower.is_told:
            follower = self._counts.follower(self._column, self._least, self._n_rows)
            self._follower = follower
        return follower.reached(self._least)


class RowCounts:
    """
    Pods of one kind per node row. Sparse until a decision asks for it, dense from then on.

    Invariant: equal to a recount over all placed pods after every stimulus (state.audit).
    """

    __slots__ = ("_changes", "_dense", "_per_domain", "_per_node", "_sparse", "total", "version")

    def __init__(self, by_row: dict[int, int] | None = None) -> None:
        """The counts that the dict holds, none of them 0; it is theirs from now on."""
        self._changes: list[tuple[int, int]] = []
        self._sparse: dict[int, int] | None = {} if by_row is None else by_row
        self._dense: Counts = np.zeros(0, dtype=np.int32)
        #: By topology key, threshold and the mask's identity, which is its own for as long as it is kept here.
        self._per_node: dict[tuple[str, int, int], _PerNode] = {}
        #: By topology key and the mask's identity, likewise.
        self._per_domain: dict[tuple[str, int], PerDomain] = {}
        #: Pods counted on all rows, rows of vanished nodes included.
        self.total = sum(self._sparse.values()) if self._sparse else 0
        #: Changes so far; what was there from the beginning counts as one that is not remembered.
        self.version = int(self.total != 0)

    def add(self, row: int, delta: int) -> None:
        """The row has `delta` pods more (or fewer). O(1). Followers are told, and dropped where nobody reads them."""
        self.version += 1
        self.total += delta
        changes, dense = self._changes, self._dense
        changes.append((row, delta))
        if len(changes) > _MOST_CHANGES:
            del changes[:_REMEMBERED_CHANGES]
            _drop_unread(self._per_node)
            _drop_unread(self._per_domain)
        if self._sparse is not None:
            count = self._sparse.get(row, 0) + delta
            if count:
                self._sparse[row] = count
            else:
                del self._sparse[row]
            return
        if row >= len(dense):
            self._dense = dense = grown(dense, max(row + 1, 2 * len(dense)))
        dense[row] = n_pods = dense.item(row) + delta
        for per_node in self._per_node.values():
            per_node.tell(row, n_pods)
        for per_domain in self._per_domain.values():
            per_domain.tell(row, delta)

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
        changes, n_changes = self._changes, self.version - version
        if n_changes > _REMEMBERED_CHANGES or n_changes > len(changes):
            return None
        return changes[len(changes) - n_changes :]

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
        return self.follower(column, least, n_rows, among).reached(least)

    def follower(
        self, column: LabelColumn, least: int, n_rows: int, among: Mask | None = None
    ) -> PerDomain | _PerNode:
        """Who says that, and will for as long as it is told."""
        if not column.is_unique:
            return self.per_domain(column, n_rows, among)
        # Where a node is its domain its own pods decide.
        key = (column.key, least, id(among))
        kept = self._per_node.get(key)
        if kept is None or not kept.is_of(column, n_rows):
            kept = _PerNode(self, column, n_rows, among, least)
            _keep(self._per_node, key, kept, _KEPT_THRESHOLDS)
        return kept

    def per_domain(self, column: LabelColumn, n_rows: int, among: Mask | None = None) -> PerDomain:
        """
        Pods in each domain of `column`, and which domains there are; where asked, as if there were some nodes alone.

        Args:
            column: of the topology key.
            n_rows: nodes.
            among: the nodes that hold counted pods and make domains, shape (n_rows,). What is found is kept with this
                very array, which is then never written to.

        Cost: O(1) where it was asked shortly before, else O(n_rows).
        """
        key = (column.key, id(among))
        kept = self._per_domain.get(key)
        if kept is None or not kept.is_of(column, n_rows):
            kept = PerDomain(self, column, n_rows, among)
            _keep(self._per_domain, key, kept, _KEPT_MASKS)
        kept.was_read = True
        return kept

    def items(self) -> Iterator[tuple[int, int]]:
        """(row, count) of every row that has pods; for the audit and for explanations."""
        if self._sparse is not None:
            yield from self._sparse.items()
            return
        for row in np.flatnonzero(self._dense).tolist():
            yield row, int(self._dense[row])


def _keep(followers: dict[_K, _F], key: _K, new: _F, n_most: int) -> None:
    """It stands under the key; who came first goes where there are more."""
    gone = followers.pop(key, None)
    if gone is None and len(followers) == n_most:
        gone = followers.pop(next(iter(followers)))
    if gone is not None:
        gone.is_told = False
    followers[key] = new


def _drop_unread(followers: dict[_K, _F]) -> None:
    """Who was not read since this was done last goes: to be told costs as much as to be made anew after 16 changes."""
    for key, one in list(followers.items()):
        if not one.was_read:
            one.is_told = False
            del followers[key]
        one.was_read = False

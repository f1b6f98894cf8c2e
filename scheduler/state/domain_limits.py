"""
Which domains a limiting term has filled: kept at every event, so that a decision reads them as plain anti-affinity.

A domain is full for a newcomer where a pod declares the term and where as many pods that it selects are as it lets be
beside that one. A full domain closes as if one pod with the same anti-affinity, without a limit, ran in it:
`DomainLimit.counts` has that one pod, on any row of the domain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import numpy as np

from scheduler.state.node_table import NodeTable
from scheduler.state.row_counts import RowCounts
from scheduler.state.selection import LabelSet, Rematched, Selection, SelectionIndex

_NO_LABELS: Final[Mapping[str, str]] = {}

#: The rows of the nodes that have this value of this topology key.
Members = Callable[[str, str], frozenset[int]]


@dataclass(slots=True, eq=False)
class DomainLimit:
    """
    One limiting term's domains, by label value. Only those where a pod declares the term are counted.

    Invariant: equal to a recount over all placed pods after every stimulus (state.audit).
    """

    topology_key: str
    #: Selected pods from which on a domain is full for one more: a declaring pod does not count against itself.
    room: int
    selection: Selection
    #: Pods per row that declare the term.
    declaring: RowCounts
    #: One at one row of each full domain.
    counts: RowCounts = field(default_factory=RowCounts)
    #: Pods that declare the term, and pods that it selects, in each domain that has one of the former.
    declared: dict[str, int] = field(default_factory=dict)
    selected: dict[str, int] = field(default_factory=dict)
    #: The row of each full domain that `counts` has.
    marks: dict[str, int] = field(default_factory=dict)
    #: See `members`.
    number: int = -1

    def declare(self, domain: str, row: int, n_pods: int, members: Members) -> None:
        """So many more pods of the row, which is in the domain, declare the term. Counts the pods of a new domain."""
        if domain not in self.declared:
            self.declared[domain] = 0
            self.selected[domain] = _selected(self.selection, members(self.topology_key, domain))
        self.declared[domain] += n_pods
        self._settle(domain, row)

    def withdraw(self, domain: str, n_pods: int) -> None:
        """So many fewer pods of the domain declare the term."""
        self.declared[domain] -= n_pods
        if not self.declared[domain]:
            del self.declared[domain], self.selected[domain]
            self._open(domain)

    def select(self, domain: str | None, row: int, n_pods: int) -> None:
        """The row, which is in the domain, has so many more pods (or fewer) that the term selects. O(1)."""
        known = None if domain is None else self.selected.get(domain)
        if domain is None or known is None:
            return
        now = self.selected[domain] = known + n_pods
        if (known >= self.room) != (now >= self.room):
            self._settle(domain, row)

    def leave(self, domain: str, row: int, members: Members) -> None:
        """The row is not in the domain any more, none of whose pods is counted any more."""
        if self.marks.get(domain) == row:
            self._open(domain)
            self._settle(domain, min(members(self.topology_key, domain)))

    def _settle(self, domain: str, row: int) -> None:
        if self.selected[domain] < self.room:
            self._open(domain)
        elif domain not in self.marks:
            self.marks[domain] = row
            self.counts.add(row, 1)

    def _open(self, domain: str) -> None:
        row = self.marks.pop(domain, None)
        if row is not None:
            self.counts.add(row, -1)


class DomainLimits:
    """All limits of running pods. Told of every event once nodes and label sets have moved; it only reads them."""

    def __init__(self, selections: SelectionIndex, nodes: NodeTable) -> None:
        """There are none."""
        self._selections = selections
        self._nodes = nodes
        self._by_key: dict[str, dict[DomainLimit, None]] = {}

    def __bool__(self) -> bool:
        """Whether any pod declares a limit."""
        return bool(self._by_key)

    def add(self, limit: DomainLimit) -> None:
        """The limit is declared from now on. O(label sets that it selects)."""
        self._selections.roll_of_limits.enter(limit)
        self._by_key.setdefault(limit.topology_key, {})[limit] = None
        for label_set in limit.selection.label_sets:
            label_set.limits.add(limit)

    def drop(self, limit: DomainLimit) -> None:
        """No pod declares the limit any more. O(label sets that it selects)."""
        limits = self._by_key[limit.topology_key]
        del limits[limit]
        if not limits:
            del self._by_key[limit.topology_key]
        for label_set in limit.selection.label_sets:
            label_set.limits.discard(limit)
        self._selections.roll_of_limits.leave(limit)

    def declare(self, limits: Iterable[DomainLimit], row: int) -> None:
        """A pod that declares these came to the row. O(limits); O(selected pods) for the first in a domain."""
        labels = self._labels(row)
        members = cache(self._members)
        for limit in limits:
            if (domain := labels.get(limit.topology_key)) is not None:
                limit.declare(domain, row, 1, members)

    def withdraw(self, limits: Iterable[DomainLimit], row: int) -> None:
        """A pod that declares these left the row. O(limits)."""
        labels = self._labels(row)
        for limit in limits:
            if (domain := labels.get(limit.topology_key)) is not None:
                limit.withdraw(domain, 1)

    def select(self, label_set: LabelSet, row: int, n_pods: int) -> None:
        """The row has so many more pods of the label set (or fewer). O(limits that select it), 0.2 µs each."""
        labels = self._labels(row)
        for limit in label_set.limits:
            domain = labels.get(limit.topology_key)
            if domain in limit.selected:
                limit.select(domain, row, n_pods)

    def relabel(self, row: int, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        """
        The row's node has other labels; none where there is no node.

        O(topology keys of limits); where one has changed, O(limits of that key + label sets), and more by the pods on
        the row.
        """
        keys = [key for key in self._by_key if old.get(key) != new.get(key)]
        if not keys:
            return
        self._move_selected(row, keys, old, new)
        members = cache(self._members)
        for key in keys:
            for limit in self._by_key[key]:
                n_pods = limit.declaring.at(row)
                if (was := old.get(key)) is not None:
                    if n_pods:
                        limit.withdraw(was, n_pods)
                    limit.leave(was, row, members)
                if n_pods and (now := new.get(key)) is not None:
                    limit.declare(now, row, n_pods, members)

    def rematch(self, changes: Iterable[Rematched]) -> None:
        """These label sets are selected from now on, or not any more. O(limits x rows of the label set)."""
        for selection, label_set, selects in changes:
            for term in selection.limiting_terms:
                if (limit := term.limit) is None:
                    continue
                if selects:
                    label_set.limits.add(limit)
                else:
                    label_set.limits.discard(limit)
                for row, n_pods in label_set.rows.items():
                    domain = self._labels(row).get(limit.topology_key)
                    limit.select(domain, row, n_pods if selects else -n_pods)

    def _move_selected(
        self, row: int, keys: Sequence[str], old: Mapping[str, str], new: Mapping[str, str]
    ) -> None:
        if not self._nodes.pod_count[row]:
            return
        for label_set in self._selections.label_sets():
            n_pods = label_set.rows.get(row) if label_set.limits else None
            if n_pods is None:
                continue
            for limit in label_set.limits:
                if (key := limit.topology_key) in keys:
                    limit.select(old.get(key), row, -n_pods)
                    limit.select(new.get(key), row, n_pods)

    def _labels(self, row: int) -> Mapping[str, str]:
        node = self._nodes.nodes[row]
        return _NO_LABELS if node is None else node.labels

    def _members(self, key: str, domain: str) -> frozenset[int]:
        column = self._nodes.column(key)
        rows = np.flatnonzero(column.ids[: self._nodes.n_rows] == column.id_by_value[domain])
        return frozenset(rows.tolist())


def _selected(selection: Selection, members: frozenset[int]) -> int:
    """Pods of the selection on these rows."""
    n_pods = 0
    for label_set in selection.label_sets:
        rows = label_set.rows
        if len(members) < len(rows):
            n_pods += sum(rows.get(row, 0) for row in members)
        else:
            n_pods += sum(count for row, count in rows.items() if row in members)
    return n_pods

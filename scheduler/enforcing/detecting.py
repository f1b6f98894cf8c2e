"""
Which rules do not hold, read from the counts that the state keeps.

    anti-affinity   more other pods that the term selects are in the domain of the pod's node than it allows;
                    terminating pods do not count: they are leaving already
    affinity        no other pod that all terms select is in the node's domain of every key, and the pod is not the
                    first of its kind; terminating pods count until they are gone

A pod on a node that is not known is not judged, neither is anti-affinity where the node lacks the topology key.

A pod is the first of its kind where it matches its own terms, its node has all their keys, and no other pod that
matches stays anywhere.
Source: plugins/interpodaffinity/filtering.go, satisfyPodAffinity (kubernetes 1.36), asked of a pod that runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from scheduler.enforcing.rules import Rule, RuleIndex, Side
from scheduler.state.arrays import Mask, Rows
from scheduler.state.cluster import ClusterState
from scheduler.state.columns import ABSENT
from scheduler.state.row_counts import RowCounts


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that does not hold for one of the pods that declare it."""

    uid: str
    row: int
    rule: Rule


#: What a result was read from: as long as these versions stand, so does the result. Whether the rule selects the pods
#: that declare it needs none of its own: where that changes, these very pods come to the counts or leave them.
_Stamp = tuple[int, int, int, int]


class Detector:
    """Finds broken rules; a rule is judged anew only after something that it reads has moved."""

    def __init__(self, state: ClusterState, index: RuleIndex) -> None:
        self._state = state
        self._index = index
        self._found: WeakKeyDictionary[Rule, tuple[_Stamp, tuple[Violation, ...]]] = WeakKeyDictionary()

    def broken(self) -> list[Violation]:
        """
        Every broken rule of every pod.

        Cost: 1 µs a rule that nothing happened to; else O(nodes), and O(rows with pods that declare it).
        """
        return [violation for rule in self._index.rules() for violation in self._of(rule)]

    def _of(self, rule: Rule) -> tuple[Violation, ...]:
        every, live = counts_of(rule)
        stamp = (
            rule.version,
            every.version,
            live.version,
            self._state.nodes.version,
        )
        known = self._found.get(rule)
        if known is not None and known[0] == stamp:
            return known[1]
        found = tuple(self._judged(rule, every, live))
        self._found[rule] = (stamp, found)
        return found

    def _judged(self, rule: Rule, every: RowCounts, live: RowCounts) -> Iterator[Violation]:
        rows = np.fromiter(rule.uids_by_row, dtype=np.intp)
        broken = self._too_near(rule, rows, live)
        if rule.question.side is Side.AFFINITY:
            broken = self._too_far(rule, rows, every, live)
        for row in rows[broken & self._state.nodes.alive[rows]].tolist():
            for uid in rule.uids_by_row[row]:
                yield Violation(uid, row, rule)

    def _too_near(self, rule: Rule, rows: Rows, live: RowCounts) -> Mask:
        nodes = self._state.nodes
        (key, *_) = rule.question.keys
        selected = live.per_node(nodes.column(key), nodes.n_rows)[rows]
        too_near: Mask = selected - int(rule.selects_itself) >= rule.question.max_pods
        return too_near

    def _too_far(self, rule: Rule, rows: Rows, every: RowCounts, live: RowCounts) -> Mask:
        nodes = self._state.nodes
        lonely = np.zeros(len(rows), dtype=np.bool_)
        has_keys = np.ones(len(rows), dtype=np.bool_)
        for key in rule.question.keys:
            column = nodes.column(key)
            lonely |= every.per_node(column, nodes.n_rows)[rows] <= int(rule.selects_itself)
            has_keys &= column.ids[rows] != ABSENT
        if rule.selects_itself and n_staying(self._state, rule, live) <= 1:
            lonely &= ~has_keys
        return lonely


def counts_of(rule: Rule) -> tuple[RowCounts, RowCounts]:
    """Pods per row that the rule selects: all of them, and those that are not terminating."""
    every, live = rule.selection.counts, rule.selection.live_counts
    if every is None or live is None:
        raise AssertionError("a rule's selection is counted from the rule's beginning")
    return every, live


def n_staying(state: ClusterState, rule: Rule, live: RowCounts, gone: Sequence[int] = ()) -> int:
    """
    Pods not terminating that the rule selects, in any domain of that of its keys which reaches most. O(nodes).

    `gone`: rows, one for each of these pods that is not to be counted.
    """
    nodes = state.nodes
    counts = live.rows(nodes.n_rows)
    if gone:
        counts = counts - np.bincount(gone, minlength=nodes.n_rows)
    return max(
        int(counts[nodes.column(key).ids[: nodes.n_rows] != ABSENT].sum()) for key in rule.question.keys
    )

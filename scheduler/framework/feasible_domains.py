"""In which domains of a topology key the feasible nodes are, kept up to date while they come and go."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scheduler.framework.interface import Feasible
from scheduler.state.arrays import Rows
from scheduler.state.columns import LabelColumn


class FeasibleDomains:
    """The domains of a column that feasible nodes are in, for as long as nodes and their labels are the same."""

    __slots__ = ("_feasible", "_generation", "_ids", "_n_in", "_n_seen", "column")

    def __init__(self, column: LabelColumn, feasible: Feasible) -> None:
        """Nobody has looked yet."""
        self.column = column
        self._feasible = feasible
        self._generation = -1
        self._n_seen = 0
        #: Feasible nodes by domain id; and the ids of domains that have any.
        self._n_in: Rows = np.zeros(0, dtype=np.intp)
        self._ids: Rows = np.zeros(0, dtype=np.intp)

    def ids(self) -> Rows:
        """
        In ascending order, ABSENT first where a feasible node lacks the label; the same array for the same domains.

        O(nodes that came or went), O(n_rows) where others are feasible all over, see `Feasible.count`.
        """
        feasible = self._feasible
        if self._generation != feasible.generation:
            self._n_in = feasible.count(self.column.ids[: len(feasible.mask)], self.column.n_ids)
            ids = np.flatnonzero(self._n_in)
            if not np.array_equal(ids, self._ids):
                self._ids = ids
            self._generation = feasible.generation
        elif self._n_seen != len(feasible.turned):
            self._follow(feasible.turned[self._n_seen :])
        self._n_seen = len(feasible.turned)
        return self._ids

    def _follow(self, turned: Sequence[tuple[int, bool]]) -> None:
        before = self._ids
        for row, fits in turned:
            domain = self.column.ids.item(row)
            self._n_in[domain] += 1 if fits else -1
            if self._n_in.item(domain) == (1 if fits else 0):
                self._ids = np.flatnonzero(self._n_in)
        if self._ids is not before and np.array_equal(self._ids, before):
            self._ids = before

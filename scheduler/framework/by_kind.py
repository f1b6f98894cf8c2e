"""Scores of nodes by kind: where nodes differ in few ways, so many numbers are to be worked out, and no more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import numpy as np

from scheduler.state.arrays import Rows, Scores

#: Kinds of nodes that scores are given by.
MAX_KINDS: Final = 32


class ByKind:
    """
    Scores of nodes that differ in their kind alone, which is a number below `MAX_KINDS`.

    `which`: the kind of each node, array of shape (n_rows,): that of last time, changed at none but the rows that moved
    meanwhile, or another one; anything where a node is not feasible. `of`: the score of each kind that a feasible node
    is of, from 0 to 100; none before `among` was called.
    """

    __slots__ = ("_scores_of", "of", "which")

    def __init__(self, which: Rows, scores_of: Callable[[Collection[int]], Mapping[int, int]]) -> None:
        """`scores_of`: the scores of kinds, where some feasible node is of each of them and none of another."""
        self._scores_of = scores_of
        self.which = which
        self.of: Mapping[int, int] = {}

    def among(self, kinds: Collection[int]) -> Mapping[int, int]:
        """The scores, where feasible nodes are of these kinds."""
        self.of = of = self._scores_of(kinds)
        return of

    def item(self, row: int) -> int:
        """The score of one node; 0 of some that are not feasible."""
        return self.of.get(self.which.item(row), 0)

    def on_nodes(self) -> Scores:
        """The scores of all: int16 array of shape (n_rows,). O(n_rows)."""
        scores = np.zeros(MAX_KINDS, dtype=np.int16)
        scores[list(self.of)] = list(self.of.values())
        # The kind of who is not feasible may be any.
        return scores.take(self.which, mode="clip")

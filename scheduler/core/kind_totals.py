"""
Who has the highest total, where one plugin's scores go by kinds of nodes and all others' stay.

A pod that comes to a zone moves the scores of every node in it. Here the sums of all other scores are counted by kind:
that node's own place is all that has to be moved, and each kind's best sum is added to the kind's score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduler.core.standings import Leaders
from scheduler.framework.by_kind import MAX_KINDS, ByKind
from scheduler.framework.interface import LEAST
from scheduler.state.arrays import Mask, Rows, Scores

#: What holds a sum and a kind together, by what holds the sum; the widest sums leave no place for a kind.
_WIDER: Final[dict[np.dtype[np.signedinteger], np.dtype[np.signedinteger]]] = {
    np.dtype(np.int16): np.dtype(np.int32),
    np.dtype(np.int32): np.dtype(np.int64),
}


class KindTotals:
    """
    The nodes that passed, by place: `sum * MAX_KINDS + kind`, where the sum is that of all scores but one plugin's.

    Of one kind, the higher the place the higher the total.
    """

    def __init__(self, sums: Scores, which: Rows, mask: Mask) -> None:
        """As of now; `sums` must be of a type that `can_tell`. O(n_rows log n_rows), 0.1 ms at 5,000 nodes."""
        #: Held, since it is by their identity that these totals are found again.
        self.mask, self.which = mask, which
        wider = _WIDER[sums.dtype]
        #: Where who did not pass is, which is no place.
        self._outside = int(LEAST[wider])
        self._places = np.where(mask, sums.astype(wider) * MAX_KINDS + which, self._outside).astype(wider)
        places, numbers = np.unique(self._places, return_counts=True)
        #: How many nodes are in each place, those without any left out.
        self._n_in: dict[int, int] = dict(zip(places.tolist(), numbers.tolist(), strict=True))
        self._n_in.pop(self._outside, None)
        #: The highest place of each kind that a node which passed is of.
        self._highest: dict[int, int] = {place % MAX_KINDS: place for place in self._n_in}

    @staticmethod
    def can_tell(sums: Scores) -> bool:
        """Whether sums of this type leave place for a kind."""
        return sums.dtype in _WIDER

    def follow(self, sums: Scores, rows: Sequence[int]) -> None:
        """
        These rows have other sums, are of other kinds, or passed where they did not or the other way.

        O(rows), and O(places) where the last node has left a kind's highest.
        """
        places, n_in, highest, outside = self._places, self._n_in, self._highest, self._outside
        for row in rows:
            before, after = places.item(row), outside
            if self.mask.item(row):
                after = sums.item(row) * MAX_KINDS + self.which.item(row)
            if before == after:
                continue
            places[row] = after
            if after != outside:
                n_in[after] = n_in.get(after, 0) + 1
                kind = after % MAX_KINDS
                if after > highest.get(kind, outside):
                    highest[kind] = after
            if before != outside:
                n_in[before] -= 1
                if not n_in[before]:
                    self._leave(before)

    def leaders(self, scores: ByKind, weight: int) -> Leaders:
        """Who has the highest total; some must have passed. The scores are told. O(kinds), and O(n_rows)."""
        highest, most = self._highest, -1
        best: list[int] = []
        for kind, score in scores.among(highest).items():
            place = highest[kind]
            total = place // MAX_KINDS + weight * score
            if total > most or not best:
                most, best = total, [place]
            elif total == most:
                best.append(place)
        leading = self._places == best[0]
        for place in best[1:]:
            leading |= self._places == place
        return Leaders(leading.nonzero()[0], most)

    def _leave(self, place: int) -> None:
        """Nobody is in the place any more."""
        del self._n_in[place]
        kind = place % MAX_KINDS
        if self._highest[kind] == place:
            left = [other for other in self._n_in if other % MAX_KINDS == kind]
            if left:
                self._highest[kind] = max(left)
            else:
                del self._highest[kind]

"""
Who has the highest total, where one plugin's scores go by kinds of nodes and all others' stay.

A pod that comes to a zone moves the scores of every node in it. Here nodes are held by kind and by the sum of all other
scores: that node's own place is all that has to be moved, and each kind's best sum is added to the kind's score.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from scheduler.core.standings import Leaders
from scheduler.framework.by_kind import MAX_KINDS, ByKind
from scheduler.state.arrays import Mask, Rows, Scores

#: Where who did not pass is, which is no place: with weights of 32 bits no sum is nearly as low.
_OUTSIDE: Final = int(np.iinfo(np.int64).min)


class KindTotals:
    """
    The nodes that passed, by place: `sum * MAX_KINDS + kind`, where the sum is that of all scores but one plugin's.

    Of one kind, the higher the place the higher the total.
    """

    def __init__(self, sums: Scores, which: Rows, mask: Mask) -> None:
        """As of now. O(n_rows log n_rows): 0.3 to 0.8 ms at 5,000 nodes, the more places the longer; 10 at 100,000."""
        #: Held, since it is by their identity that these totals are found again.
        self.mask, self.which = mask, which
        passed = mask.nonzero()[0]
        places = sums.take(passed).astype(np.int64) * MAX_KINDS + which.take(passed)
        self._places = np.full(len(mask), _OUTSIDE)
        self._places[passed] = places
        order = places.argsort(kind="stable")
        rows, ordered = passed.take(order).tolist(), places.take(order)
        ends = [*(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(rows)]
        #: The rows in each place, in ascending order, those without any left out.
        self._rows_in: dict[int, list[int]] = {
            ordered.item(start): rows[start:end] for start, end in pairwise([0, *ends]) if start < end
        }
        #: The highest place of each kind that a node which passed is of.
        self._highest: dict[int, int] = {place % MAX_KINDS: place for place in self._rows_in}

    def follow(self, sums: Scores, rows: Sequence[int]) -> None:
        """
        These rows have other sums, are of other kinds, or passed where they did not or the other way.

        O(rows), and O(places) where the last node has left a kind's highest.
        """
        places, rows_in, highest = self._places, self._rows_in, self._highest
        for row in rows:
            before, after = places.item(row), _OUTSIDE
            if self.mask.item(row):
                after = sums.item(row) * MAX_KINDS + self.which.item(row)
            if before == after:
                continue
            places[row] = after
            if after != _OUTSIDE:
                insort(rows_in.setdefault(after, []), row)
                kind = after % MAX_KINDS
                if after > highest.get(kind, _OUTSIDE):
                    highest[kind] = after
            if before != _OUTSIDE:
                left = rows_in[before]
                del left[bisect_left(left, row)]
                if not left:
                    self._leave(before)

    def leaders(self, scores: ByKind, weight: int) -> Leaders:
        """Who has the highest total until nodes move; some must have passed. The scores are told. O(kinds)."""
        highest, most = self._highest, -1
        best: list[int] = []
        for kind, score in scores.among(highest).items():
            place = highest[kind]
            total = place // MAX_KINDS + weight * score
            if total > most or not best:
                most, best = total, [place]
            elif total == most:
                best.append(place)
        return Leaders([self._rows_in[place] for place in best], most)

    def _leave(self, place: int) -> None:
        """Nobody is in the place any more."""
        del self._rows_in[place]
        kind = place % MAX_KINDS
        if self._highest[kind] == place:
            left = [other for other in self._rows_in if other % MAX_KINDS == kind]
            if left:
                self._highest[kind] = max(left)
            else:
                del self._highest[kind]

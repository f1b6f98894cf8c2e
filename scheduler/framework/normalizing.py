"""
Normalising raw scores to 0..100.

Source: plugins/helper/normalize_score.go, plugins/interpodaffinity/scoring.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from scheduler.framework.feasible_domains import FeasibleDomains
from scheduler.framework.interface import Feasible
from scheduler.framework.recalling import Recalled
from scheduler.state.arrays import Amounts, Scores
from scheduler.state.row_log import RowLog
from scheduler.state.sums import InDomains

#: Upstream's MaxNodeScore.
MAX_NODE_SCORE: Final = 100

#: Tables of stretched scores that are kept, and sums in each at most: 32 KB.
_KEPT_TABLES: Final = 64
_TABLE_SIZE: Final = 4096


def default_normalized(raw: Scores, feasible: Feasible, *, reverse: bool) -> Scores:
    """
    Scores scaled so that the best feasible node has 100, turned around where `reverse`.

    The minimum is not subtracted; raw scores are not negative. int16 array of shape (n_rows,). O(n_rows).
    """
    highest = max(0, feasible.highest(raw))
    if highest == 0:
        return np.full(len(raw), MAX_NODE_SCORE if reverse else 0, dtype=np.int16)
    scaled = (MAX_NODE_SCORE * raw // highest).astype(np.int16)
    return MAX_NODE_SCORE - scaled if reverse else scaled


class Stretched:
    """
    Sums stretched so that the lowest of a feasible node gives 0 and the highest 100; all 0 where they are the same.

        int64(100.0 * (float64(raw - lowest) / float64(highest - lowest)))

    Division first, truncated: 29 of 100 gives 28, not 29 (interpodaffinity/scoring.go, NormalizeScore).
    """

    def __init__(self, feasible: Feasible, moved: RowLog) -> None:
        """Nothing is stretched yet. `feasible`: the nodes that count, as they are at each call."""
        self._feasible = feasible
        self._domains: FeasibleDomains | None = None
        #: By the scores of the domains. Nodes stay in their domains, wherever pods come and go.
        self._before: Recalled[Scores] = Recalled(moved)
        self._generation = feasible.generation
        self._raw: Amounts | None = None
        self._lowest = self._span = 0
        self._scores: Scores = np.zeros(0, dtype=np.int16)

    def of(self, raw: Amounts) -> Scores:
        """int16 array of shape (n_rows,) of its own; what is not feasible has anything. O(n_rows), 12 µs at 5,000."""
        self._raw, self._generation = raw, self._feasible.generation
        lowest = self._feasible.lowest(raw)
        return self._stretch(raw, lowest, self._feasible.highest(raw) - lowest)

    def again(self, raw: Amounts, rows: Sequence[int]) -> Scores:
        """
        The array of last time, changed at these rows, where `raw` is that of last time and changed there; else `of`.

        O(rows) where the lowest and the highest sum are as they were.
        """
        if raw is not self._raw or self._generation != self._feasible.generation:
            return self.of(raw)
        lowest, span = self._extremes_again(raw, rows)
        if (lowest, span) != (self._lowest, self._span):
            return self._stretch(raw, lowest, span)
        for row in rows:
            above = min(max(raw.item(row) - lowest, 0), span)
            self._scores[row] = int(100.0 * (above / span)) if span else 0
        return self._scores

    def in_domains(self, sums: InDomains) -> Scores:
        """
        The same where nodes of a domain have the same sum; the same array for the same scores, where these come again.

        Always with the same column. O(domains); O(n_rows), 8 µs at 5,000, where the scores have not been of late.
        """
        amounts, column = sums
        if self._domains is None:
            self._domains = FeasibleDomains(column, self._feasible)
        # Not what `again` knows, should some sums be of nodes the next time.
        self._raw = None
        among = [amounts.item(domain) for domain in self._domains.ids()]
        lowest, highest = min(among), max(among)
        span = highest - lowest
        by_domain = [
            int(100.0 * (min(max(amount - lowest, 0), span) / span)) if span else 0
            for amount in amounts.tolist()
        ]
        key = tuple(by_domain)
        recalled = self._before.recall(key)
        if recalled is not None:
            return recalled[0]
        n_rows = len(self._feasible.mask)
        scores = np.array(by_domain, dtype=np.int16).take(column.ids[:n_rows], mode="clip")
        self._before.keep(key, scores)
        return scores

    def _extremes_again(self, raw: Amounts, rows: Sequence[int]) -> tuple[int, int]:
        """The lowest sum and the span now that these rows have others: looked up only where one may have had it."""
        feasible, lowest, highest = self._feasible, self._lowest, self._lowest + self._span
        had = [self._scores.item(row) for row in rows]
        now = [raw.item(row) for row in rows if feasible.mask.item(row)]
        if now and max(now) >= highest:
            highest = max(now)
        elif MAX_NODE_SCORE in had or not self._span:
            highest = feasible.highest(raw)
        if now and min(now) <= lowest:
            lowest = min(now)
        elif 0 in had:
            lowest = feasible.lowest(raw)
        return lowest, highest - lowest

    def _stretch(self, raw: Amounts, lowest: int, span: int) -> Scores:
        before, self._lowest, self._span = self._span, lowest, span
        if span <= 0:
            # Pods that have to be in one domain find the same sum everywhere, one higher each time.
            if before > 0 or not len(self._scores):
                self._scores = np.zeros(len(raw), dtype=np.int16)
            return self._scores
        above = raw - lowest if lowest else raw
        is_small = span < min(len(raw), _TABLE_SIZE)
        self._scores = _up_to(span).take(above, mode="clip") if is_small else _stretched(above, span)
        return self._scores


def _stretched(above: Amounts, span: int) -> Scores:
    # By way of int64, which holds what lies above the highest feasible sum too.
    return (100.0 * (above.astype(np.float64) / float(span))).astype(np.int64).astype(np.int16)


@lru_cache(maxsize=_KEPT_TABLES)
def _up_to(span: int) -> Scores:
    """The scores of 0 to `span` above the lowest sum: many pods in a row find the same span."""
    return _stretched(np.arange(span + 1), span)

"""
Normalising raw scores to 0..100.

Source: plugins/helper/normalize_score.go, plugins/interpodaffinity/scoring.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from scheduler.framework.feasible_domains import FeasibleDomains
from scheduler.framework.interface import Feasible
from scheduler.framework.recalling import Recalled
from scheduler.state.arrays import Amounts, Scores
from scheduler.state.columns import LabelColumn
from scheduler.state.row_log import RowLog
from scheduler.state.sums import InDomains

#: Upstream's MaxNodeScore.
MAX_NODE_SCORE: Final = 100

#: Nodes above the lowest sum that are stretched one by one.
_FEW_ABOVE: Final = 8

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

    def __init__(self, feasible: Feasible) -> None:
        """Nothing is stretched yet. `feasible`: the nodes that count, as they are at each call."""
        self._feasible = feasible
        #: The domains of feasible nodes, and their ids when the feasible nodes were those of that version.
        self._domains: FeasibleDomains | None = None
        self._ids: list[int] = []
        self._ids_version = -1
        #: By the scores of the domains. Nodes stay in their domains, wherever pods come and go: no row is ever stale.
        self._before: Recalled[Scores] = Recalled(RowLog())
        #: The last ones; None before there are any.
        self._of_domains: tuple[int, ...] | None = None
        self._by_domain: Scores = np.zeros(0, dtype=np.int16)
        self._generation = feasible.generation
        self._raw: Amounts | None = None
        self._lowest = self._span = 0
        self._scores: Scores = np.zeros(0, dtype=np.int16)
        #: See `_few_above`: None before anybody has looked, or where they are many.
        self._above: set[int] | None = None
        self._are_many_above = False

    def of(self, raw: Amounts) -> Scores:
        """int16 array of shape (n_rows,) of its own; what is not feasible has anything. O(n_rows), 12 µs at 5,000."""
        self._raw, self._generation = raw, self._feasible.generation
        self._above, self._are_many_above = None, False
        lowest = self._feasible.lowest(raw)
        return self._stretch(raw, lowest, self._feasible.highest(raw) - lowest)

    def again(self, raw: Amounts, rows: Sequence[int]) -> tuple[Scores, Collection[int]]:
        """
        The array of last time, where `raw` is that of last time and changed at these rows; else `of`. See `NodeScorer`.

        O(rows) where the lowest and the highest sum are as they were, or the lowest is and few nodes have another.
        """
        if raw is not self._raw or self._generation != self._feasible.generation:
            return self.of(raw), rows
        lowest, span = self._extremes_again(raw, rows)
        if lowest != self._lowest or not (span and self._span):
            return self._stretch(raw, lowest, span), rows
        changed: Collection[int] = rows
        if self._above is not None:
            self._above.difference_update(rows)
            self._above.update(
                row for row in rows if self._feasible.mask.item(row) and raw.item(row) > lowest
            )
        if span != self._span:
            above = self._few_above(raw)
            if above is None:
                return self._stretch(raw, lowest, span), rows
            changed, self._span = above.union(rows), span
        for row in changed:
            self._scores[row] = _score(raw.item(row) - lowest, span)
        return self._scores, changed

    def _few_above(self, raw: Amounts) -> set[int] | None:
        """Feasible nodes with more than the lowest sum; None where they are not few."""
        if self._above is None and not self._are_many_above:
            rows = ((raw > self._lowest) & self._feasible.mask).nonzero()[0]
            self._above = set(rows.tolist()) if len(rows) <= _FEW_ABOVE else None
        if self._above is None or len(self._above) > _FEW_ABOVE:
            self._above, self._are_many_above = None, True
        return self._above

    def in_domains(self, sums: InDomains) -> Scores:
        """
        The same where nodes of a domain have the same sum; the same array for the same scores, where these come again.

        O(domains); O(n_rows), 8 µs at 5,000, where the scores have not been of late.
        """
        amounts, column = sums
        if self._domains is None or self._domains.column is not column:
            # The last pods that were counted by another topology key may be gone.
            self._domains = FeasibleDomains(column, self._feasible)
            self._of_domains, self._ids_version = None, -1
            self._before.forget()
        if self._ids_version != self._feasible.version:
            self._ids, self._ids_version = self._domains.ids().tolist(), self._feasible.version
        # Not what `again` knows, should some sums be of nodes the next time.
        self._raw = None
        in_domain: list[int] = amounts.tolist()
        among = [in_domain[domain] for domain in self._ids]
        lowest = min(among)
        span = max(among) - lowest
        # Pods that have to be in one domain find the same sum everywhere.
        of_domains = tuple([_score(amount - lowest, span) for amount in in_domain]) if span else ()
        if of_domains != self._of_domains:
            self._of_domains = of_domains
            recalled = self._before.recall(of_domains)
            if recalled is None:
                self._by_domain = _taken(of_domains or [0] * len(amounts), column, len(self._feasible.mask))
                self._before.keep(of_domains, self._by_domain)
            else:
                self._by_domain, _ = recalled
        return self._by_domain

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
        before, self._span = self._span, span
        if lowest != self._lowest or span <= 0:
            self._lowest, self._above, self._are_many_above = lowest, None, False
        if span <= 0:
            # Pods that have to be in one domain find the same sum everywhere, one higher each time.
            if before > 0 or not len(self._scores):
                self._scores = np.zeros(len(raw), dtype=np.int16)
            return self._scores
        above = raw - lowest if lowest else raw
        is_small = span < min(len(raw), _TABLE_SIZE)
        self._scores = _up_to(span).take(above, mode="clip") if is_small else _stretched(above, span)
        return self._scores


def _taken(of_domains: Sequence[int], column: LabelColumn, n_rows: int) -> Scores:
    """Scores by domain as scores of nodes."""
    return np.array(of_domains, dtype=np.int16).take(column.ids[:n_rows], mode="clip")


def _score(above: int, span: int) -> int:
    """Of one sum so far above the lowest, which is not higher than the highest feasible one if it counts."""
    return int(100.0 * (min(max(above, 0), span) / span)) if span else 0


def _stretched(above: Amounts, span: int) -> Scores:
    # By way of int64, which holds what lies above the highest feasible sum too.
    return (100.0 * (above.astype(np.float64) / float(span))).astype(np.int64).astype(np.int16)


@lru_cache(maxsize=_KEPT_TABLES)
def _up_to(span: int) -> Scores:
    """The scores of 0 to `span` above the lowest sum: many pods in a row find the same span."""
    return _stretched(np.arange(span + 1), span)

"""How the nodes stood in one decision: who was refused by what, who scored how much, who was drawn."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from scheduler.framework.by_kind import ByKind
from scheduler.framework.diagnosis import add_reasons
from scheduler.framework.interface import LEAST, Feasible, NodeFilter, NodeScorer
from scheduler.state.arrays import Mask, Rows, Scores


class Chance(Protocol):
    """Where ties are drawn from; seeded outside."""

    def randrange(self, stop: int, /) -> int:
        """A number from 0 to stop - 1."""
        ...


class Refused(NamedTuple):
    """A filter, the nodes before and after it (bool arrays of shape (n_rows,)), and how many it refused."""

    node_filter: NodeFilter
    before: Mask
    after: Mask
    n: int


class Scored(NamedTuple):
    """A plugin's unweighted scores, array of shape (n_rows,) or by kind of node, its weight, and who gave them."""

    plugin: str
    weight: int
    scores: Scores | ByKind
    scorer: NodeScorer[Any]

    def weighted(self, dtype: np.dtype[np.signedinteger]) -> Scores:
        """Scores times their weight as `dtype` holds them, array of shape (n_rows,)."""
        scores = self.scores.on_nodes() if isinstance(self.scores, ByKind) else self.scores
        return scores if self.weight == 1 else np.multiply(scores, self.weight, dtype=dtype)


class Leaders(NamedTuple):
    """The feasible rows of the highest total, in one part or more, each in ascending order; and that total."""

    parts: Sequence[Rows | list[int]]
    total: int

    @classmethod
    def of(cls, totals: Scores) -> Leaders:
        """Where the array is highest. O(n_rows)."""
        highest = totals.item(totals.argmax())
        return cls([(totals == highest).nonzero()[0]], highest)

    @property
    def n(self) -> int:
        """How many they are."""
        return sum(map(len, self.parts))

    def at(self, index: int) -> int:
        """Of all of them in ascending order the one at the index. O(1), with several parts O(parts * log² n_rows)."""
        parts = self.parts
        if len(parts) == 1:
            return int(parts[0][index])
        stop = 1 + max(rows[-1] for rows in parts)
        return bisect_right(
            range(stop), index, key=lambda row: sum([bisect_right(rows, row) for rows in parts])
        )

    def first(self, n_most: int) -> list[int]:
        """The first so many of all of them, or all."""
        return sorted([int(row) for rows in self.parts for row in rows[:n_most]])[:n_most]


@dataclass(slots=True)
class Filtered:
    """The outcome of PreFilter: filters to run, and the nodes that they are run on; then what each of them said."""

    filters: list[tuple[str, NodeFilter]] = field(default_factory=list)
    narrowing: dict[str, frozenset[str]] = field(default_factory=dict)
    #: False where a plugin that has nothing to do may have once pods have come or gone.
    lasts: bool = True
    #: What filters were run on, and who fits each of them: bool arrays of shape (n_rows,).
    nodes: Mask = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    masks: list[Mask] = field(default_factory=list)
    #: Each filter that took nodes from those before it, in order.
    refused: list[Refused] = field(default_factory=list)

    def sift(self, node_filter: NodeFilter, fitting: Mask, left: Mask, n_left: int) -> tuple[Mask, int]:
        """Those of the `n_left` nodes that the filter finds fitting, and how many; noted if it took any."""
        after = left & fitting
        n_after = int(np.count_nonzero(after))
        if n_after < n_left:
            self.refused.append(Refused(node_filter, left, after, n_left - n_after))
        return after, n_after

    def rejected(self) -> Counter[str]:
        """How many nodes were refused for each reason by the filter that refused them first. O(n_rows) per filter."""
        counts: Counter[str] = Counter()
        for one in self.refused:
            add_reasons(counts, one.node_filter.refusals(), one.before ^ one.after, one.n)
        return counts


@dataclass(frozen=True, slots=True)
class Standings:
    """
    How the nodes stood: the cycle's own arrays, so to be read before the next stimulus only.

    `chosen`: a row. `totals`: array of shape (n_rows,), with the least of its numbers on rows that are not feasible.
    `scores`: valid on feasible rows, none where one node alone was feasible. `rejected`: how many nodes were refused
    for each reason, by the filter that refused them first. Both are worked out when they are called.
    """

    chosen: int
    leaders: Leaders
    feasible: Feasible
    totals: Callable[[], Scores]
    scores: Sequence[Scored]
    filtered: Filtered
    rejected: Callable[[], Counter[str]]

    @classmethod
    def drawn(
        cls,
        leaders: Leaders,
        feasible: Feasible,
        totals: Callable[[], Scores],
        scores: Sequence[Scored],
        filtered: Filtered,
        chance: Chance,
        *,
        rejected: Callable[[], Counter[str]] | None = None,
    ) -> Standings:
        """One of the leaders is chosen; there must be one. `filtered` says who is not feasible."""
        n = leaders.n
        chosen = leaders.at(0 if n == 1 else chance.randrange(n))
        why = filtered.rejected if rejected is None else rejected
        return cls(chosen, leaders, feasible, totals, scores, filtered, why)

    @property
    def lasts(self) -> bool:
        """Whether all can be asked again: some scored, and no plugin that skipped may have something to say by then."""
        return self.filtered.lasts and bool(self.scores)

    def beginning_with(self, row: int) -> Standings:
        """As if the feasible row had been chosen, and led alone: what `leading` is to begin with."""
        alone = Leaders([[row]], self.totals().item(row))
        return replace(self, chosen=row, leaders=alone)

    def leading(self, n_most: int) -> list[tuple[int, int]]:
        """
        (row, total) of the chosen node, then of the others from the highest total down.

        O(n_most), or O(n_most * n_rows) where fewer nodes share the highest total. Totals are written meanwhile, and
        are what they were afterwards.
        """
        n_most = min(n_most, self.feasible.n)
        others = [row for row in self.leaders.first(n_most) if row != self.chosen]
        rows = [self.chosen, *others[: n_most - 1]]
        ranked = [(row, self.leaders.total) for row in rows]
        if len(ranked) < n_most:
            totals = self.totals()
            # Whoever is ranked steps aside for the next: a copy of all totals would cost as much as finding it.
            passed = LEAST[totals.dtype]
            for row in rows:
                totals[row] = passed
            while len(ranked) < n_most:
                row = int(totals.argmax())
                ranked.append((row, totals.item(row)))
                totals[row] = passed
            for row, total in ranked:
                totals[row] = total
        return ranked

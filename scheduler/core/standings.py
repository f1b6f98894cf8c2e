"""How the nodes stood in one decision: who was refused by what, who scored how much, who was drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

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
    """A plugin's unweighted scores, array of shape (n_rows,), its weight, and who gave them."""

    plugin: str
    weight: int
    scores: Scores
    scorer: NodeScorer[Any]


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

    `chosen`: a row. `leaders`: the feasible rows of the highest total, in ascending order. `totals`: array of shape
    (n_rows,), with the least of its numbers on all other rows. `scores`: valid on feasible rows, none where one node
    alone was feasible. `rejected`: how many nodes were refused for each reason, by the filter that refused them first;
    worked out when it is called.
    """

    chosen: int
    leaders: Rows
    feasible: Feasible
    totals: Scores
    scores: Sequence[Scored]
    filtered: Filtered
    rejected: Callable[[], Counter[str]]

    @classmethod
    def drawn(
        cls,
        feasible: Feasible,
        totals: Scores,
        scores: Sequence[Scored],
        filtered: Filtered,
        chance: Chance,
        *,
        rejected: Callable[[], Counter[str]] | None = None,
    ) -> Standings:
        """One of the feasible nodes with the highest total is chosen; there must be one. `filtered` says who is not."""
        (leaders,) = (totals == totals.item(totals.argmax())).nonzero()
        chosen = leaders.item(0 if len(leaders) == 1 else chance.randrange(len(leaders)))
        why = filtered.rejected if rejected is None else rejected
        return cls(chosen, leaders, feasible, totals, scores, filtered, why)

    @property
    def lasts(self) -> bool:
        """Whether all can be asked again: some scored, and no plugin that skipped may have something to say by then."""
        return self.filtered.lasts and bool(self.scores)

    def leading(self, n_most: int) -> list[tuple[int, int]]:
        """
        (row, total) of the chosen node, then of the others from the highest total down.

        O(n_most), or O(n_most * n_rows) where fewer nodes share the highest total. Totals are written meanwhile, and
        are what they were afterwards.
        """
        totals = self.totals
        n_most = min(n_most, self.feasible.n)
        rows = [self.chosen]
        if len(self.leaders) > 1:
            rows += [row for row in self.leaders[:n_most].tolist() if row != self.chosen][: n_most - 1]
        ranked = [(row, totals.item(row)) for row in rows]
        if len(ranked) < n_most:
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


def weighted_scores(scores: Scores, weight: int, dtype: np.dtype[np.signedinteger]) -> Scores:
    """Scores times their weight, as `dtype` holds them."""
    return scores if weight == 1 else np.multiply(scores, weight, dtype=dtype)

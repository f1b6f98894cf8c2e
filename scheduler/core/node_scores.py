"""How the nodes fared in one decision: which filter refused which, what each plugin scored, which node was chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol

import numpy as np

from scheduler.framework.interface import Feasible, NodeFilter
from scheduler.state.arrays import Mask, Scores

#: The total of a row that is not feasible, by type of the totals: below every sum of weighted scores.
INFEASIBLE: Final = {np.dtype(one): int(np.iinfo(one).min) for one in (np.int16, np.int32, np.int64)}


class Rng(Protocol):
    """Random numbers; seeded by the caller."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 to stop - 1."""
        ...


class Refusal(NamedTuple):
    """A filter and the rows that it was the first to refuse: bool array of shape (n_rows,)."""

    plugin: str
    node_filter: NodeFilter
    rows: Mask


@dataclass(slots=True)
class FilterResult:
    """
    The filters of one pod and what they refused.

    `filters`: by plugin name, in order. `node_names`: by plugin the only nodes that its PreFilter leaves. `refusals`:
    filters that refused a node that no earlier one had refused.
    """

    filters: list[tuple[str, NodeFilter]] = field(default_factory=list)
    node_names: dict[str, frozenset[str]] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)

    def reason_counts(self) -> Counter[str]:
        """Return how many nodes were refused for each reason. O(n_rows) per filter that refused a node."""
        counts: Counter[str] = Counter()
        for refusal in self.refusals:
            for status, n_nodes in refusal.node_filter.statuses().counts(refusal.rows):
                for reason in status.reasons:
                    counts[reason] += n_nodes
        return counts


class PluginScores(NamedTuple):
    """A plugin's unweighted scores, integers of shape (n_rows,) valid on feasible rows, and its weight."""

    plugin: str
    weight: int
    scores: Scores


@dataclass(frozen=True, slots=True)
class NodeScores:
    """
    The scores of one decision. They hold the cycle's own arrays: read them before the next stimulus only.

    `chosen`: a row. `totals`: integers of shape (n_rows,), INFEASIBLE on rows that are not feasible. `by_plugin` is
    empty if one node alone was feasible.
    """

    chosen: int
    feasible: Feasible
    totals: Scores
    by_plugin: Sequence[PluginScores]
    filtered: FilterResult

    def choosing(self, row: int) -> NodeScores:
        """Return the same scores as if this feasible row had been chosen."""
        return replace(self, chosen=row)

    def top_nodes(self, n_most: int) -> list[tuple[int, int]]:
        """Return (row, total) of the chosen node, then of the others from the best down. O(n_most * n_rows)."""
        n_most = min(n_most, self.feasible.n)
        totals = self.totals
        ranked = [(self.chosen, totals.item(self.chosen))]
        # A ranked row steps aside for the next: cheaper than a copy of all totals.
        passed = INFEASIBLE[totals.dtype]
        totals[self.chosen] = passed
        while len(ranked) < n_most:
            row = int(totals.argmax())
            ranked.append((row, totals.item(row)))
            totals[row] = passed
        for row, total in ranked:
            totals[row] = total
        return ranked

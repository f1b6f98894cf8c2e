"""The results of one decision: the nodes that each filter refused, the scores by plugin, and the chosen node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from scheduler.engine.framework.diagnosis import reason_counts
from scheduler.engine.framework.interface import FeasibleNodes, NodeFilter
from scheduler.engine.framework.reserving import Reservation
from scheduler.engine.framework.status import NodeStatuses
from scheduler.engine.state.arrays import Mask, Scores

#: The total of an infeasible row, by dtype of the totals: below every sum of weighted scores.
INFEASIBLE: Final = {np.dtype(one): int(np.iinfo(one).min) for one in (np.int16, np.int32, np.int64)}


class Refusal(NamedTuple):
    """The rows that a plugin was the first to refuse, bool array of shape (n_rows,), and what returns its statuses."""

    plugin: str
    statuses: Callable[[], NodeStatuses]
    rows: Mask


@dataclass(slots=True)
class FilterResult:
    """
    The filters of one pod, by plugin name and in order, and what they refused.

    `node_names`: the only nodes that a plugin's PreFilter allows, by plugin name. `refusals`: of filters that refused a
    node which no earlier filter had refused.
    """

    filters: list[tuple[str, NodeFilter]] = field(default_factory=list)
    node_names: dict[str, frozenset[str]] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)

    def replace_refusals(self, plugin: str, statuses: NodeStatuses) -> None:
        """Give the rows with a status this refusal of the plugin, in place of the one that they have, if any."""
        refused: Mask = statuses.codes > 0
        for index, refusal in enumerate(self.refusals):
            self.refusals[index] = refusal._replace(rows=refusal.rows & ~refused)
        self.refusals.append(Refusal(plugin, lambda: statuses, refused))

    def reservations(self, row: int) -> list[Reservation]:
        """Return what has to be written and waited for before the pod is bound to the row."""
        filters = (node_filter for _, node_filter in self.filters)
        reserved = (each.reserve(row) for each in filters if each.reserve is not None)
        return [reservation for reservation in reserved if reservation is not None]

    def reason_counts(self) -> Counter[str]:
        """Return how many nodes were refused for each reason."""
        return reason_counts((refusal.statuses(), refusal.rows) for refusal in self.refusals)


class PluginScores(NamedTuple):
    """A plugin's unweighted scores, integers of shape (n_rows,) valid on feasible rows, and its weight."""

    plugin: str
    weight: int
    scores: Scores


@dataclass(frozen=True, slots=True)
class NodeScores:
    """
    The scores of one decision. The arrays are valid until the next stimulus.

    `chosen`: the chosen row. `totals`: INFEASIBLE on infeasible rows. `by_plugin`: empty if a single node was feasible.
    `reservations`: what has to be written and waited for before the pod is bound.
    """

    chosen: int
    feasible: FeasibleNodes
    totals: Scores
    by_plugin: Sequence[PluginScores]
    filtered: FilterResult
    reservations: Sequence[Reservation]

    def top_nodes(self, n_most: int) -> list[tuple[int, int]]:
        """Return (row, total) of the chosen node, then of the others, best first. O(n_most * n_rows)."""
        n_most = min(n_most, self.feasible.n)
        totals = self.totals
        ranked = [(self.chosen, totals.item(self.chosen))]
        # Rows already ranked are overwritten and restored below, which is cheaper than copying all totals.
        already_ranked = INFEASIBLE[totals.dtype]
        totals[self.chosen] = already_ranked
        while len(ranked) < n_most:
            row = int(totals.argmax())
            ranked.append((row, totals.item(row)))
            totals[row] = already_ranked
        for row, total in ranked:
            totals[row] = total
        return ranked

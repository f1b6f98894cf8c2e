"""
Which budgets protect pods, as arrays for the dry run of many nodes at once.

Pods that the same budgets protect have the same protection, which is a number.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from scheduler.engine.model.disruption_budgets import DisruptionBudget
from scheduler.engine.state.arrays import Amounts, Rows
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster_view import ClusterView

#: More pods than any row has.
UNLIMITED: Final = 1 << 40
#: The protection of pods without a budget; and the number that stands for no budget.
_UNPROTECTED: Final = 0
_NO_BUDGET: Final = 0
#: Costs of a budget and of a label set that it selects, in µs, and of a piece.
_BUDGET_COST: Final = 20
_LABEL_SET_COST: Final = 0.4
_AT_ONCE: Final = 1000


class Protections(NamedTuple):
    """
    The budgets of every pod. `by_label_set`: the protection of each label set, by number. `n_allowed`: how many
    disruptions each budget allows. The other fields are by protection.

    `is_undecided`: whether only a trial tells: one of the budgets counts some pods as gone already. `budgets`: an array
    as wide as the most of one, padded with the number of no budget. `kinds`: if pods of one kind leave a node, their
    order does not matter to the budgets.
    """

    by_label_set: Rows
    is_undecided: Rows
    budgets: Rows
    n_allowed: Amounts
    kinds: Rows


def protections(view: ClusterView) -> Pieces[Protections]:
    """Return the protections of all pods; yield after each piece. O(budgets + label sets that they select)."""
    by_label_set = np.zeros(view.state.label_sets.n_numbers, dtype=np.intp)
    known: list[tuple[int, ...]] = [()]
    number_of: dict[tuple[int, ...], int] = {(): _UNPROTECTED}
    budgets = list(view.state.budgets)
    cost = 0.0
    for index, budget in enumerate(budgets, 1):
        if cost > _AT_ONCE:
            cost = 0.0
            yield
        selected = view.label_sets_of(budget)
        cost += _BUDGET_COST + _LABEL_SET_COST * len(selected)
        # One more budget turns few protections into other ones.
        before = by_label_set[selected]
        after = np.zeros(len(known), dtype=np.intp)
        for number in np.flatnonzero(np.bincount(before)).tolist():
            both = (*known[number], index)
            after[number] = number_of.setdefault(both, len(known))
            if after[number] == len(known):
                known.append(both)
        by_label_set[selected] = after[before]
    table = np.full((len(known), max(1, *map(len, known))), _NO_BUDGET, dtype=np.intp)
    for number, its in enumerate(known):
        table[number, : len(its)] = its
    is_undecided = np.array([any(budgets[index - 1].disrupted_pods for index in its) for its in known])
    n_allowed = np.array([UNLIMITED, *(budget.disruptions_allowed for budget in budgets)])
    return Protections(by_label_set, is_undecided, table, n_allowed, _kinds(known, budgets, view))


def _kinds(known: list[tuple[int, ...]], budgets: list[DisruptionBudget], view: ClusterView) -> Rows:
    """Return `Protections.kinds`."""
    # Every pod breaks a budget that allows nothing, and no pod one that allows more than any node has: the order only
    # matters to other budgets.
    most = int(view.nodes.pod_count.max(initial=0))
    number_of: dict[tuple[bool, tuple[int, ...]], int] = {}
    kinds = []
    for its in known:
        allowed = [(index, budgets[index - 1].disruptions_allowed) for index in its]
        limited = tuple(index for index, n in allowed if 0 < n < most)
        kinds.append(number_of.setdefault((any(n <= 0 for _, n in allowed), limited), len(number_of)))
    return np.array(kinds, dtype=np.intp)

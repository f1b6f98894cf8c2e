"""
The dry run of many nodes at once, where nothing but room keeps the pod out.

All pods of lower priority leave every node. Then the most important pod of each node comes back where there is room
for it, then the second of each node, and so on: the rules of `candidates`, rank by rank instead of node by node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scheduler.engine.framework.node_trial import RoomOnly
from scheduler.engine.framework.post_filter import UnfitPod
from scheduler.engine.plugins.default_preemption.candidates import LOWEST_PRIORITY, Harm
from scheduler.engine.plugins.default_preemption.protection import Protections
from scheduler.engine.state.arrays import Amounts, Mask, Rows
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.pod_columns import PodsByRow


class DryRuns(NamedTuple):
    """
    The answers of some rows; lists and arrays have an entry per row.

    `is_undecided`: a trial has to tell. `is_candidate`: the pod fits once the victims leave; `harms`: what that costs.
    `is_short`: of shape (1 + resources of the request, rows): what is missing even without any lower pod.
    """

    is_undecided: Mask
    is_candidate: Mask
    harms: Sequence[Harm]
    is_short: Mask

    def reasons(self, room: RoomOnly) -> Counter[str]:
        """Return how many of the decided rows refuse the pod in any case, by reason."""
        n_short = np.count_nonzero(self.is_short[:, ~self.is_undecided], axis=1)
        return +Counter(dict(zip(room.room.reasons, n_short.tolist(), strict=True)))


def dry_runs(
    rows: Rows, unfit: UnfitPod, room: RoomOnly, protections: Protections, view: ClusterView
) -> DryRuns:
    """Return what comes of evicting pods from each of the distinct rows, which all have pods of lower priority."""
    # A row is undecided if other filters matter too, if a budget counts some pods as gone already, if a PodGroup says
    # how its members are evicted, or if names decide which of two equally important pods stays. O(pods).
    index_of_row = np.full(view.n_rows, -1, dtype=np.intp)
    index_of_row[rows] = np.arange(len(rows))
    lower = view.state.pods.below(unfit.evicts_below, index_of_row >= 0)
    at, taken = index_of_row[lower.rows], lower.taken[room.columns]
    is_undecided = ~room.rows[rows]
    of_groups = index_of_row[list(view.rows_evicted_otherwise(unfit.context.pod))]
    is_undecided[of_groups[of_groups >= 0]] = True
    protection = protections.by_label_set[lower.label_sets]
    is_undecided[at[protections.is_undecided[protection]]] = True
    is_undecided[at[1:][_depends_on_names(lower, taken, protections.kinds[protection])]] = True
    left = np.array([np.broadcast_to(left_of, len(rows)) for left_of in room.room.spare(rows)])
    nominated_on, taken_by_nominated = view.nominated_room(unfit.context.pod)
    nominated_at = index_of_row[nominated_on]
    is_asked = nominated_at >= 0
    is_undecided[nominated_at[is_asked]] |= not room.is_only_trial
    for amounts, column in zip(left, room.columns, strict=True):
        np.subtract.at(amounts, nominated_at[is_asked], taken_by_nominated[column, is_asked])
    for amounts, of_each in zip(left, taken, strict=True):
        np.add.at(amounts, at, of_each)
    is_short: Mask = left < 0
    is_violating = _is_violating(at, protections.budgets[protection], protections.n_allowed)
    # Pods that a budget protects come back before all others.
    in_turn = np.lexsort((~is_violating, at))
    is_victim = np.zeros(len(at), dtype=np.bool_)
    is_victim[in_turn] = _is_victim(at[in_turn], left, taken[:, in_turn])
    harms = _harms(at, lower, is_victim, is_violating, len(rows))
    fits: Mask = np.all(~is_short, axis=0)
    return DryRuns(is_undecided, fits, harms, is_short)


def _is_violating(at: Rows, budgets: Rows, n_allowed: Amounts) -> Mask:
    """Return the pods whose removal, after that of all pods before, breaks a budget. `budgets`: a row per pod."""
    groups = at[:, np.newaxis] * len(n_allowed) + budgets
    n_before = _rank(groups.ravel()).reshape(groups.shape)
    is_violating: Mask = np.any(n_allowed[budgets] <= n_before, axis=1)
    return is_violating


def _rank(groups: Rows) -> Rows:
    """Return how many entries of the same group are before each one."""
    by_group = np.argsort(groups, kind="stable")
    ordered = groups[by_group]
    is_first = np.ones(len(groups), dtype=np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    firsts = np.flatnonzero(is_first)
    rank = np.empty(len(groups), dtype=np.intp)
    rank[by_group] = np.arange(len(groups)) - np.repeat(firsts, np.diff(firsts, append=len(groups)))
    return rank


def _depends_on_names(lower: PodsByRow, taken: Amounts, kinds: Rows) -> Mask:
    """Return the pods, from the second on, that are as important as the pod before but differ from it otherwise."""
    depends: Mask = np.any(taken[:, 1:] != taken[:, :-1], axis=0) | (kinds[1:] != kinds[:-1])
    for column in (lower.rows, lower.priorities, lower.start_ranks):
        depends &= column[1:] == column[:-1]
    return depends


def _is_victim(at: Rows, left: Amounts, taken: Amounts) -> Mask:
    """Return the pods that do not come back."""
    # `at`: the index of each pod's row; pods of one row are in the order in which they come back. `left`, which is used
    # up: what is left on each row without the pods. `taken`: what each pod takes of it.
    rank = _rank(at)
    ends = np.cumsum(np.bincount(rank))
    is_victim = np.zeros(len(at), dtype=np.bool_)
    for same_rank in np.split(np.argsort(rank, kind="stable"), ends[:-1]):
        rows = at[same_rank]
        beside = left[:, rows] - taken[:, same_rank]
        is_short = (beside < 0).any(axis=0)
        is_victim[same_rank] = is_short
        left[:, rows] = np.where(is_short, left[:, rows], beside)
    return is_victim


def _harms(at: Rows, lower: PodsByRow, is_victim: Mask, is_violating: Mask, n_rows: int) -> list[Harm]:
    """Return what `Candidate.harm` says of each row's victims; undefined for a row without victims."""
    victims = np.flatnonzero(is_victim)
    if not len(victims):
        return [(0, 0, 0, 0, 0)] * n_rows
    rows = at[victims]
    first = np.zeros(n_rows, dtype=np.intp)
    # If a row is assigned several times, the last one holds: that of the most important victim.
    first[rows[::-1]] = victims[::-1]
    total = np.zeros(n_rows, dtype=np.int64)
    np.add.at(total, rows, lower.priorities[victims] + LOWEST_PRIORITY)
    columns = (
        np.bincount(at[is_victim & is_violating], minlength=n_rows),
        lower.priorities[first],
        total,
        np.bincount(rows, minlength=n_rows),
        -lower.start_ranks[first],
    )
    return list(zip(*(column.tolist() for column in columns), strict=True))

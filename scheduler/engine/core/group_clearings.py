"""The nodes whose pods of lower priority leave so that a group may find room; the cheapest of a large cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from scheduler.engine.core.group_attempt import SearchRequest
from scheduler.engine.core.group_domains import domain_ids
from scheduler.engine.core.group_members import shared_key
from scheduler.engine.framework.room import RoomFilter
from scheduler.engine.model.requests import filter_request
from scheduler.engine.state.arrays import Amount, Amounts, Mask, Rows
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.pod_columns import COUNTED

#: Most pods that a search removes.
_MOST_LIFTED: Final = 1_000
#: Domains of a large cluster that are tried, where all members share one.
_MOST_DOMAINS: Final = 4


def clearings_for(request: SearchRequest, below_priority: int, view: ClusterView) -> Pieces[list[Mask]]:
    """Return sets of rows that may make room if their pods of lower priority leave, at most `_MOST_LIFTED` of them."""
    rows = request.rows & view.alive
    top, taken = yield from _lower(below_priority, rows, view)
    n_lower = taken[0]
    if not n_lower.any():
        return []
    if n_lower.sum() <= _MOST_LIFTED:
        return [rows]
    keys = request.topology.required
    if not keys and (key := (yield from shared_key(request.members, view))):
        keys = (key,)
    copies = _copies(request, rows, keys, taken, view)
    # The rows where evicting does least harm first.
    order = np.lexsort((n_lower, top))
    order = order[copies[order] > 0]
    clearings: list[tuple[tuple[int, int], Rows]] = []
    for of_domain in _by_domain(order, keys, view):
        yield
        n_copies = np.cumsum(copies[of_domain])
        if not len(n_copies) or n_copies[-1] < request.n_needed:
            continue
        # Twice as many as are needed, since more than room may keep members out.
        n_rows = 1 + int(np.searchsorted(n_copies, 2 * len(request.members)))
        chosen = of_domain[:n_rows]
        chosen = chosen[np.cumsum(n_lower[chosen]) <= _MOST_LIFTED]
        if len(chosen):
            clearings.append(((int(top[chosen].max()), int(n_lower[chosen].sum())), chosen))
    clearings.sort(key=lambda clearing: clearing[0])
    return [np.isin(np.arange(view.n_rows), chosen) for _, chosen in clearings[:_MOST_DOMAINS]]


def _lower(below_priority: int, rows: Mask, view: ClusterView) -> Pieces[tuple[Amounts, Amounts]]:
    """Return for every row the highest priority of its pods of lower priorities, and `PodsByRow.taken` of them all."""
    top = np.full(view.n_rows, np.iinfo(np.int64).min)
    taken = np.zeros((1 + len(COUNTED), view.n_rows), dtype=np.int64)
    for pods in view.state.pods.below_in_pieces(below_priority, rows):
        np.maximum.at(top, pods.rows, pods.priorities)
        for of_all, of_each in zip(taken, pods.taken, strict=True):
            np.add.at(of_all, pods.rows, of_each)
        yield
    for row in filter(rows.item, view.rows_of_unequal_priority()):
        # Only their number: what they take is estimated by their own priorities.
        lower = [
            view.state.groups.victim_priority(placed.pod)
            for placed in view.state.placed_on(row)
            if view.state.groups.victim_priority(placed.pod) < below_priority
        ]
        taken[0, row] = len(lower)
        top[row] = max(lower, default=top.item(row))
    return top, taken


def _by_domain(order: Rows, keys: tuple[str, ...], view: ClusterView) -> Iterator[Rows]:
    """Yield the rows of each domain of the keys, in their order; all of them without a key."""
    ids = domain_ids(keys, view.nodes).ids[order]
    # Not np.unique, whose first call imports numpy.ma: 15 ms.
    for number in np.flatnonzero(np.bincount(ids)).tolist():
        yield order[ids == number]


def _copies(
    request: SearchRequest, rows: Mask, keys: tuple[str, ...], taken: Amounts, view: ClusterView
) -> Amounts:
    """
    Return how many copies of the member of the largest requests each row would take: an upper bound.

    `taken`: what comes free on the rows, as `PodsByRow.taken`.
    """
    largest = max(request.members, key=lambda pod: sum(filter_request(pod).values()))
    spec, provides = largest.spec, view.state.devices.provides
    eligible = rows & view.eligible(keys, spec.required_node_affinity, spec.tolerations)
    amounts = {name: n for name, n in filter_request(largest).items() if n and not provides(name)}
    freed: list[Amount] = [taken[0]]
    for name in amounts:
        # What pods take of other resources is not known: all of it may come free.
        requested = taken[1 + COUNTED.index(name)] if name in COUNTED else view.nodes.requested(name)
        freed.append(0 if requested is None else requested)
    copies = RoomFilter(tuple(amounts.items()), view).copies(freed)
    return np.where(eligible, np.clip(copies, 0, len(request.members)), 0)

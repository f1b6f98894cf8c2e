"""
The first of the two passes of Filter: with the pods that are nominated to a node and come before the pod.

If nominated pods only take room, all nodes are asked at once; else one by one.

Source: framework/runtime/framework.go, RunFilterPluginsWithNominatedPods (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from scheduler.engine.framework.node_trial import FilterTrials, NodeRefusal, RoomOnly
from scheduler.engine.framework.status import NodeStatuses
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.arrays import Mask
from scheduler.engine.state.cluster_view import ClusterView


def refusals_with_nominated(
    pod: Pod, view: ClusterView, trials: FilterTrials, wanted: Mask
) -> Iterator[tuple[str, NodeStatuses]]:
    """Yield the statuses of the wanted rows that refuse the pod once the nominated pods come, by plugin."""
    room = trials.room_only
    is_open = wanted
    if room is not None and room.is_first_trial:
        statuses = _by_room(pod, view, room, wanted)
        if np.any(statuses.codes):
            yield room.plugin, statuses
        decided = room.rows if room.is_only_trial else statuses.codes > 0
        is_open = wanted & ~decided
        if not is_open.any():
            return
    by_row: dict[int, NodeRefusal] = {}
    for row, nominated in view.nominated_above(pod):
        refusal = trials.at(row, nominated).refusal_with_nominated() if is_open.item(row) else None
        if refusal is not None:
            by_row[row] = refusal
    for plugin in sorted({refusal.plugin for refusal in by_row.values()}):
        of_plugin = {row: refusal.status for row, refusal in by_row.items() if refusal.plugin == plugin}
        yield plugin, NodeStatuses.by_row(of_plugin, view.n_rows)


def _by_room(pod: Pod, view: ClusterView, room: RoomOnly, wanted: Mask) -> NodeStatuses:
    """Return the statuses of the wanted rows at which only room matters."""
    nominated_on, taken = view.nominated_room(pod)
    is_asked = (wanted & room.rows)[nominated_on]
    rows, index = np.unique(nominated_on[is_asked], return_inverse=True)
    by_row = np.zeros((len(room.columns), len(rows)), dtype=np.int64)
    for amounts, column in zip(by_row, room.columns, strict=True):
        np.add.at(amounts, index, taken[column, is_asked])
    of_asked = room.room.statuses_beside(rows, list(by_row))
    codes = np.zeros(view.n_rows, dtype=np.intp)
    codes[rows] = of_asked.codes
    return NodeStatuses(codes, of_asked.statuses)

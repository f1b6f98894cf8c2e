"""
One node asked again by all filters of a pod, while other pods come and go there only in thought.

There are two passes, as upstream: pods that are nominated to the node may come or not, so it has to take the pod both
with and without the nominated pods of at least its priority.

Source: framework/runtime/framework.go, RunFilterPluginsWithNominatedPods (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from scheduler.engine.framework.interface import NodeFilter, PreFilterExtensions, TrialAt
from scheduler.engine.framework.room import RoomFilter
from scheduler.engine.framework.status import NodeStatuses, Status
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.arrays import Mask
from scheduler.engine.state.pod_columns import COUNTED


class NodeRefusal(NamedTuple):
    """The first plugin that refuses a node, and why."""

    plugin: str
    status: Status


class RoomOnly(NamedTuple):
    """
    The rows at which only room matters: all other filters accept them, whichever pods leave.

    `columns`: where `PodsByRow.taken` has the number of pods and each resource of the request. `is_first_trial`,
    `is_only_trial`: whether no filter before this one looks at pods, or no other filter at all.
    """

    plugin: str
    room: RoomFilter
    columns: Sequence[int]
    rows: Mask
    is_first_trial: bool
    is_only_trial: bool


class FilterTrials:
    """The filters of one pod in order, valid until the next stimulus."""

    def __init__(self, filters: Sequence[tuple[str, NodeFilter]]) -> None:
        self._filters = filters
        self._statuses: dict[int, NodeStatuses] = {}

    def at(self, row: int, nominated: Sequence[Pod] = ()) -> NodeUnderTrial:
        """Return the node under trial. `nominated`: the pods of its first pass."""
        if self._passed is None or self._passed.item(row):
            return NodeUnderTrial([(plugin, trial(row)) for plugin, trial in self._counting], nominated)
        parts: list[tuple[str, PreFilterExtensions | Status | None]] = []
        for index, (plugin, node_filter) in enumerate(self._filters):
            trial = node_filter.trial
            parts.append((plugin, self._fixed(index, row) if trial is None else trial(row)))
        return NodeUnderTrial(parts, nominated)

    @cached_property
    def room_only(self) -> RoomOnly | None:
        """
        The rows where only room matters; None if the filters have to be tried node by node.

        None if no filter is about room, the state has no columns for the resources that the pod requests, or a filter
        may need the pods that leave.
        """
        indexes = [
            index for index, (_, node_filter) in enumerate(self._filters) if node_filter.room is not None
        ]
        if len(indexes) != 1:
            return None
        plugin, room = self._filters[indexes[0]][0], self._filters[indexes[0]][1].room
        if room is None or any(resource not in COUNTED for resource, _ in room.request):
            return None
        before = [node_filter for _, node_filter in self._filters[: indexes[0]]]
        others = [*before, *(node_filter for _, node_filter in self._filters[indexes[0] + 1 :])]
        counting = [node_filter for node_filter in others if node_filter.trial is not None]
        if any(node_filter.needs_pods for node_filter in counting):
            return None
        return RoomOnly(
            plugin,
            room,
            [0, *(1 + COUNTED.index(resource) for resource, _ in room.request)],
            np.logical_and.reduce([node_filter.mask() for node_filter in others])
            if others
            else np.ones_like(room.mask()),
            is_first_trial=all(node_filter.trial is None for node_filter in before),
            is_only_trial=not counting,
        )

    @cached_property
    def _counting(self) -> list[tuple[str, TrialAt]]:
        trials = ((plugin, node_filter.trial) for plugin, node_filter in self._filters)
        return [(plugin, trial) for plugin, trial in trials if trial is not None]

    @cached_property
    def _passed(self) -> Mask | None:
        """The rows that pass every filter for which pods do not matter; None if there is no such filter."""
        fixed = [node_filter.mask() for _, node_filter in self._filters if node_filter.trial is None]
        return np.logical_and.reduce(fixed) if fixed else None

    def _fixed(self, index: int, row: int) -> Status | None:
        """Return why the row is refused whatever pods are there, None if it is not."""
        statuses = self._statuses.get(index)
        if statuses is None:
            statuses = self._statuses[index] = self._filters[index][1].statuses()
        return statuses.at(row)


class NodeUnderTrial:
    """The answers of the filters at one row."""

    def __init__(
        self, parts: Sequence[tuple[str, PreFilterExtensions | Status | None]], nominated: Sequence[Pod]
    ) -> None:
        self._parts = [(plugin, part) for plugin, part in parts if part is not None]
        self._trials = [part for _, part in self._parts if not isinstance(part, Status)]
        self._nominated = nominated

    def count(self, pod: Pod, delta: int) -> None:
        """Let the pod come (`delta` 1), or leave (-1)."""
        for trial in self._trials:
            trial.count(pod, delta)

    def count_elsewhere(self, pod: Pod, delta: int) -> None:
        """See `PreFilterExtensions.count_elsewhere`."""
        for trial in self._trials:
            trial.count_elsewhere(pod, delta)

    def refusal(self) -> NodeRefusal | None:
        """Return the first refusal of the two passes, None if the node takes the pod in both."""
        return self.refusal_with_nominated() or self._first()

    def refusal_with_nominated(self) -> NodeRefusal | None:
        """Return the refusal of the first pass, with nominated pods; None if there are none of these."""
        if not self._nominated:
            return None
        for pod in self._nominated:
            self.count(pod, 1)
        refusal = self._first()
        for pod in self._nominated:
            self.count(pod, -1)
        return refusal

    def _first(self) -> NodeRefusal | None:
        for plugin, part in self._parts:
            status = part if isinstance(part, Status) else part.refusal()
            if status is not None:
                return NodeRefusal(plugin, status)
        return None

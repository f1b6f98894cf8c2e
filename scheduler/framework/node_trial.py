"""
One node asked again by all filters of a pod, while other pods come and go there only in thought.

The two passes are upstream's: a node has to take the pod both with and without the pods of at least its priority that
are nominated there, since these may come, or not.

Source: framework/runtime/framework.go, RunFilterPluginsWithNominatedPods (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from scheduler.framework.interface import NodeFilter, NodeTrial
from scheduler.framework.status import NodeStatuses, Status
from scheduler.model.pods import Pod
from scheduler.state.arrays import Mask


class NodeRefusal(NamedTuple):
    """The first plugin that refuses a node, and why."""

    plugin: str
    status: Status


class FilterTrials:
    """The filters of one pod in order, valid until the next stimulus."""

    def __init__(self, filters: Sequence[tuple[str, NodeFilter]]) -> None:
        self._filters = filters
        self._masks: list[Mask | None] = [None] * len(filters)
        self._statuses: dict[int, NodeStatuses] = {}

    def at(self, row: int, nominated: Sequence[Pod] = ()) -> NodeUnderTrial:
        """Return the node under trial. `nominated`: the pods of its first pass. 2 µs for each counting filter."""
        parts: list[tuple[str, NodeTrial | Status]] = []
        for index, (plugin, node_filter) in enumerate(self._filters):
            answer = node_filter.trial(row) or self._fixed(index, row)
            if answer is not None:
                parts.append((plugin, answer))
        return NodeUnderTrial(parts, nominated)

    def _fixed(self, index: int, row: int) -> Status | None:
        """Return why the row is refused whatever pods are there, None if it is not."""
        node_filter = self._filters[index][1]
        mask = self._masks[index]
        if mask is None:
            mask = self._masks[index] = node_filter.mask()
        if mask.item(row):
            return None
        if index not in self._statuses:
            self._statuses[index] = node_filter.statuses()
        return self._statuses[index].at(row)


class NodeUnderTrial:
    """The answers of the filters at one row."""

    def __init__(self, parts: Sequence[tuple[str, NodeTrial | Status]], nominated: Sequence[Pod]) -> None:
        self._parts = parts
        self._trials = [part for _, part in parts if not isinstance(part, Status)]
        self._nominated = nominated

    def count(self, pod: Pod, delta: int) -> None:
        """Count the pod in (`delta` 1), or out (-1)."""
        for trial in self._trials:
            trial.count(pod, delta)

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

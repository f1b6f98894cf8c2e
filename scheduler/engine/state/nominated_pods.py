"""Pods for which preemption makes room. Source: pkg/scheduler/backend/queue/nominator.go (kubernetes 1.36)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

from scheduler.engine.model.pods import Pod
from scheduler.engine.state.arrays import Amounts, Rows
from scheduler.engine.state.pod_columns import PodColumns
from scheduler.engine.state.sparse_dicts import discard_entry

_NONE: Final[Mapping[str, Pod]] = {}

#: The columns do not tell label sets apart.
_ANY_LABELS: Final = 1
#: The row of a node that is not known.
_NOWHERE: Final = -1


class NominatedPods:
    """Pending pods by the node that they are nominated to. Exactly one writer: ClusterState."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, Pod]] = {}
        self._node_of: dict[str, str] = {}
        self._columns = PodColumns()
        self._slot_of: dict[str, int] = {}
        #: The version of the rows that the columns have.
        self._located_at = 0

    def __bool__(self) -> bool:
        return bool(self._node_of)

    def nominate(self, pod: Pod, node_name: str, row: int | None, requested: Mapping[str, int]) -> None:
        """Nominate the pod to the node, and to no other. `row`: of the node, None if the node is not known."""
        self.remove(pod.uid)
        row = _NOWHERE if row is None else row
        self._slot_of[pod.uid] = self._columns.add(_ANY_LABELS, row, pod.priority, 0, requested, live=True)
        self._node_of[pod.uid] = node_name
        self._by_node.setdefault(node_name, {})[pod.uid] = pod

    def remove(self, uid: str) -> None:
        """Forget the pod's nomination, if there is any."""
        node_name = self._node_of.pop(uid, None)
        if node_name is not None:
            self._columns.remove(self._slot_of.pop(uid))
            discard_entry(self._by_node, node_name, uid)

    def node_of(self, uid: str) -> str:
        """Return the node that the pod is nominated to, empty without a nomination."""
        return self._node_of.get(uid, "")

    def applied_to(self, pod: Pod) -> Pod:
        """Return the pod with its nomination as it counts here, even if no watch has shown it yet."""
        node_name = self.node_of(pod.uid)
        return pod if node_name == pod.nominated_node_name else replace(pod, nominated_node_name=node_name)

    def on(self, node_name: str) -> Collection[Pod]:
        """Return the pods that are nominated to the node."""
        return self._by_node.get(node_name, _NONE).values()

    def room_above(self, pod: Pod, row_by_name: Mapping[str, int], version: int) -> tuple[Rows, Amounts]:
        """
        Return the rows of the nominated pods of at least the pod's priority, without itself, and what each takes.

        A row may occur several times. `version`: changes whenever a node gets another row.
        """
        if self._located_at != version:
            self._located_at = version
            for uid, slot in self._slot_of.items():
                self._columns.relocate(slot, row_by_name.get(self._node_of[uid], _NOWHERE))
        rows, taken = self._columns.from_priority(pod.priority, without=self._slot_of.get(pod.uid))
        known = rows != _NOWHERE
        return rows[known], taken[:, known]

    def by_node(self) -> Iterator[tuple[str, Collection[Pod]]]:
        """Yield each node name with the pods that are nominated to it."""
        return ((name, pods.values()) for name, pods in self._by_node.items())

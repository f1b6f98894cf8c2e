"""
Pods that wait for room on a node that preemption makes for them.

Source: pkg/scheduler/backend/queue/nominator.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from scheduler.model.pods import Pod

_NONE: Final[Mapping[str, Pod]] = {}


class NominatedPods:
    """Pending pods by the node that they are nominated to. Exactly one writer: ClusterState."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, Pod]] = {}
        self._node_of: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._node_of)

    def __len__(self) -> int:
        return len(self._node_of)

    def nominate(self, pod: Pod, node_name: str) -> None:
        """Nominate the pod to the node, and to no other."""
        self.remove(pod.uid)
        self._node_of[pod.uid] = node_name
        self._by_node.setdefault(node_name, {})[pod.uid] = pod

    def remove(self, uid: str) -> None:
        """Forget the pod's nomination, if it has one."""
        node_name = self._node_of.pop(uid, None)
        if node_name is not None:
            on_node = self._by_node[node_name]
            del on_node[uid]
            if not on_node:
                del self._by_node[node_name]

    def node_of(self, uid: str) -> str:
        """Return the node that the pod is nominated to, empty if none."""
        return self._node_of.get(uid, "")

    def on(self, node_name: str) -> Collection[Pod]:
        """Return the pods that are nominated to the node."""
        return self._by_node.get(node_name, _NONE).values()

    def by_node(self) -> Iterator[tuple[str, Collection[Pod]]]:
        """Yield each node name with the pods that are nominated to it."""
        return ((name, pods.values()) for name, pods in self._by_node.items())

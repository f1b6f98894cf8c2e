"""One node and what is on it, for rules that look at nodes one by one."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.engine.model.nodes import Node
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.requests import PODS
from scheduler.engine.model.terms import Taint
from scheduler.engine.state.cluster import ClusterState


class NodeView:
    """
    One node and what is on it, for rules that look at one node at a time. Valid during the call that receives it.

    Amounts are in scheduler units: cpu in milli, all others in whole units.
    """

    __slots__ = ("_node", "_row", "_state")

    def __init__(self, state: ClusterState, row: int, node: Node) -> None:
        self._state, self._row, self._node = state, row, node

    @property
    def name(self) -> str:
        """The node's name."""
        return self._node.name

    @property
    def labels(self) -> Mapping[str, str]:
        """The node's labels."""
        return self._node.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        """The node's annotations whose keys a plugin names in `node_annotations`."""
        return self._node.annotations

    @property
    def taints(self) -> tuple[Taint, ...]:
        """The node's taints."""
        return self._node.taints

    @property
    def unschedulable(self) -> bool:
        """Whether the node is cordoned."""
        return self._node.unschedulable

    @property
    def created(self) -> str:
        """The creationTimestamp, such as 2026-01-31T12:00:00Z; these texts sort in the order of time."""
        return self._node.created

    @property
    def pods(self) -> list[Pod]:
        """The pods on the node, assumed ones included. O(pods)."""
        return [placed.pod for placed in self._state.placed_on(self._row)]

    def allocatable(self, resource: str) -> int:
        """Return how much of the resource the node has."""
        return self._node.allocatable.get(resource, 0)

    def requested(self, resource: str) -> int:
        """Return how much of the resource the node's pods request; for `pods`, how many they are."""
        nodes = self._state.nodes
        return (
            nodes.pod_count.item(self._row) if resource == PODS else nodes.requested_at(resource, self._row)
        )

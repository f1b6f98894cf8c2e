"""The parts of an out-of-tree plugin's view: nodes, columns, counts and volumes that it cannot change."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from scheduler.engine.model.nodes import Node
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.requests import PODS
from scheduler.engine.model.terms import Taint
from scheduler.engine.model.volumes import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageKind,
    StorageObject,
)
from scheduler.engine.state.arrays import Amounts, Counts, Mask, Rows
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.columns import LabelColumn, PerDomain
from scheduler.engine.state.counts import Domains, PodCounts
from scheduler.engine.state.node_table import ImageState, NodeTable
from scheduler.engine.state.volumes import Volumes

_Scalar = TypeVar("_Scalar", bound=np.generic)
_NO_TAINTS: Final[tuple[Taint, ...]] = ()


def read_only(array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    """Return a view of the array that cannot be written to. 0.2 µs."""
    view = array.view()
    view.flags.writeable = False
    return view


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
        """Return how much of the resource the node's pods request; of `pods`, their number."""
        nodes = self._state.nodes
        return (
            nodes.pod_count.item(self._row) if resource == PODS else nodes.requested_at(resource, self._row)
        )


class NodeColumns:
    """The nodes as columns. Arrays have one entry per row; the methods are those of `NodeTable`."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes

    @property
    def row_by_name(self) -> Mapping[str, int]:
        """Row by node name; also of nodes that are gone while pods are on them."""
        return MappingProxyType(self._nodes.row_by_name)

    @property
    def images(self) -> Mapping[str, ImageState]:
        """By image name, its size in bytes and the rows of the nodes that hold it."""
        return MappingProxyType(self._nodes.images)

    @property
    def ports(self) -> Mapping[tuple[str, int], Mapping[int, Mapping[str, int]]]:
        """Host ports in use: (protocol, port) -> row -> address -> number of pods."""
        return MappingProxyType(self._nodes.ports)

    @property
    def unschedulable(self) -> Mask:
        """Rows whose node is cordoned."""
        return read_only(self._nodes.unschedulable)

    @property
    def pod_count(self) -> Counts:
        """Pods per row, assumed ones included."""
        return read_only(self._nodes.pod_count)

    @property
    def non_zero(self) -> Amounts:
        """int64 array of shape (2, n_rows): cpu (milli) and memory (bytes) requested; a default if none is."""
        return read_only(self._nodes.non_zero)

    @property
    def may_wrap(self) -> bool:
        """Whether an amount was ever so large that int64 arithmetic may wrap."""
        return self._nodes.may_wrap

    def allocatable(self, resource: str) -> Amounts | None:
        """Return the allocatable amount per row, None if no node has the resource."""
        amounts = self._nodes.allocatable(resource)
        return None if amounts is None else read_only(amounts)

    def requested(self, resource: str) -> Amounts | None:
        """Return the amount per row that pods request, None if no node has the resource."""
        amounts = self._nodes.requested(resource)
        return None if amounts is None else read_only(amounts)

    def name_of(self, row: int) -> str:
        """Return the name of the row's node."""
        return self._nodes.name_of(row)

    def taints_of(self, row: int) -> tuple[Taint, ...]:
        """Return the taints of the row's node."""
        node = self._nodes.nodes[row]
        return _NO_TAINTS if node is None else node.taints


class VolumesView:
    """Claims, volumes and classes, of which none can be changed."""

    __slots__ = ("_volumes",)

    def __init__(self, volumes: Volumes) -> None:
        self._volumes = volumes

    def claim(self, key: str) -> PersistentVolumeClaim | None:
        """Return the claim of `namespace/name`."""
        return self._volumes.claim(key)

    def volume(self, name: str) -> PersistentVolume | None:
        """Return the volume."""
        return self._volumes.volume(name)

    def storage_class(self, name: str) -> StorageClass | None:
        """Return the class."""
        return self._volumes.storage_class(name)

    def get(self, kind: StorageKind, key: str) -> StorageObject | None:
        """Return the object of the kind: its name, or `namespace/name` of a claim."""
        return self._volumes.get(kind, key)


class ReadOnlyColumn(LabelColumn):
    """A column of the table whose ids cannot be written to."""

    def __init__(self, column: LabelColumn) -> None:
        self.__dict__.update(column.__dict__)
        self.ids: Rows = read_only(column.ids)

    def set(self, row: int, value: str | None) -> None:
        """Raise AttributeError: labels are changed on the node, in the API server."""
        raise AttributeError(f"label {self.key} of row {row} cannot be set to {value}: a plugin only reads")


class ReadOnlyCounts(PodCounts):
    """Counts that cannot be written to."""

    def __init__(self, counts: PodCounts) -> None:
        super().__init__(read_only(counts.by_row), counts.version)
        self._counts = counts

    def per_domain(self, domains: Domains) -> PerDomain:
        """Return the pods in each of the domains."""
        return read_only_amounts(self._counts.per_domain(domains))


def read_only_amounts(per_domain: PerDomain) -> PerDomain:
    """Return the amounts, which cannot be written to."""
    return PerDomain(read_only(per_domain.amounts), read_only(per_domain.ids))

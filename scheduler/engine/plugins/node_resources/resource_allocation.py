"""
The resources that the plugins of this package score.

Source: plugins/noderesources/resource_allocation.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, TypeAlias

from scheduler.engine.framework.shape import ShapePoint
from scheduler.engine.model.requests import PLAIN_RESOURCES, is_scalar
from scheduler.engine.model.wire import Int64, Wire
from scheduler.engine.state.arrays import Amount, Amounts, RowIndex, amount_at
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.node_table import NodeTable


def counts_in_score(resource: str, requested: int) -> bool:
    """Return whether the resource counts in a pod's score: a scalar resource only if the pod requests it."""
    return resource in PLAIN_RESOURCES or (requested != 0 and is_scalar(resource))


class DeviceUses:
    """
    What is used of resources. Some are devices on nodes that do not offer the resource themselves.

    `devices`: by extended resource, how many devices of its class each row reaches, and how many are allocated.
    """

    def __init__(self, nodes: NodeTable, devices: Mapping[str, tuple[Amounts, Amounts]]) -> None:
        self._nodes, self._devices = nodes, devices

    def use(
        self, resource: str, rows: RowIndex, *, with_defaults: bool = False
    ) -> tuple[Amount, Amount] | None:
        """Return (requested, allocatable) of the resource, as `NodeTable.use` does."""
        use = self._nodes.use(resource, rows, with_defaults=with_defaults)
        counted = self._devices.get(resource)
        if counted is None:
            return use
        total, allocated = (amount_at(amounts, rows) for amounts in counted)
        if use is None:
            return allocated, total
        from_devices = use[1] == 0
        return use[0] + from_devices * (allocated - use[0]), use[1] + from_devices * total


#: What scores read of the resources of nodes.
Uses: TypeAlias = NodeTable | DeviceUses


def scored_uses(extended: Sequence[str], view: ClusterView) -> tuple[Uses, Hashable]:
    """Return the uses of resources, and a value that is equal as long as devices do not change them."""
    # `extended`: the resources that a device class may provide. O(devices) for each that one provides.
    counted = {name: use for name in extended if (use := view.class_devices(name)) is not None}
    if not counted:
        return view.nodes, None
    return DeviceUses(view.nodes, counted), (view.devices.changes.version, view.devices.classes_version)


RATIO: Final = "RequestedToCapacityRatio"
SCORING_STRATEGIES: Final = ("LeastAllocated", "MostAllocated", RATIO)


class ResourceWeight(Wire, frozen=True):
    """A resource that counts in a score, and its weight from 1 to 100."""

    name: str = ""
    weight: Int64 = 1


CPU_AND_MEMORY: Final = (ResourceWeight("cpu"), ResourceWeight("memory"))


class RequestedToCapacityRatio(Wire, frozen=True):
    """The scores, from 0 to 10, of shares in use, in strictly increasing order of utilization."""

    shape: tuple[ShapePoint, ...] = ()


class ScoringStrategy(Wire, frozen=True):
    """How NodeResourcesFit scores a node: one of SCORING_STRATEGIES; only RATIO has the ratio."""

    type: str = ""
    resources: tuple[ResourceWeight, ...] = CPU_AND_MEMORY
    requested_to_capacity_ratio: RequestedToCapacityRatio | None = None


class NodeResourcesFitArgs(Wire, frozen=True):
    """Extended resources that the filter ignores, by name or by the part before the slash, and the scoring strategy."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy("LeastAllocated")


class NodeResourcesBalancedAllocationArgs(Wire, frozen=True):
    """The resources whose utilisation should be even; names are unique and every weight is 1."""

    resources: tuple[ResourceWeight, ...] = CPU_AND_MEMORY

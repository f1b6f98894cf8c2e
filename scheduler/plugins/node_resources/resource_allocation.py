"""
The resources that the plugins of this package score.

Source: plugins/noderesources/resource_allocation.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.model.requests import CPU, EPHEMERAL_STORAGE, MEMORY, is_scalar
from scheduler.state.arrays import Amount, Amounts, RowIndex, amount_at
from scheduler.state.cluster_view import ClusterView

PLAIN_RESOURCES: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)


def counts_in_score(resource: str, requested: int) -> bool:
    """Return whether the resource counts in a pod's score: a scalar resource only if the pod requests it."""
    return resource in PLAIN_RESOURCES or (requested != 0 and is_scalar(resource))


@dataclass(frozen=True, slots=True)
class ScoredUses:
    """
    What is used of the resources that count in a score.

    Attributes:
        key: equal as long as the devices are.
    """

    view: ClusterView
    key: Hashable
    #: By extended resource: how many devices of its class each row reaches, and how many of them are allocated.
    devices: Mapping[str, tuple[Amounts, Amounts]]

    def of(
        self, resource: str, rows: RowIndex, *, with_defaults: bool = False
    ) -> tuple[Amount, Amount] | None:
        """Return (requested, allocatable); of devices where the node does not offer the resource itself."""
        use = self.view.nodes.use(resource, rows, with_defaults=with_defaults)
        counted = self.devices.get(resource)
        if counted is None:
            return use
        total, allocated = (amount_at(amounts, rows) for amounts in counted)
        if use is None:
            return allocated, total
        from_devices = (use[1] == 0) & (total > 0)
        return use[0] + from_devices * (allocated - use[0]), use[1] + from_devices * total


def scored_uses(resources: Iterable[str], view: ClusterView) -> ScoredUses:
    """Return the uses of the resources; those that a device class provides are counted anew. O(devices) for each."""
    counted = {name: use for name in resources if (use := view.class_devices(name)) is not None}
    state = view.devices
    return ScoredUses(view, (state.changes.version, state.classes_version) if counted else None, counted)

"""Slices and allocated devices as plain lists and sets, for tests of the allocator."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.engine.model.allocations import Allocation
from scheduler.engine.model.devices import DeviceId, PoolId, ResourceSlice
from scheduler.engine.plugins.dynamic_resources.pool_index import PoolIndex
from scheduler.engine.state.device_changes import DeviceChanges
from scheduler.engine.syntax.quantity import parse_quantity


class PlainSlices:
    """The slices of a cluster."""

    def __init__(self, slices: Iterable[ResourceSlice]) -> None:
        self._slices = list(slices)

    def put(self, added: ResourceSlice) -> None:
        """Add a slice, or replace the one of its name."""
        self._slices = [*(each for each in self._slices if each.key != added.key), added]

    def slices(self) -> list[ResourceSlice]:
        """Return all slices."""
        return self._slices

    def on_node(self, name: str) -> list[ResourceSlice]:
        """Return the slices with this nodeName and without shared counters."""
        return [each for each in self._slices if not each.shared_counters and each.node_name == name]

    def shared(self) -> list[ResourceSlice]:
        """Return the other slices."""
        return [each for each in self._slices if each.shared_counters or not each.node_name]

    def of_pool(self, pool: PoolId) -> list[ResourceSlice]:
        """Return all slices of the pool."""
        return [each for each in self._slices if each.pool_id == pool]


class PlainAllocated:
    """The allocated devices, counted anew from allocations."""

    def __init__(self, allocations: Iterable[Allocation]) -> None:
        self.dedicated: set[DeviceId] = set()
        self.shared: set[DeviceId] = set()
        self.consumed: dict[DeviceId, dict[str, int]] = {}
        for allocation in allocations:
            for result in allocation.devices.results:
                device_id = DeviceId(result.driver, result.pool, result.device)
                if result.admin_access:
                    continue
                if result.share_id is None:
                    self.dedicated.add(device_id)
                    continue
                self.shared.add(device_id)
                for name, amount in (result.consumed_capacity or {}).items():
                    consumed = self.consumed.setdefault(device_id, {})
                    consumed[name] = consumed.get(name, 0) + parse_quantity(amount or 0).nano


def indexed(slices: Iterable[ResourceSlice]) -> PoolIndex:
    """Return the pools of these slices."""
    index = PoolIndex(PlainSlices(slices), DeviceChanges())
    index.refresh()
    return index

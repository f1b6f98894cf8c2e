"""
Slices, classes and claims as kube-scheduler sees them where feature gates of DRA are off.

An API server without a gate drops its fields; here they are left out of objects that were stored by one with the gate.

Source: dynamicresources.go, structured/internal/incubating, allocateddevices.go (kubernetes 1.36). Differences, only
beside an API server that has the gate: All leaves out devices that consume counters, where upstream finds none; and
`device.allowMultipleAllocations` is false in expressions, where upstream does not compile it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from scheduler.engine.model.allocations import Allocation
from scheduler.engine.model.device_decoder import DeviceDecoder, DeviceObject
from scheduler.engine.model.device_requests import DeviceQuery, DeviceRequest, ResourceClaim
from scheduler.engine.model.devices import (
    Device,
    DeviceCapacity,
    DeviceClass,
    DeviceKind,
    DeviceTaintRule,
    ResourceSlice,
)
from scheduler.engine.model.semantics import Gate, Semantics

_NO_ALTERNATIVES = "has subrequests, but the DRAPrioritizedList feature is disabled"
_NO_ADMIN = "admin access is requested, but the feature is disabled"
_NO_CAPACITY = "has capacity requests, but the DRAConsumableCapacity feature is disabled"


@dataclass(frozen=True, slots=True)
class DeviceGates:
    """Which features of devices are on; see the gates of these names. By default objects stay as decoded."""

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable: bool = True
    taints: bool = True
    consumable: bool = True
    binding_conditions: bool = True
    extended_resource: bool = True
    fractional_ranges: bool = False

    @classmethod
    def of(cls, semantics: Semantics) -> DeviceGates:
        """Return what is on in the version."""
        on = semantics.enabled
        return cls(
            admin_access=on(Gate.DRA_ADMIN_ACCESS),
            prioritized_list=on(Gate.DRA_PRIORITIZED_LIST),
            partitionable=on(Gate.DRA_PARTITIONABLE_DEVICES),
            taints=on(Gate.DRA_DEVICE_TAINTS),
            consumable=on(Gate.DRA_CONSUMABLE_CAPACITY),
            binding_conditions=on(Gate.DRA_DEVICE_BINDING_CONDITIONS)
            and on(Gate.DRA_RESOURCE_CLAIM_DEVICE_STATUS),
            extended_resource=on(Gate.DRA_EXTENDED_RESOURCE),
            fractional_ranges=on(Gate.DRA_FRACTIONAL_CAPACITY_RANGE),
        )

    def applied_to(self, obj: DeviceObject) -> DeviceObject:
        """Return the object without what belongs to features that are off."""
        if self == _AS_DECODED:
            return obj
        match obj:
            case ResourceSlice():
                return self._slice(obj)
            case ResourceClaim():
                return self.claim(obj)
            case DeviceClass():
                return obj if self.extended_resource else replace(obj, provides_resources=False)
            case DeviceTaintRule():
                return obj

    def claim(self, old: ResourceClaim) -> ResourceClaim:
        """Return the claim, with the requests that cannot be served marked."""
        requests = tuple(map(self._request, old.requests))
        return replace(old, requests=requests, allocation=self._allocation(old.allocation))

    def _slice(self, old: ResourceSlice) -> ResourceSlice:
        if not self.partitionable and (old.per_device_node_selection or old.shared_counters):
            # It counts as a part of its pool, and is for no node.
            return replace(
                old,
                node_name=None,
                node_selection=None,
                all_nodes=False,
                per_device_node_selection=False,
                shared_counters=(),
                devices=(),
            )
        return replace(old, devices=tuple(map(self._device, filter(self._is_usable, old.devices))))

    def _is_usable(self, device: Device) -> bool:
        has_conditions = bool(device.binding_conditions) and not self.binding_conditions
        return not has_conditions and (self.partitionable or not device.consumes_counters)

    def _device(self, old: Device) -> Device:
        changed = old if self.taints else replace(old, taints=())
        if not self.binding_conditions:
            changed = replace(changed, binding_conditions=None, binding_failure_conditions=None)
        if not self.consumable:
            capacity = {name: DeviceCapacity(each.value, None) for name, each in old.capacity.items()}
            return replace(changed, capacity=capacity, allow_multiple_allocations=False)
        if self.fractional_ranges:
            capacity = {name: _with_fractional_range(each) for name, each in old.capacity.items()}
            return replace(changed, capacity=capacity)
        return changed

    def _request(self, old: DeviceRequest) -> DeviceRequest:
        exactly = None if old.exactly is None else self._query(old.exactly)
        alternatives = tuple(map(self._query, old.first_available))
        is_off = bool(alternatives) and not self.prioritized_list
        return replace(
            old, exactly=exactly, first_available=alternatives, problem=_NO_ALTERNATIVES if is_off else ""
        )

    def _query(self, old: DeviceQuery) -> DeviceQuery:
        if old.capacity and not self.consumable:
            return replace(old, problem=_NO_CAPACITY)
        if old.admin_access and not self.admin_access:
            return replace(old, problem=_NO_ADMIN)
        return old

    def _allocation(self, old: Allocation | None) -> Allocation | None:
        if old is None or (self.consumable and self.binding_conditions):
            return old
        left_out: dict[str, None] = {}
        if not self.consumable:
            left_out |= dict.fromkeys(("share_id", "consumed_capacity"))
        if not self.binding_conditions:
            left_out |= dict.fromkeys(("binding_conditions", "binding_failure_conditions"))
        results = tuple(msgspec.structs.replace(each, **left_out) for each in old.devices.results)
        return msgspec.structs.replace(old, devices=msgspec.structs.replace(old.devices, results=results))


def _with_fractional_range(old: DeviceCapacity) -> DeviceCapacity:
    """Return the capacity; a range with an amount that is no whole number is counted in thousandths."""
    valid = None if old.policy is None else old.policy.valid_range
    if old.policy is None or valid is None or not valid.is_fractional:
        return old
    return replace(old, policy=replace(old.policy, valid_range=replace(valid, in_thousandths=True)))


_AS_DECODED = DeviceGates()


class GatedDeviceDecoder:
    """A decoder of objects as the version sees them. Use one per process, as of `DeviceDecoder`."""

    def __init__(self, semantics: Semantics) -> None:
        self._decoder, self._gates = DeviceDecoder(), DeviceGates.of(semantics)

    def decode(self, kind: DeviceKind, data: bytes | msgspec.Raw) -> DeviceObject:
        """Return the object of a JSON document; raise MalformedObjectError."""
        return self._gates.applied_to(self._decoder.decode(kind, data))

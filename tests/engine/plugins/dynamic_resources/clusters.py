"""Devices that are published, and allocated, for tests of the allocator."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.allocations import Allocation
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.devices import DeviceClass, DeviceKind, ResourceSlice
from scheduler.engine.model.nodes import Node, decode_node
from scheduler.engine.plugins.dynamic_resources.pool_index import PoolIndex
from scheduler.engine.state.allocated_devices import AllocatedDevices
from scheduler.engine.state.devices import Devices
from tests.support import build
from tests.support.build import Json


def published(
    slices: Iterable[ResourceSlice],
    classes: Iterable[DeviceClass] = (),
    allocations: Iterable[Allocation] = (),
) -> Devices:
    """Return what is known of these devices."""
    devices = Devices()
    for each in slices:
        devices.upsert(each)
    for device_class in classes:
        devices.upsert(device_class)
    devices.allocated = allocated(allocations)
    return devices


def allocated(allocations: Iterable[Allocation]) -> AllocatedDevices:
    """Return the devices of the allocations, each of which a claim of its own has."""
    devices = AllocatedDevices()
    for number, each in enumerate(allocations):
        devices.count(each, f"default/{number}", 1)
    return devices


def indexed(slices: Iterable[ResourceSlice]) -> PoolIndex:
    """Return the pools of these slices."""
    index = PoolIndex(published(slices))
    index.refresh()
    return index


def node_of(name: str, labels: Mapping[str, str]) -> Node:
    """Return a node with no other labels."""
    return decode_node(json.dumps(build.node(name, labels=labels, hostname=None)).encode())


def decoded(kind: DeviceKind, raw: Json) -> Any:
    """Return the object."""
    return KINDS[kind].decode(json.dumps(raw).encode())


def claim_of(raw: Json) -> ResourceClaim:
    """Return the claim."""
    claim: ResourceClaim = decoded(DeviceKind.CLAIM, raw)
    return claim


def slice_of(name: str, spec: Json) -> ResourceSlice:
    """Return the slice."""
    made: ResourceSlice = decoded(DeviceKind.SLICE, {"metadata": {"name": name}, "spec": spec})
    return made

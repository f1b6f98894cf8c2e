"""What is known of devices, and what tells readers that it changed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.devices import DeviceId, DeviceKind
from scheduler.engine.state.allocated_devices import AllocatedDevices
from scheduler.engine.state.devices import Devices
from tests.support.build import Json
from tests.support.device_documents import DRIVER, device_class, device_slice


def decoded(document: Json) -> Any:
    return KINDS[document["kind"]].decode(json.dumps(document).encode())


def test_each_change_of_a_class_is_told() -> None:
    """Also one that takes the place of another: what was computed with the former class is computed anew."""
    devices = Devices()
    versions = [devices.classes_version]
    for resource in ("", "example.com/gpu"):
        devices.upsert(decoded(device_class("gpu", resource)))
        versions.append(devices.classes_version)
    devices.remove(DeviceKind.CLASS, "gpu")
    versions.append(devices.classes_version)
    assert len(set(versions)) == 4


@pytest.mark.parametrize(
    ("classes", "provider"),
    [
        ((("a", 1), ("b", 2)), "b"),
        ((("b", 2), ("a", 1)), "b"),
        ((("a", 1), ("b", 1)), "a"),
        ((("b", 1), ("a", 1)), "a"),
    ],
)
def test_of_classes_that_name_one_resource_the_newest_provides_it(
    classes: tuple[tuple[str, int], ...], provider: str
) -> None:
    """Of equally old ones the first by name."""
    devices = Devices()
    devices.upsert(decoded(device_class("other")))
    for name, day in classes:
        document = device_class(name, "example.com/gpu")
        document["metadata"]["creationTimestamp"] = f"2026-01-0{day}T00:00:00Z"
        devices.upsert(decoded(document))
    chosen = devices.extended_resources.class_of("example.com/gpu")
    assert chosen is not None
    assert chosen.key == provider
    provided = [each.key for each in devices.extended_resources._class_by_resource.values()]
    assert sorted(provided)[-1] == "other"


def claim(name: str, *devices: str, driver: str = DRIVER, **more: object) -> ResourceClaim:
    """Return a claim with these devices of pool a, of whose results all have the fields of `more`."""
    results = [
        {"request": "r", "driver": driver, "pool": "a", "device": device, **more} for device in devices
    ]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    document = {
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        "status": {"allocation": {"devices": {"results": results}}} if devices else {},
    }
    made: ResourceClaim = decoded(document)
    return made


def test_of_two_claims_with_one_device_the_later_one_knows_the_earlier() -> None:
    """A claim that was deleted and made anew is the later one; one with admin access takes nothing."""
    devices = Devices()
    first, second = claim("first", "gpu-0"), claim("second", "gpu-0")
    devices.upsert(first)
    devices.upsert(claim("admin", "gpu-0", adminAccess=True))
    assert devices.earlier_claim(claim("admin", "gpu-0", adminAccess=True)) is None
    assert devices.n_allocated_twice == 0
    devices.remove(DeviceKind.CLAIM, first.key)
    devices.upsert(second)
    assert devices.n_allocated_twice == 0
    devices.upsert(first)
    assert devices.n_allocated_twice == 1
    assert devices.earlier_claim(first) == second.key
    assert devices.earlier_claim(second) is None


def test_devices_in_use_and_free_ones_are_counted_by_driver() -> None:
    """Also where a claim has a device that its driver publishes no more."""
    devices = Devices()
    devices.upsert(decoded(device_slice("a", 3)))
    devices.upsert(claim("c", "gpu-0"))
    devices.upsert(claim("d", "gone-0", "gone-1", driver="another"))
    devices.upsert(decoded({**device_slice("b", 2), "metadata": {"name": "b", "uid": "b"}}))
    assert list(devices.n_by_driver()) == [("another", 0, 2), (DRIVER, 4, 1)]
    devices.remove(DeviceKind.CLAIM, "default/c")
    devices.remove(DeviceKind.CLAIM, "default/d")
    assert list(devices.n_by_driver()) == [(DRIVER, 5, 0)]
    assert list(devices.differences()) == []


def test_what_claims_share_of_a_device_is_added_up_and_given_back() -> None:
    """A capacity without an amount, or of none, is not consumed."""
    allocated, device = AllocatedDevices(), DeviceId(DRIVER, "a", "gpu-0")
    capacity = {"memory": "2", "slots": None, "cores": "0"}
    shared = [claim(name, "gpu-0", shareID=name, consumedCapacity=capacity).allocation for name in "cd"]
    alone = claim("e", "gpu-1").allocation
    assert alone is not None
    allocated.count(alone, "e", 1)
    assert not allocated.has(device)
    for number, each in enumerate(shared, 1):
        assert each is not None
        allocated.count(each, f"{number}", 1)
        assert allocated.has(device)
        assert allocated.consumed == {device: {"memory": number * 2 * 10**9}}
        assert allocated.n_by_driver == {DRIVER: 2}
    for number, each in enumerate(shared, 1):
        assert each is not None
        assert list(allocated.claims_of(device)) == [f"{n}" for n in (1, 2) if n >= number]
        allocated.count(each, f"{number}", -1)
    assert not allocated.has(device)
    assert (allocated.consumed, allocated.n_by_driver) == ({}, {DRIVER: 1})

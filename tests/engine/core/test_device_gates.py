"""Single gates of DRA, beside an API server that has stored their fields."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.daemon.settings.loading import default_settings
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.model.allocations import Allocation
from scheduler.engine.model.instructions import WriteReservation
from scheduler.engine.model.semantics import Gate, Version, semantics_of
from tests.engine.core.claim_cluster import ClaimCluster
from tests.support import build
from tests.support.device_documents import DRIVER, device_class, device_slice, resource_claim
from tests.support.driving import attempt_of

_CONDITIONS = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}


class _Cluster(ClaimCluster):
    """A cluster with one node, decided by a version with this gate switched."""

    def __init__(self, gate: Gate, *, is_on: bool, **of_device: Any) -> None:
        super().__init__(0, ("a",), _settings(gate, is_on=is_on))
        self.show(device_slice("a", 1, **of_device))

    def claim(self, **changes: Any) -> build.Json:
        """Store a claim whose request has these changes, and show a pod that uses it."""
        document = resource_claim("c")
        document["spec"]["devices"]["requests"][0]["exactly"] |= changes
        self.store(document)
        self.watch()
        self.using("c")
        return document

    def answer(self) -> str:
        """Run a cycle; return the message of the pod, empty if it is placed."""
        instructions = self.cycle()
        is_placed = any(isinstance(each, WriteReservation) for each in instructions)
        return "" if is_placed else attempt_of(instructions).message


def _settings(gate: Gate, *, is_on: bool) -> Settings:
    return default_settings(semantics=semantics_of(Version(1, 36), {gate: is_on}))


SHARED = {"allowMultipleAllocations": True, "capacity": {"m": {"value": "4"}}}
#: By gate: the device, the request, and the messages with the gate on and off; empty for a placed pod.
CASES: dict[str, tuple[Gate, build.Json, build.Json, str, str]] = {
    "taints are ignored": (
        Gate.DRA_DEVICE_TAINTS,
        {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        {},
        "cannot allocate all claims",
        "",
    ),
    "devices that consume counters are not taken": (
        Gate.DRA_PARTITIONABLE_DEVICES,
        {"consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}]},
        {},
        "",
        "cannot allocate all claims",
    ),
    "devices with binding conditions are not taken": (
        Gate.DRA_DEVICE_BINDING_CONDITIONS,
        _CONDITIONS,
        {},
        "",
        "cannot allocate all claims",
    ),
    "nor are they without the status of devices": (
        Gate.DRA_RESOURCE_CLAIM_DEVICE_STATUS,
        _CONDITIONS,
        {},
        "",
        "cannot allocate all claims",
    ),
    "capacity is not requested": (
        Gate.DRA_CONSUMABLE_CAPACITY,
        SHARED,
        {"capacity": {"requests": {"m": "1"}}},
        "",
        "claim default/c, request r: has capacity requests, but the DRAConsumableCapacity feature is disabled",
    ),
    "admin access is not granted": (
        Gate.DRA_ADMIN_ACCESS,
        {},
        {"adminAccess": True},
        "",
        "claim default/c, request r: admin access is requested, but the feature is disabled",
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("is_on", [True, False])
def test_a_gate_decides_as_upstream(case: str, is_on: bool) -> None:
    gate, device, request, on, off = CASES[case]
    cluster = _Cluster(gate, is_on=is_on, **device)
    if "consumesCounters" in device:
        counters = device_slice("a", 0)
        counters["metadata"] = {"name": "counters", "uid": "counters"}
        counters["spec"] |= {"sharedCounters": [{"name": "s", "counters": {"c": {"value": "1"}}}]}
        for document in (device_slice("a", 1, **device), counters):
            document["spec"]["pool"]["resourceSliceCount"] = 2
            cluster.show(document)
    cluster.claim(**request)
    expected, answer = on if is_on else off, cluster.answer()
    assert (answer == "") == (expected == "")
    assert expected in answer


@pytest.mark.parametrize("is_on", [True, False])
def test_alternatives_need_their_gate(is_on: bool) -> None:
    cluster = _Cluster(Gate.DRA_PRIORITIZED_LIST, is_on=is_on)
    document = resource_claim("c")
    query = {"name": "s", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    document["spec"]["devices"]["requests"] = [{"name": "r", "firstAvailable": [query]}]
    cluster.store(document)
    cluster.watch()
    cluster.using("c")
    text = (
        "resource claim default/c, request r: has subrequests, but the DRAPrioritizedList feature is disabled"
    )
    assert (text in cluster.answer()) is not is_on


@pytest.mark.parametrize("is_on", [True, False])
def test_a_class_provides_extended_resources_by_its_gate(is_on: bool) -> None:
    cluster = _Cluster(Gate.DRA_EXTENDED_RESOURCE, is_on=is_on)
    cluster.show(device_class("gpu", "example.com/gpu"))
    cluster.using(containers=[build.container(requests={"example.com/gpu": "1"})])
    assert ("Insufficient example.com/gpu" in cluster.answer()) is not is_on


@pytest.mark.parametrize("is_on", [True, False])
def test_a_device_is_shared_by_its_gate(is_on: bool) -> None:
    """Without it a device that has a share is in use, and a whole device is given away."""
    cluster = _Cluster(Gate.DRA_CONSUMABLE_CAPACITY, is_on=is_on, **SHARED)
    result = {"request": "r", "driver": DRIVER, "pool": "a", "device": "gpu-0", "shareID": "s"}
    consumer = {"resource": "pods", "name": "other", "uid": "other"}
    cluster.store(
        resource_claim(
            "theirs",
            allocation={"devices": {"results": [{**result, "consumedCapacity": {"m": "1"}}]}},
            reservedFor=[consumer],
        )
    )
    cluster.claim()
    assert (cluster.answer() == "") is False
    del cluster.server.claims["default/theirs"]
    cluster.collect()
    cluster.watch()
    cluster.now_s += 400
    cluster.pass_time(0)
    (write,) = cluster.reserve().writes
    assert isinstance(write.value, Allocation)
    (taken,) = write.value.devices.results
    assert (taken.share_id is not None) is is_on


def test_an_allocation_has_a_time_only_if_conditions_may_be_waited_for() -> None:
    """The API server takes a time that comes later for a change of the allocation."""
    for is_on in (True, False):
        cluster = _Cluster(Gate.DRA_DEVICE_BINDING_CONDITIONS, is_on=is_on)
        cluster.claim()
        cluster.write(cluster.reserve())
        allocation = cluster.server.claims["default/c"]["status"]["allocation"]
        assert ("allocationTimestamp" in allocation) is is_on

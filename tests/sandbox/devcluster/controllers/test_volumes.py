"""Volumes and claims on a running cluster: bound, provisioned, refused, reclaimed."""

import itertools
from typing import Any

import pytest

from scheduler.sandbox.devcluster.controllers.volumes import (
    PROVISION_AFTER_S,
    PROVISION_FAILURE,
    PROVISIONER,
    SELECTED_NODE,
    ZONE,
)
from scheduler.sandbox.devcluster.kinds import (
    CORE_EVENT,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STORAGE_CLASS,
)
from tests.sandbox.devcluster.controllers.running import cluster, settled
from tests.support import storage_objects
from tests.support.cases.volume_rows import using
from tests.support.round_robin_binder import N_NODES
from tests.support.waiting import until_written

pytestmark = pytest.mark.asyncio


def make_claim(store, name="c", of_class="manual", **spec):
    return store.create(PERSISTENT_VOLUME_CLAIM, "default", storage_objects.claim(name, of_class, **spec))


def make_volume(store, name, of_class="manual", **spec):
    return store.create(PERSISTENT_VOLUME, "", storage_objects.volume(name, of_class, **spec))


def make_class(store, name, *, mode="Immediate", annotations=None, **fields):
    made = storage_objects.storage_class(name, "p.test", mode=mode)
    made["metadata"]["annotations"] = annotations or {}
    return store.create(STORAGE_CLASS, "", {**made, **fields})


def claim(store, name="c") -> Any:
    return store.get(PERSISTENT_VOLUME_CLAIM, "default", name)


def volume_of(store, name="c") -> Any:
    return store.get(PERSISTENT_VOLUME, "", claim(store, name)["spec"]["volumeName"])


def zones(volume) -> Any:
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    (one,) = term["matchExpressions"]
    assert one["key"] == ZONE
    return one["values"]


def reasons(store, name="c"):
    return [one["reason"] for one in store.list(CORE_EVENT)[0] if one["involvedObject"]["name"] == name]


async def in_phase(store, phase, name="c", kind=PERSISTENT_VOLUME_CLAIM):
    """Wait until the object is in the phase; gone, if that is empty."""

    def is_in() -> bool:
        found = store.find(kind, "" if kind is PERSISTENT_VOLUME else "default", name) or {}
        return bool((found.get("status") or {}).get("phase", "") == phase)

    await until_written(store, is_in)


# -- binding -------------------------------------------------------------------------------------------------


async def test_a_claim_gets_the_smallest_volume_that_suits_it():
    async with cluster(storage=True) as store:
        for name, size in (("large", "9Gi"), ("right", "3Gi"), ("small", "1Gi")):
            make_volume(store, name, capacity=size)
        await in_phase(store, "Available", "large", PERSISTENT_VOLUME)
        make_claim(store, request="2Gi")
        await in_phase(store, "Bound")
        stored, volume = claim(store), volume_of(store)
    by_controller = {"pv.kubernetes.io/bound-by-controller": "yes"}
    assert stored["metadata"]["annotations"] == {"pv.kubernetes.io/bind-completed": "yes", **by_controller}
    capacity = {"storage": "3Gi"}
    assert stored["status"] == {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": capacity}
    assert (volume["metadata"]["name"], volume["status"]["phase"]) == ("right", "Bound")
    assert volume["spec"]["claimRef"]["uid"] == stored["metadata"]["uid"]
    assert volume["metadata"]["annotations"] == by_controller


async def test_a_claim_leaves_a_volume_that_does_not_suit_it():
    wanted: tuple[dict[str, Any], ...] = (
        {"request": "2Gi"},
        {"volumeMode": "Block"},
        {"modes": ["ReadOnlyMany"]},
        {"selector": {"matchLabels": {"tier": "fast"}}},
        {"of_class": "other"},
    )
    async with cluster(storage=True) as store:
        make_volume(store, "v")
        await in_phase(store, "Available", "v", PERSISTENT_VOLUME)
        for number, spec in enumerate(wanted):
            make_claim(store, f"c{number}", **spec)
        names = [f"c{number}" for number in range(len(wanted))]
        await until_written(store, lambda: all(reasons(store, name) for name in names))
        told = [(reasons(store, name), claim(store, name)["spec"].get("volumeName")) for name in names]
        assert told == [(["FailedBinding"], None)] * len(wanted)


async def test_a_volume_promised_by_its_maker_is_kept_for_its_claim():
    async with cluster(storage=True) as store:
        make_volume(store, "v", capacity="9Gi", claimed_by="default/c")
        make_volume(store, "w")
        make_claim(store, "other")
        make_claim(store)
        await in_phase(store, "Bound")
        await in_phase(store, "Bound", "other")
        assert claim(store)["spec"]["volumeName"] == "v"
        assert "annotations" not in volume_of(store)["metadata"]


async def test_a_scheduler_promises_a_volume_and_the_controller_binds_it():
    async with cluster(storage=True) as store:
        make_class(store, "local", mode="WaitForFirstConsumer", provisioner="kubernetes.io/no-provisioner")
        make_volume(store, "v", "local")
        stored = make_claim(store, of_class="local")
        await in_phase(store, "Pending")
        volume = store.get(PERSISTENT_VOLUME, "", "v")
        keys = ("namespace", "name", "uid", "resourceVersion")
        reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
        reference |= {key: stored["metadata"][key] for key in keys}
        store.update(PERSISTENT_VOLUME, {**volume, "spec": {**volume["spec"], "claimRef": reference}})
        await in_phase(store, "Bound")
        assert claim(store)["spec"]["volumeName"] == "v"


async def test_a_claim_whose_volume_is_gone_is_lost():
    async with cluster(storage=True) as store:
        make_claim(store, volumeName="v")
        make_volume(store, "v")
        await in_phase(store, "Bound")
        volume = volume_of(store)
        store.update(PERSISTENT_VOLUME, {**volume, "metadata": {**volume["metadata"], "finalizers": []}})
        store.delete(PERSISTENT_VOLUME, "", "v")
        await in_phase(store, "Lost")


# -- provisioning --------------------------------------------------------------------------------------------


async def test_an_immediate_claim_gets_a_volume_in_some_zone_or_where_its_class_says():
    """Even without a node there."""
    async with cluster(storage=True) as store:
        make_class(store, "now", reclaimPolicy="Retain")
        terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["zone-x"]}]}]
        make_class(store, "far", allowedTopologies=terms)
        make_claim(store, "far", of_class="far")
        names = [f"data-{number}" for number in range(N_NODES)]
        for name in names:
            make_claim(store, name, of_class="now")
        for name in ("far", *names):
            await in_phase(store, "Bound", name)
        volumes = [volume_of(store, name) for name in names]
        assert zones(volume_of(store, "far")) == ["zone-x"]
    assert {zone for volume in volumes for zone in zones(volume)} == {"zone-a", "zone-b", "zone-c"}
    spec = volumes[0]["spec"]
    assert (spec["persistentVolumeReclaimPolicy"], spec["csi"]["driver"]) == ("Retain", "p.test")
    assert volumes[0]["metadata"]["annotations"] == {"pv.kubernetes.io/provisioned-by": "p.test"}


async def test_a_delayed_claim_gets_a_volume_in_the_zone_of_its_node_until_its_pod_is_gone():
    async with cluster(storage=True) as store:
        make_claim(store, of_class="standard")
        store.create(POD, "default", using("c"))
        await in_phase(store, "Running", "p", POD)
        node = store.get(NODE, "", store.get(POD, "default", "p")["spec"]["nodeName"])
        assert zones(volume_of(store)) == [node["metadata"]["labels"][ZONE]]
        assert claim(store)["metadata"]["annotations"][SELECTED_NODE] == node["metadata"]["name"]
        made = claim(store)["spec"]["volumeName"]
        store.delete(PERSISTENT_VOLUME_CLAIM, "default", "c")
        store.delete(PERSISTENT_VOLUME, "", made)
        await settled(store)
        assert claim(store)["metadata"]["deletionTimestamp"]
        store.delete(POD, "default", "p")
        await in_phase(store, "")
        await in_phase(store, "", made, PERSISTENT_VOLUME)


async def test_a_provisioner_that_fails_takes_the_selected_node_back():
    async with cluster(storage=True) as store:
        annotations = {PROVISION_FAILURE: "the shelf is on fire"}
        made = make_class(store, "broken", mode="WaitForFirstConsumer", annotations=annotations)
        make_claim(store, of_class="broken")
        store.create(POD, "default", using("c"))
        seen: list[bool] = []

        def was_taken_back():
            seen.append(SELECTED_NODE in (claim(store)["metadata"].get("annotations") or {}))
            return (True, False) in itertools.pairwise(seen)

        await until_written(store, was_taken_back)
        assert "ProvisioningFailed" in reasons(store)
        store.update(STORAGE_CLASS, {**made, "metadata": {"name": "broken", "annotations": {}}})
        await in_phase(store, "Running", "p", POD)


async def test_a_slow_provisioner_names_itself_on_the_claim_that_waits():
    async with cluster(storage=True) as store:
        made = make_class(store, "slow", annotations={PROVISION_AFTER_S: "3600"})
        make_claim(store, of_class="slow")
        await until_written(store, lambda: PROVISIONER in (claim(store)["metadata"].get("annotations") or {}))
        assert claim(store)["status"]["phase"] == "Pending"
        annotations = {PROVISION_AFTER_S: "0.01"}
        store.update(STORAGE_CLASS, {**made, "metadata": {"name": "slow", "annotations": annotations}})
        await in_phase(store, "Bound")


async def test_a_retained_volume_is_released_and_stays():
    async with cluster(storage=True) as store:
        make_volume(store, "v")
        make_claim(store)
        await in_phase(store, "Bound")
        store.delete(PERSISTENT_VOLUME_CLAIM, "default", "c")
        await in_phase(store, "Released", "v", PERSISTENT_VOLUME)
        make_claim(store)
        await until_written(store, lambda: "FailedBinding" in reasons(store))
        assert claim(store)["status"]["phase"] == "Pending"

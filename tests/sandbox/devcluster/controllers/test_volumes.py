"""Volumes and claims on a running cluster: bound, provisioned, refused, reclaimed."""

import itertools
from typing import Any

import pytest

from scheduler.sandbox.devcluster.bootstrap import DEFAULT_CLASS
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
    JsonObject,
)
from tests.sandbox.devcluster.controllers.running import cluster
from tests.support.round_robin_binder import N_NODES
from tests.support.waiting import until_written

pytestmark = pytest.mark.asyncio


def claim_body(name, *, of_class=DEFAULT_CLASS, size="1Gi", **spec) -> JsonObject:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"metadata": {"name": name}, "spec": {**asked, "storageClassName": of_class, **spec}}


def volume_body(name, *, of_class="manual", size="1Gi", **spec) -> JsonObject:
    own = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "hostPath": {"path": "/x"}}
    return {"metadata": {"name": name}, "spec": {**own, "storageClassName": of_class, **spec}}


def make_claim(store, name, **spec):
    return store.create(PERSISTENT_VOLUME_CLAIM, "default", claim_body(name, **spec))


def make_volume(store, name, **spec):
    return store.create(PERSISTENT_VOLUME, "", volume_body(name, **spec))


def make_class(store, name, *, mode="Immediate", annotations=None, **fields):
    metadata = {"name": name, "annotations": annotations or {}}
    body = {"metadata": metadata, "provisioner": "p.test", "volumeBindingMode": mode, **fields}
    return store.create(STORAGE_CLASS, "", body)


def make_pod(store, name, *, claims=(), **spec):
    volumes = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]
    spec = {"containers": [{"name": "c", "image": "i"}], "volumes": volumes, **spec}
    return store.create(POD, "default", {"metadata": {"name": name}, "spec": spec})


def claim(store, name="c") -> Any:
    return store.get(PERSISTENT_VOLUME_CLAIM, "default", name)


def is_gone(store, kind, name, namespace="default"):
    return lambda: store.find(kind, namespace, name) is None


def in_phase(store, kind, name, phase, namespace="default"):
    def check():
        found = store.find(kind, namespace, name)
        return found is not None and (found.get("status") or {}).get("phase") == phase

    return check


def bound(store, name="c"):
    return in_phase(store, PERSISTENT_VOLUME_CLAIM, name, "Bound")


def volume_of(store, name="c") -> Any:
    return store.get(PERSISTENT_VOLUME, "", claim(store, name)["spec"]["volumeName"])


def topology(volume) -> Any:
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    return {one["key"]: one["values"] for one in term["matchExpressions"]}


def reasons(store, name="c"):
    return [one["reason"] for one in store.list(CORE_EVENT)[0] if one["involvedObject"]["name"] == name]


# -- binding -------------------------------------------------------------------------------------------------


async def test_a_claim_gets_the_smallest_volume_that_suits_it():
    async with cluster(storage=True) as store:
        for name, size in (("large", "9Gi"), ("right", "3Gi"), ("small", "1Gi")):
            make_volume(store, name, size=size)
        await until_written(store, in_phase(store, PERSISTENT_VOLUME, "large", "Available", ""))
        make_claim(store, "c", of_class="manual", size="2Gi")
        await until_written(store, bound(store))
        stored, volume = claim(store), volume_of(store)
    assert volume["metadata"]["name"] == "right"
    assert stored["metadata"]["annotations"] == {
        "pv.kubernetes.io/bind-completed": "yes",
        "pv.kubernetes.io/bound-by-controller": "yes",
    }
    assert stored["status"] == {
        "phase": "Bound",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "3Gi"},
    }
    reference = volume["spec"]["claimRef"]
    assert (reference["uid"], volume["status"]["phase"]) == (stored["metadata"]["uid"], "Bound")
    assert volume["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}


@pytest.mark.parametrize(
    "wanted",
    [
        {"size": "2Gi"},
        {"volumeMode": "Block"},
        {"accessModes": ["ReadOnlyMany"]},
        {"selector": {"matchLabels": {"tier": "fast"}}},
        {"of_class": "other"},
    ],
)
async def test_a_claim_leaves_a_volume_that_does_not_suit_it(wanted):
    async with cluster(storage=True) as store:
        make_volume(store, "v")
        await until_written(store, in_phase(store, PERSISTENT_VOLUME, "v", "Available", ""))
        make_claim(store, "c", **{"of_class": "manual", **wanted})
        await until_written(store, lambda: reasons(store) or bound(store)())
        assert (reasons(store), claim(store)["spec"].get("volumeName")) == (["FailedBinding"], None)


async def test_a_volume_promised_by_its_maker_is_kept_for_its_claim():
    async with cluster(storage=True) as store:
        make_volume(store, "v", size="9Gi", claimRef={"namespace": "default", "name": "c"})
        make_volume(store, "w")
        make_claim(store, "other", of_class="manual")
        make_claim(store, "c", of_class="manual")
        await until_written(store, bound(store))
        await until_written(store, bound(store, "other"))
        assert claim(store)["spec"]["volumeName"] == "v"
        assert "annotations" not in volume_of(store)["metadata"]


async def test_a_scheduler_promises_a_volume_and_the_controller_binds_it():
    async with cluster(storage=True) as store:
        make_class(store, "local", mode="WaitForFirstConsumer", provisioner="kubernetes.io/no-provisioner")
        volume = make_volume(store, "v", of_class="local")
        stored = make_claim(store, "c", of_class="local")
        await until_written(store, in_phase(store, PERSISTENT_VOLUME_CLAIM, "c", "Pending"))
        volume = store.get(PERSISTENT_VOLUME, "", "v")
        keys = ("namespace", "name", "uid", "resourceVersion")
        reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
        reference |= {key: stored["metadata"][key] for key in keys}
        store.update(PERSISTENT_VOLUME, {**volume, "spec": {**volume["spec"], "claimRef": reference}})
        await until_written(store, bound(store))
        assert claim(store)["spec"]["volumeName"] == "v"


async def test_a_claim_whose_volume_is_gone_is_lost():
    async with cluster(storage=True) as store:
        make_claim(store, "c", of_class="manual", volumeName="v")
        make_volume(store, "v")
        await until_written(store, bound(store))
        volume = volume_of(store)
        store.update(PERSISTENT_VOLUME, {**volume, "metadata": {**volume["metadata"], "finalizers": []}})
        store.delete(PERSISTENT_VOLUME, "", "v")
        await until_written(store, in_phase(store, PERSISTENT_VOLUME_CLAIM, "c", "Lost"))


# -- provisioning --------------------------------------------------------------------------------------------


async def test_an_immediate_claim_gets_a_volume_in_some_zone():
    async with cluster(storage=True) as store:
        make_class(store, "now", reclaimPolicy="Retain")
        for number in range(N_NODES):
            make_claim(store, f"data-{number}", of_class="now")
        for number in range(N_NODES):
            await until_written(store, bound(store, f"data-{number}"))
        volumes = [volume_of(store, f"data-{number}") for number in range(N_NODES)]
    assert {zone for volume in volumes for zone in topology(volume)[ZONE]} == {"zone-a", "zone-b", "zone-c"}
    spec = volumes[0]["spec"]
    assert (spec["persistentVolumeReclaimPolicy"], spec["csi"]["driver"]) == ("Retain", "p.test")
    assert volumes[0]["metadata"]["annotations"] == {"pv.kubernetes.io/provisioned-by": "p.test"}


async def test_an_immediate_claim_gets_a_volume_where_its_class_says_even_without_a_node_there():
    async with cluster(storage=True) as store:
        terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["zone-x"]}]}]
        make_class(store, "far", allowedTopologies=terms)
        make_claim(store, "c", of_class="far")
        await until_written(store, bound(store))
        assert topology(volume_of(store)) == {ZONE: ["zone-x"]}


async def test_a_delayed_claim_gets_a_volume_in_the_zone_of_its_node():
    async with cluster(storage=True) as store:
        make_claim(store, "c")
        make_pod(store, "p", claims=["c"])
        await until_written(store, in_phase(store, POD, "p", "Running"))
        node = store.get(NODE, "", store.get(POD, "default", "p")["spec"]["nodeName"])
        assert topology(volume_of(store)) == {ZONE: [node["metadata"]["labels"][ZONE]]}
        assert claim(store)["metadata"]["annotations"][SELECTED_NODE] == node["metadata"]["name"]


async def test_a_provisioner_that_fails_takes_the_selected_node_back():
    async with cluster(storage=True) as store:
        annotations = {PROVISION_FAILURE: "the shelf is on fire"}
        made = make_class(store, "broken", mode="WaitForFirstConsumer", annotations=annotations)
        make_claim(store, "c", of_class="broken")
        make_pod(store, "p", claims=["c"])
        seen: list[bool] = []

        def was_taken_back():
            seen.append(SELECTED_NODE in (claim(store)["metadata"].get("annotations") or {}))
            return (True, False) in itertools.pairwise(seen)

        await until_written(store, was_taken_back)
        assert "ProvisioningFailed" in reasons(store)
        store.update(STORAGE_CLASS, {**made, "metadata": {"name": "broken", "annotations": {}}})
        await until_written(store, in_phase(store, POD, "p", "Running"))


async def test_a_slow_provisioner_names_itself_on_the_claim_that_waits():
    async with cluster(storage=True) as store:
        made = make_class(store, "slow", annotations={PROVISION_AFTER_S: "3600"})
        make_claim(store, "c", of_class="slow")
        await until_written(store, lambda: PROVISIONER in (claim(store)["metadata"].get("annotations") or {}))
        assert claim(store)["status"]["phase"] == "Pending"
        annotations = {PROVISION_AFTER_S: "0.01"}
        store.update(STORAGE_CLASS, {**made, "metadata": {"name": "slow", "annotations": annotations}})
        await until_written(store, bound(store))


# -- the end -------------------------------------------------------------------------------------------------


async def test_a_claim_in_use_stays_until_its_pod_is_gone():
    async with cluster(storage=True) as store:
        make_claim(store, "c")
        make_pod(store, "p", claims=["c"])
        await until_written(store, in_phase(store, POD, "p", "Running"))
        made = claim(store)["spec"]["volumeName"]
        store.delete(PERSISTENT_VOLUME_CLAIM, "default", "c")
        store.delete(PERSISTENT_VOLUME, "", made)
        assert claim(store)["metadata"]["deletionTimestamp"]
        store.delete(POD, "default", "p")
        await until_written(store, is_gone(store, PERSISTENT_VOLUME_CLAIM, "c"))
        await until_written(store, is_gone(store, PERSISTENT_VOLUME, made, ""))


async def test_a_retained_volume_is_released_and_stays():
    async with cluster(storage=True) as store:
        make_volume(store, "v")
        make_claim(store, "c", of_class="manual")
        await until_written(store, bound(store))
        store.delete(PERSISTENT_VOLUME_CLAIM, "default", "c")
        await until_written(store, in_phase(store, PERSISTENT_VOLUME, "v", "Released", ""))
        make_claim(store, "c", of_class="manual")
        await until_written(store, lambda: "FailedBinding" in reasons(store))
        assert claim(store)["status"]["phase"] == "Pending"

"""Device claims on a running cluster: made of templates, reserved, freed; and the slices of its GPUs."""

from typing import Any

import pytest

from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.gpu_driver import DRIVER, EXTENDED_RESOURCE
from scheduler.sandbox.devcluster.kinds import (
    CORE_EVENT,
    DEVICE_CLASS,
    NODE,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    RESOURCE_SLICE,
)
from tests.sandbox.devcluster.controllers.running import cluster, settled
from tests.support import build
from tests.support.waiting import until_written

pytestmark = pytest.mark.asyncio

_PROTECTION = "resource.kubernetes.io/delete-protection"
_ASKED = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "g"}}]}}
_ALLOCATION = {
    "devices": {"results": [{"request": "gpu", "driver": "d.test", "pool": "n", "device": "gpu-0"}]}
}


def make_template(store):
    store.create(RESOURCE_CLAIM_TEMPLATE, "default", {"metadata": {"name": "t"}, "spec": {"spec": _ASKED}})


def make_claim(store):
    return store.create(RESOURCE_CLAIM, "default", {"metadata": {"name": "c"}, "spec": _ASKED})


def make_pod(store, name="p", *, template=""):
    """
    Create a pod with one claim, of the template or the claim c.

    A gate keeps the simple binder of these tests from one of a template; the other is bound as a static pod is.
    """
    source = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": "c"}
    where = {"schedulingGates": [{"name": "held.test/x"}]} if template else {"nodeName": "node-0001"}
    spec = {"resourceClaims": [{"name": "gpu", **source}], **where}
    return store.create(POD, "default", build.pod(name, spec=spec))


def pod(store, name="p") -> Any:
    return store.find(POD, "default", name)


def claims(store) -> Any:
    return store.list(RESOURCE_CLAIM, "default")[0]


def reserve(store, claim, *pods):
    """Write what a scheduler writes: the finalizer, the allocation and the consumers."""
    protected = {**claim, "metadata": {**claim["metadata"], "finalizers": [_PROTECTION]}}
    stored = store.update(RESOURCE_CLAIM, protected)
    consumers = [
        {"resource": "pods", "name": one["metadata"]["name"], "uid": one["metadata"]["uid"]} for one in pods
    ]
    status = {"allocation": _ALLOCATION, "reservedFor": consumers}
    store.update(RESOURCE_CLAIM, {**stored, "status": status}, subresource="status")


def claim_of(store) -> Any:
    """Return the claim that the status of the pod names; None if it names none."""
    statuses = pod(store)["status"].get("resourceClaimStatuses") or []
    return store.find(RESOURCE_CLAIM, "default", statuses[0]["resourceClaimName"]) if statuses else None


async def test_a_pod_gets_a_claim_of_its_template_and_its_name():
    """It waits for the template. A claim that was deleted is made again; that of a finished pod is deleted."""
    async with cluster() as store:
        make_pod(store, template="t")
        await until_written(store, lambda: store.list(CORE_EVENT)[0])
        (event,) = store.list(CORE_EVENT)[0]
        where = event["reason"], event["reportingComponent"]
        assert where == ("FailedResourceClaimCreation", "pod-controller")
        make_template(store)
        await until_written(store, lambda: claim_of(store))
        (claim,) = claims(store)
        assert claim["metadata"]["name"].startswith("p-gpu-")
        assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
        assert claim["metadata"]["ownerReferences"][0]["uid"] == pod(store)["metadata"]["uid"]
        assert claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "g"
        first = claim["metadata"]["name"]
        store.delete(RESOURCE_CLAIM, "default", first)
        await until_written(store, lambda: (c := claim_of(store)) and c["metadata"]["name"] != first)
        reserve(store, claim_of(store), pod(store))
        ended = {**pod(store)["status"], "phase": "Succeeded"}
        store.update(POD, {**pod(store), "status": ended}, subresource="status")
        await until_written(store, lambda: not claims(store))
        await settled(store)
        assert not claims(store)


async def test_a_pod_runs_once_its_claim_is_reserved_for_it():
    async with cluster() as store:
        make_claim(store)
        made = make_pod(store)
        await settled(store)
        assert pod(store)["status"]["phase"] == "Pending"
        reserve(store, claims(store)[0], made)
        await until_written(store, lambda: pod(store)["status"]["phase"] == "Running")


async def test_the_last_pod_frees_a_shared_claim():
    async with cluster() as store:
        make_claim(store)
        reserve(store, claims(store)[0], *(make_pod(store, name) for name in ("a", "b")))
        store.delete(POD, "default", "a")
        await until_written(store, lambda: len(claims(store)[0]["status"]["reservedFor"]) == 1)
        assert claims(store)[0]["status"]["allocation"]
        store.delete(POD, "default", "b")
        await until_written(store, lambda: not claims(store)[0]["metadata"].get("finalizers"))
        assert claims(store)[0].get("status") == {}


async def test_a_deleted_claim_without_users_goes():
    async with cluster() as store:
        reserve(store, make_claim(store))
        store.delete(RESOURCE_CLAIM, "default", "c")
        await until_written(store, lambda: not claims(store))


# -- GPUs ----------------------------------------------------------------------------------------------------


def _values(store, attribute):
    """Return the value of an attribute for each GPU, node by node."""
    return [
        [next(iter(device["attributes"][attribute].values())) for device in one["spec"]["devices"]]
        for one in store.list(RESOURCE_SLICE)[0]
    ]


async def test_each_node_publishes_its_gpus():
    store = DevCluster(nodes=2, gpus_per_node=4, gpus_per_fabric=2).store
    assert [one["spec"]["pool"]["name"] for one in store.list(RESOURCE_SLICE)[0]] == [
        "node-0001",
        "node-0002",
    ]
    assert _values(store, "fabric") == [
        ["fabric-0", "fabric-0", "fabric-1", "fabric-1"],
        ["fabric-2", "fabric-2", "fabric-3", "fabric-3"],
    ]
    assert len({gpu for gpus in _values(store, "uuid") for gpu in gpus}) == 8
    device_class = store.get(DEVICE_CLASS, "", DRIVER)
    assert device_class["spec"]["extendedResourceName"] == EXTENDED_RESOURCE


async def test_the_slices_of_a_node_go_with_it():
    store = DevCluster(nodes=2, gpus_per_node=1).store
    store.delete(NODE, "", "node-0001")
    assert [one["spec"]["nodeName"] for one in store.list(RESOURCE_SLICE)[0]] == ["node-0002"]

"""Volumes, claims and the kinds of storage.k8s.io: their defaults, their rules, their tables."""

from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tests.sandbox.devcluster.contract.conftest import TABLE, named_causes
from tests.support.api_client import Api
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

_STORAGE = "/apis/storage.k8s.io/v1"


def named(api: Api, what: str) -> str:
    """Return a name that no other test uses, for objects without a namespace."""
    return f"{what}-{api.namespace}"


def claim_body(name: str, **spec: Any) -> dict[str, Any]:
    asked = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "none",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {"metadata": {"name": name}, "spec": {**asked, **spec}}


def volume_body(name: str, **spec: Any) -> dict[str, Any]:
    wanted = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "csi": {"driver": "d.test", "volumeHandle": "h"},
    }
    return {"metadata": {"name": name}, "spec": {**wanted, **spec}}


def claims(api: Api, name: str = "") -> str:
    return api.in_namespace("persistentvolumeclaims", name)


def volume(api: Api) -> str:
    return f"/api/v1/persistentvolumes/{named(api, 'pv')}"


@asynccontextmanager
async def default_class(api: Api):
    """Create a default storage class, which other tests must not have, and delete it at the end."""
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    body = {"metadata": {"name": named(api, "one"), "annotations": annotations}, "provisioner": "p.test"}
    (await api.post(f"{_STORAGE}/storageclasses", body)).ok  # noqa: B018 - asserts success
    try:
        # A real server's admission sees the class a moment later.
        tried = partial(api.post, claims(api), claim_body("tried", storageClassName=None), dryRun="All")
        await until(tried, lambda answer: "storageClassName" in answer.ok["spec"])
        yield named(api, "one")
    finally:
        await api.delete(f"{_STORAGE}/storageclasses/{named(api, 'one')}")


# -- claims --------------------------------------------------------------------------------------------------


async def test_a_claim_is_protected_bound_once_and_else_fixed(api: Api):
    stored = (await api.post(claims(api), claim_body("c"))).ok
    assert (stored["status"], stored["spec"]["volumeMode"]) == ({"phase": "Pending"}, "Filesystem")
    assert stored["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    path, fixed = claims(api, "c"), "spec: Forbidden: spec is immutable after creation"
    larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    assert fixed in (await api.patch(path, larger)).refused(422, "Invalid")
    bound = (await api.patch(path, {"spec": {"volumeName": "one"}})).ok
    assert bound["spec"]["volumeName"] == "one"
    assert fixed in (await api.patch(path, {"spec": {"volumeName": "two"}})).refused(422, "Invalid")
    assert (await api.delete(path)).ok["metadata"]["deletionTimestamp"]
    (await api.patch(path, {"metadata": {"finalizers": None}})).ok  # noqa: B018 - asserts success
    (await api.get(path)).refused(404, "NotFound")


async def test_a_claim_without_a_class_gets_the_default_one(api: Api):
    async with default_class(api) as name:
        stored = (await api.post(claims(api), claim_body("c", storageClassName=None))).ok
        asked = (await api.post(claims(api), claim_body("without", storageClassName=""))).ok
    assert (stored["spec"]["storageClassName"], asked["spec"]["storageClassName"]) == (name, "")


_NO_TERM: dict[str, Any] = {"required": {"nodeSelectorTerms": []}}
_NO_VALUE = [{"matchLabelExpressions": [{"key": "a", "values": []}]}]


@pytest.mark.parametrize(
    ("path", "body", "causes"),
    [
        pytest.param("", claim_body("c", accessModes=[], resources={}),
                     "Required spec.accessModes, Required spec.resources[storage]", id="empty"),
        pytest.param("", claim_body("c", accessModes=["Nope"], volumeMode="X"),
                     "NotSupported spec.accessModes, NotSupported spec.volumeMode", id="unknown words"),
        pytest.param("", claim_body("c", accessModes=["ReadWriteOnce", "ReadWriteOncePod"]),
                     "Forbidden spec.accessModes", id="one pod and one node"),
        pytest.param("", claim_body("c", resources={"requests": {"storage": "0"}}, storageClassName="Bad_"),
                     "Invalid spec.resources[storage], Invalid spec.storageClassName", id="no storage of a bad class"),
        pytest.param("/api/v1/persistentvolumes",
                     volume_body("v", nodeAffinity=_NO_TERM, persistentVolumeReclaimPolicy="X"),
                     "NotSupported spec.persistentVolumeReclaimPolicy, "
                     "Required spec.nodeAffinity.required.nodeSelectorTerms", id="a volume"),
        pytest.param(f"{_STORAGE}/storageclasses",
                     {"metadata": {"name": "one"}, "reclaimPolicy": "X", "volumeBindingMode": "Y",
                      "allowedTopologies": _NO_VALUE},
                     "NotSupported reclaimPolicy, NotSupported volumeBindingMode, "
                     "Required allowedTopologies[0].matchLabelExpressions[0].values, Required provisioner",
                     id="a class"),
    ],
)  # fmt: skip
async def test_what_breaks_rules_is_refused(api: Api, path, body, causes):
    assert named_causes(await api.post(path or claims(api), body)) == causes


# -- volumes -------------------------------------------------------------------------------------------------


async def test_a_volume_is_pending_protected_and_retained(api: Api):
    body = volume_body(named(api, "pv"), persistentVolumeReclaimPolicy="")
    stored = (await api.post("/api/v1/persistentvolumes", body)).ok
    assert stored["status"]["phase"] == "Pending"
    assert stored["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
    spec = stored["spec"]
    assert (spec["persistentVolumeReclaimPolicy"], spec["volumeMode"]) == ("Retain", "Filesystem")


# -- storage.k8s.io ------------------------------------------------------------------------------------------


async def test_the_provisioner_of_a_class_never_changes(api: Api):
    body = {"metadata": {"name": named(api, "one")}, "provisioner": "p.test"}
    stored = (await api.post(f"{_STORAGE}/storageclasses", body)).ok
    assert (stored["reclaimPolicy"], stored["volumeBindingMode"]) == ("Delete", "Immediate")
    answer = await api.patch(f"{_STORAGE}/storageclasses/{named(api, 'one')}", {"provisioner": "q.test"})
    assert "field is immutable" in answer.refused(422, "Invalid")
    assert answer.causes() == [("FieldValueInvalid", "provisioner")]


# -- tables ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "columns"),
    [
        (
            "/api/v1/persistentvolumes",
            "Name,Capacity,Access Modes,Reclaim Policy,Status,Claim,StorageClass,VolumeAttributesClass,Reason,Age,"
            "VolumeMode",
        ),
        (
            "/api/v1/persistentvolumeclaims",
            "Name,Status,Volume,Capacity,Access Modes,StorageClass,VolumeAttributesClass,Age,VolumeMode",
        ),
        (
            f"{_STORAGE}/storageclasses",
            "Name,Provisioner,ReclaimPolicy,VolumeBindingMode,AllowVolumeExpansion,Age",
        ),
        ("/apis/resource.k8s.io/v1/deviceclasses", "Name,Age"),
    ],
)
async def test_tables_have_upstreams_columns(api: Api, path, columns):
    printed = (await api.request("GET", path, accept=TABLE)).ok
    assert ",".join(column["name"] for column in printed["columnDefinitions"]) == columns


async def test_a_bound_claim_and_its_volume_are_printed(api: Api):
    await api.post(claims(api), claim_body("c", volumeName=named(api, "pv")))
    status = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    await api.patch(f"{claims(api, 'c')}/status", {"status": status})
    reference = {"namespace": api.namespace, "name": "c"}
    await api.post(
        "/api/v1/persistentvolumes",
        volume_body(named(api, "pv"), claimRef=reference, storageClassName="none"),
    )
    (row,) = (await api.request("GET", claims(api, "c"), accept=TABLE)).ok["rows"]
    assert row["cells"][:7] == ["c", "Bound", named(api, "pv"), "1Gi", "RWO", "none", "<unset>"]
    (row,) = (await api.request("GET", volume(api), accept=TABLE)).ok["rows"]
    claim = f"{api.namespace}/c"
    assert row["cells"][1:9] == ["1Gi", "RWO", "Retain", "Pending", claim, "none", "<unset>", ""]

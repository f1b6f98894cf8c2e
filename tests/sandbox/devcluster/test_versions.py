"""What an embedded cluster of another version answers, serves and stores."""

from __future__ import annotations

import pytest

from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import (
    DEVICE_CLASS,
    NODE,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    RESOURCE_SLICE,
)
from tests.support.api_client import Api

pytestmark = pytest.mark.asyncio

_GROUP = "/apis/resource.k8s.io/v1"


@pytest.mark.parametrize("minor", [34, 36, 37])
async def test_a_version_answers_and_serves_what_it_has(minor: int) -> None:
    async with DevCluster(nodes=1, minor=minor) as cluster, Api(cluster.url, {}) as api:
        version, listed = (await api.get("/version")).ok, (await api.get(_GROUP)).ok
        rules = await api.get(f"{_GROUP}/devicetaintrules")
        (node,), _ = cluster.store.list(NODE)
    assert (version["major"], version["minor"], version["gitVersion"]) == (
        "1",
        str(minor),
        f"v1.{minor}.0-devcluster",
    )
    assert node["status"]["nodeInfo"]["kubeletVersion"] == f"v1.{minor}.0"
    served = {each["name"] for each in listed["resources"]}
    assert {"resourceclaims", "resourceslices"} <= served
    assert ("devicetaintrules" in served, rules.code) == ((True, 200) if minor == 37 else (False, 404))


@pytest.mark.parametrize(("minor", "stores"), [(35, False), (36, True)])
async def test_fields_of_devices_are_dropped_before_their_gate_is_on(minor: int, *, stores: bool) -> None:
    """At any depth, in lists too; what every version has stays."""
    toleration = {"key": "k", "operator": "Exists", "effect": "NoSchedule"}
    asked = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    requests = [{"name": "r", "exactly": {**asked, "tolerations": [toleration]}}]
    taint = {"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    store = DevCluster(minor=minor).store
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}}
    (request,) = store.create(RESOURCE_CLAIM, "default", claim)["spec"]["devices"]["requests"]
    template = {"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": requests}}}}
    stored = store.create(RESOURCE_CLAIM_TEMPLATE, "default", template)
    (of_template,) = stored["spec"]["spec"]["devices"]["requests"]
    spec = {"driver": "d.test", "nodeName": "n", "pool": pool, "devices": [{"name": "d", "taints": [taint]}]}
    (device,) = store.create(RESOURCE_SLICE, "", {"metadata": {"name": "s"}, "spec": spec})["spec"]["devices"]
    made = store.create(
        DEVICE_CLASS, "", {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}
    )
    kept = {
        "tolerations" in request["exactly"],
        "tolerations" in of_template["exactly"],
        "taints" in device,
        "extendedResourceName" in made["spec"],
    }
    assert kept == {stores}
    assert (request["exactly"]["count"], device["name"]) == (1, "d")


async def test_fields_of_later_versions_are_dropped_from_updates_too() -> None:
    store = DevCluster(minor=34).store
    node = store.create(NODE, "", {"metadata": {"name": "n"}, "status": {"declaredFeatures": ["F"]}})
    patch = {"status": {"declaredFeatures": ["G"], "capacity": {"cpu": "1"}}}
    patched = store.patch(NODE, "", "n", patch, subresource="status")
    assert patched["status"]["capacity"] == {"cpu": "1"}
    assert "declaredFeatures" not in {**node["status"], **patched["status"]}

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
from tests.support.device_documents import device_class, device_slice, resource_claim

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
    store = DevCluster(minor=minor).store
    claim = resource_claim("c", 3)
    (request,) = claim["spec"]["devices"]["requests"]
    request["exactly"]["tolerations"] = [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]
    template = {"metadata": {"name": "t"}, "spec": {"spec": claim["spec"]}}
    taint = {"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
    made = [
        store.create(RESOURCE_CLAIM, "default", claim)["spec"],
        store.create(RESOURCE_CLAIM_TEMPLATE, "default", template)["spec"]["spec"],
    ]
    asked = [spec["devices"]["requests"][0]["exactly"] for spec in made]
    (device,) = store.create(RESOURCE_SLICE, "", device_slice("n", 1, taints=[taint]))["spec"]["devices"]
    gpu = store.create(DEVICE_CLASS, "", device_class("gpu", "example.com/gpu"))["spec"]
    kept = {"tolerations" in one for one in asked} | {"taints" in device, "extendedResourceName" in gpu}
    assert kept == {stores}
    assert (asked[0]["count"], device["name"]) == (3, "gpu-0")


async def test_fields_of_later_versions_are_dropped_from_updates_too() -> None:
    store = DevCluster(minor=34).store
    node = store.create(NODE, "", {"metadata": {"name": "n"}, "status": {"declaredFeatures": ["F"]}})
    patch = {"status": {"declaredFeatures": ["G"], "capacity": {"cpu": "1"}}}
    patched = store.patch(NODE, "", "n", patch, subresource="status")
    assert patched["status"]["capacity"] == {"cpu": "1"}
    assert "declaredFeatures" not in {**node["status"], **patched["status"]}

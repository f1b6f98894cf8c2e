"""What an embedded cluster of another version answers, serves and stores."""

from __future__ import annotations

from typing import Any

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

Json = dict[str, Any]


async def answers(cluster: DevCluster, *paths: str) -> list[tuple[int, Any]]:
    async with Api(cluster.url, {}) as api:
        got = [await api.get(path) for path in paths]
    return [(each.code, each.body) for each in got]


@pytest.mark.parametrize("minor", [34, 36, 37])
async def test_a_version_answers_and_serves_what_it_has(minor: int) -> None:
    group = "/apis/resource.k8s.io/v1"
    async with DevCluster(nodes=1, minor=minor) as cluster:
        version, groups, listed, claims = await answers(
            cluster, "/version", "/apis", group, f"{group}/resourceclaims"
        )
        (node,), _ = cluster.store.list(NODE)
    assert version[1] == {**version[1], "major": "1", "minor": str(minor)}
    assert version[1]["gitVersion"] == f"v1.{minor}.0-devcluster"
    assert node["status"]["nodeInfo"]["kubeletVersion"] == f"v1.{minor}.0"
    assert "resource.k8s.io" in {each["name"] for each in groups[1]["groups"]}
    assert [listed[0], claims[0]] == [200, 200]


@pytest.mark.parametrize(
    ("minor", "others"),
    [(34, set()), (35, set()), (36, set()), (37, {"devicetaintrules.resource.k8s.io"})],
)
async def test_discovery_lists_the_kinds_of_the_version_and_they_answer(minor: int, others: set[str]) -> None:
    """`others`: the kinds that only 1.36 or only this version has."""
    async with DevCluster() as usual, DevCluster(minor=minor) as cluster:
        served = await _discovered(cluster)
        assert set(served) ^ set(await _discovered(usual)) == others
        for name in others:
            path = served.get(name) or (await _discovered(usual))[name]
            ((code, _),) = await answers(cluster, path)
            assert code == (200 if name in served else 404)


async def _discovered(cluster: DevCluster) -> dict[str, str]:
    """Return the path of each kind of the named groups, by `plural.group`."""
    ((_, groups),) = await answers(cluster, "/apis")
    versions = [each["groupVersion"] for group in groups["groups"] for each in group["versions"]]
    lists = await answers(cluster, *(f"/apis/{version}" for version in versions))
    return {
        f"{resource['name']}.{version.partition('/')[0]}": f"/apis/{version}/{resource['name']}"
        for version, (_, listed) in zip(versions, lists, strict=True)
        for resource in listed["resources"]
        if "/" not in resource["name"]
    }


@pytest.mark.parametrize(("minor", "stores"), [(35, False), (36, True), (37, True)])
async def test_fields_of_devices_are_dropped_before_their_gate_is_on(minor: int, *, stores: bool) -> None:
    """At any depth, in lists too; what every version has stays."""
    toleration = {"key": "k", "operator": "Exists", "effect": "NoSchedule"}
    asked = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    requests = [{"name": "r", "exactly": {**asked, "tolerations": [toleration]}}]
    taint = {"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
    devices = [{"name": "d", "taints": [taint]}]
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    async with DevCluster(minor=minor) as cluster:
        claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}}
        (request,) = cluster.store.create(RESOURCE_CLAIM, "default", claim)["spec"]["devices"]["requests"]
        template = {"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": requests}}}}
        stored = cluster.store.create(RESOURCE_CLAIM_TEMPLATE, "default", template)
        (of_template,) = stored["spec"]["spec"]["devices"]["requests"]
        spec = {"driver": "d.test", "nodeName": "n", "pool": pool, "devices": devices}
        slices = cluster.store.create(RESOURCE_SLICE, "", {"metadata": {"name": "s"}, "spec": spec})
        spec = {"extendedResourceName": "example.com/gpu"}
        made = cluster.store.create(DEVICE_CLASS, "", {"metadata": {"name": "gpu"}, "spec": spec})
    kept = {
        "tolerations" in request["exactly"],
        "tolerations" in of_template["exactly"],
        "taints" in slices["spec"]["devices"][0],
        "extendedResourceName" in made["spec"],
    }
    assert kept == {stores}
    assert request["exactly"]["count"] == of_template["exactly"]["count"] == 1
    assert slices["spec"]["devices"][0]["name"] == "d"


async def test_fields_of_later_versions_are_dropped() -> None:
    """From new objects and from updates."""
    async with DevCluster(minor=34) as cluster:
        node = cluster.store.create(
            NODE, "", {"metadata": {"name": "n"}, "status": {"declaredFeatures": ["F"]}}
        )
        assert "declaredFeatures" not in node["status"]
        patch = {"status": {"declaredFeatures": ["G"], "capacity": {"cpu": "1"}}}
        patched = cluster.store.patch(NODE, "", "n", patch, subresource="status")
        assert patched["status"].get("capacity") == {"cpu": "1"}
        assert "declaredFeatures" not in patched["status"]

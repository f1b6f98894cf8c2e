"""What an embedded cluster of another version answers, serves and stores."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import ClientSession

from scheduler.devcluster.cluster import DevCluster
from scheduler.devcluster.kinds import NODE, POD
from tests.support import build

pytestmark = pytest.mark.asyncio

Json = dict[str, Any]


async def answers(cluster: DevCluster, *paths: str) -> list[tuple[int, Any]]:
    async with ClientSession() as session:
        got = [await session.get(f"{cluster.url}{path}") for path in paths]
        return [(each.status, await each.json() if each.status == 200 else None) for each in got]


@pytest.mark.parametrize(("minor", "serves_claims"), [(33, False), (34, True), (36, True), (37, True)])
async def test_a_version_answers_and_serves_what_it_has(minor: int, *, serves_claims: bool) -> None:
    group = "/apis/resource.k8s.io/v1"
    async with DevCluster(nodes=1, minor=minor) as cluster:
        version, groups, listed, claims = await answers(
            cluster, "/version", "/apis", group, f"{group}/resourceclaims"
        )
        (node,), _ = cluster.store.list(NODE)
    assert version[1] == {**version[1], "major": "1", "minor": str(minor)}
    assert version[1]["gitVersion"] == f"v1.{minor}.0-devcluster"
    assert node["status"]["nodeInfo"]["kubeletVersion"] == f"v1.{minor}.0"
    assert ("resource.k8s.io" in {each["name"] for each in groups[1]["groups"]}) is serves_claims
    assert [listed[0], claims[0]] == [200 if serves_claims else 404] * 2


@pytest.mark.parametrize(("minor", "stores"), [(33, False), (34, True)])
async def test_fields_of_later_versions_are_dropped(minor: int, *, stores: bool) -> None:
    """From new objects and from updates."""
    resources = {"requests": {"cpu": "1"}}
    async with DevCluster(minor=minor) as cluster:
        made = cluster.store.create(POD, "default", build.pod("p", spec={"resources": resources}))
        assert ("resources" in made["spec"]) is stores
        node = cluster.store.create(
            NODE, "", {"metadata": {"name": "n"}, "status": {"declaredFeatures": ["F"]}}
        )
        assert "declaredFeatures" not in node["status"]
        patch = {"status": {"declaredFeatures": ["G"], "capacity": {"cpu": "1"}}}
        patched = cluster.store.patch(NODE, "", "n", patch, subresource="status")
        assert patched["status"].get("capacity") == {"cpu": "1"}
        assert "declaredFeatures" not in patched["status"]

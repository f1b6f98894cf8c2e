"""A pod of high priority takes the GPU of another one, on the embedded cluster, whose controller releases claims."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import product

import pytest

from tests.support.build import Json
from tests.support.cluster import Cluster
from tests.support.waiting import until
from tests.system.processes.conftest import embedded

_TEMPLATE = "gpu"


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    settings = {"nodes": 1, "gpus_per_node": 1, "controllers": True}
    async with embedded(tmp_path_factory.mktemp("server"), **settings) as cluster:
        yield cluster


async def _add_pod(cluster: Cluster, name: str, *, template: bool, **spec: str) -> None:
    gpu = {"nvidia.com/gpu": "1"}
    container: Json = {"name": "c", "image": "c:1"}
    claims: Json = {}
    if template:
        container["resources"] = {"claims": [{"name": "gpu"}]}
        claims["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": _TEMPLATE}]
    else:
        container["resources"] = {"requests": gpu, "limits": gpu}
    at_once = {"terminationGracePeriodSeconds": 0}
    await cluster.add_pod(name, containers=[container], spec={**at_once, **claims, **spec})


async def _add_template(cluster: Cluster) -> None:
    exactly = {"deviceClassName": "gpu.nvidia.com"}
    path = cluster.api.in_namespace("resourceclaimtemplates", group="apis/resource.k8s.io/v1")
    spec = {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
    await cluster.create(path, {"metadata": {"name": _TEMPLATE}, "spec": spec})


async def _holders(cluster: Cluster) -> list[str]:
    path = cluster.api.in_namespace("resourceclaims", group="apis/resource.k8s.io/v1")
    claims = (await cluster.api.get(path)).ok["items"]
    return [each["name"] for claim in claims for each in claim.get("status", {}).get("reservedFor", ())]


async def _take(cluster: Cluster, low: bool, high: bool) -> None:
    """Let a pod of high priority take the GPU; `low`, `high`: whether the pod has a template, or else a resource."""
    name = f"{low:d}{high:d}"
    await _add_pod(cluster, f"low-{name}", template=low)
    node = await cluster.node_of(f"low-{name}")
    await _add_pod(cluster, f"high-{name}", template=high, priorityClassName="high")
    assert await cluster.node_of(f"high-{name}") == node
    assert [pod["metadata"]["name"] for pod in await cluster.pods()] == [f"high-{name}"]
    assert await until(lambda: _holders(cluster), lambda names: names == [f"high-{name}"], what="the holder")
    await cluster.delete_pod(f"high-{name}")
    await until(lambda: _holders(cluster), lambda names: names == [], what="a free GPU")


async def test_pods_of_high_priority_take_the_gpu_whichever_way_it_is_asked_for(cluster: Cluster) -> None:
    await cluster.add_priority_class("high", 1000)
    await _add_template(cluster)
    for low, high in product((True, False), repeat=2):
        await _take(cluster, low, high)

"""A pod of high priority takes the GPU of another one, on the embedded cluster, whose controller releases claims."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.conftest import embedded
from tests.support.build import Json
from tests.support.cluster import NAME, Cluster
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

_TEMPLATE = "gpu"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Yield a cluster of one node with a GPU."""
    settings = {"nodes": 1, "gpus_per_node": 1, "controllers": True}
    async with embedded(tmp_path_factory.mktemp("server"), **settings) as cluster:
        yield cluster


async def _add_pod(cluster: Cluster, name: str, *, template: bool, priority_class: str = "") -> None:
    gpu = {"nvidia.com/gpu": "1"}
    container: Json = {"name": "c", "image": "c:1"}
    spec: Json = {"schedulerName": NAME, "containers": [container], "terminationGracePeriodSeconds": 0}
    if template:
        container["resources"] = {"claims": [{"name": "gpu"}]}
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": _TEMPLATE}]
    else:
        container["resources"] = {"requests": gpu, "limits": gpu}
    if priority_class:
        spec["priorityClassName"] = priority_class
    await cluster.create(cluster.api.pods(), {"metadata": {"name": name}, "spec": spec})


async def _add_template(cluster: Cluster) -> None:
    exactly = {"deviceClassName": "gpu.nvidia.com"}
    path = cluster.api.in_namespace("resourceclaimtemplates", group="apis/resource.k8s.io/v1")
    spec = {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
    await cluster.create(path, {"metadata": {"name": _TEMPLATE}, "spec": spec})


@pytest.mark.parametrize("low_has_template", [True, False])
@pytest.mark.parametrize("high_has_template", [True, False])
async def test_a_pod_of_high_priority_takes_a_gpu(
    cluster: Cluster, low_has_template: bool, high_has_template: bool
) -> None:
    await cluster.add_priority_class("high", 1000)
    await _add_template(cluster)
    await _add_pod(cluster, "low", template=low_has_template)
    node = await cluster.node_of("low")
    await _add_pod(cluster, "high", template=high_has_template, priority_class="high")
    assert await cluster.node_of("high") == node
    assert {pod["metadata"]["name"] for pod in await cluster.pods()} == {"high"}
    path = cluster.api.in_namespace("resourceclaims", group="apis/resource.k8s.io/v1")

    async def holders() -> list[str]:
        claims = (await cluster.api.get(path)).ok["items"]
        return [each["name"] for claim in claims for each in claim["status"].get("reservedFor", ())]

    assert await until(holders, lambda names: names == ["high"], what="the GPU's holder")

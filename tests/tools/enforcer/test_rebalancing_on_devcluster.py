"""`enforce --rebalance` as a process on the embedded cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from scheduler.engine.model.group_topology import REQUIRED_TOPOLOGY
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from tests.support import build
from tests.support.build import ZONE, container
from tests.support.enforcer_process import Shop, deployment, enforcing, shop
from tests.support.manifest_files import MANIFESTS, documents
from tests.support.waiting import until

pytestmark = pytest.mark.slow

_FLAGS = (
    *("--rebalance", "--rebalance-for-groups", "1"),
    *("--rebalance-hold", "0s", "--rebalance-cool-down", "0s", "--rebalance-pause", "0s"),
)
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Shop]:
    async with shop(tmp_path) as made:
        for role in documents(MANIFESTS / "enforcer" / "rebalance.yaml"):
            (await made.api.post(f"{_RBAC}/{role['kind'].lower()}s", role)).ok  # noqa: B018
        yield made


async def _small(cluster: Shop) -> str:
    """Create a pod that a controller makes anew, and bind it to a1; return its name."""
    document = deployment(1, containers=[container(requests={"cpu": "1"})])
    (await cluster.api.post(cluster.path("deployments", group="apis/apps/v1"), document)).ok  # noqa: B018
    (name,) = await until(cluster.names, lambda found: len(found) == 1, what="the pod")
    await cluster.bind(name, "a1")
    await until(lambda: cluster.ready(name), what=f"{name} to run")
    return name


async def _waiting_group(cluster: Shop) -> None:
    """Create two members that each take a whole node of one zone, and report them as the scheduler does."""
    for name in ("m0", "m1"):
        pod = build.pod(
            name,
            namespace=cluster.namespace,
            labels={GROUP: "g", MIN_COUNT: "2"},
            annotations={REQUIRED_TOPOLOGY: ZONE},
            cpu="32",
            spec={"schedulerName": "affinity-scheduler"},
        )
        pod["metadata"].pop("uid")
        pod.pop("status")
        (await cluster.api.post(cluster.path("pods"), pod)).ok  # noqa: B018
        path = f"{cluster.path('pods')}/{name}/status"
        (await cluster.api.patch(path, {"status": {"conditions": [build.unscheduled("no room")]}})).ok  # noqa: B018


async def test_a_small_pod_is_evicted_so_that_a_waiting_group_fits(cluster: Shop) -> None:
    """Zone b is kept by a pod without a controller, and takes the small one. A dry run says so and writes nothing."""
    name = await _small(cluster)
    await cluster.pod("fixed", "b1", cpu="1")
    await _waiting_group(cluster)
    async with enforcing(cluster.kubeconfig, *_FLAGS, "--dry-run") as daemon:
        await daemon.says("Would move", f"shop/{name}")
    assert await cluster.names() == {name, "fixed", "m0", "m1"}
    async with enforcing(cluster.kubeconfig, *_FLAGS) as daemon:
        await until(cluster.names, lambda found: name not in found and len(found) == 4, what="the move")
        (event,) = await until(lambda: cluster.events(name, "Rebalanced"), what="the event")
        assert event["note"].startswith("Evicted to move from a1 to another node such as b")
        assert event["note"].endswith("so that pod group shop/g fits, which waits")
        members = [await cluster.api.get(f"{cluster.path('pods')}/{member}") for member in ("m0", "m1")]
        assert {member.ok["status"]["nominatedNodeName"] for member in members} == {"a1", "a2"}
        assert await daemon.metric("affinity_scheduler_rebalancing_evictions_total", result="evicted") == 1

"""`enforce --rebalance` and `--deletion-costs` as a process on the embedded cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from scheduler.engine.model.group_topology import REQUIRED_TOPOLOGY
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.pods import DELETION_COST
from tests.support import build
from tests.support.build import ZONE, container, selector, spread
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
        for name in ("rebalance", "deletion-costs"):
            for role in documents(MANIFESTS / "enforcer" / f"{name}.yaml"):
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


#: Four in zone a, one in zone b; the pod in b is the youngest, which would go first without costs.
_NODES = ("a1", "a2", "a1", "a2", "b1")


async def _replicas(cluster: Shop) -> dict[str, str]:
    """Create the replicas, and bind the youngest last; return their nodes by name."""
    path = cluster.path("deployments", group="apis/apps/v1")
    document = deployment(len(_NODES), topologySpreadConstraints=[spread(ZONE, selector("app=web"))])
    (await cluster.api.post(path, document)).ok  # noqa: B018
    names = await until(cluster.names, lambda found: len(found) == len(_NODES), what="the pods")
    nodes = dict(zip(sorted(names), _NODES, strict=True))
    for name, node in nodes.items():
        await cluster.bind(name, node)
    for name in nodes:
        await cluster.runs(name)
    return nodes


async def _costs(cluster: Shop) -> dict[str, str]:
    items = (await cluster.api.get(cluster.path("pods"))).ok["items"]
    annotations = {one["metadata"]["name"]: one["metadata"].get("annotations") or {} for one in items}
    return {name: its[DELETION_COST] for name, its in annotations.items() if DELETION_COST in its}


async def test_scaled_down_replicas_leave_the_full_zone_first(cluster: Shop) -> None:
    """By default costs are only logged."""
    nodes = await _replicas(cluster)
    dry_run = ("--dry-run", "--deletion-costs")
    async with enforcing(cluster.kubeconfig, *dry_run) as logs:
        await logs.says("Would write the cost of deletion", "-4")
    assert await _costs(cluster) == {}
    async with enforcing(cluster.kubeconfig, "--deletion-costs=write"):
        costs = await until(lambda: _costs(cluster), lambda found: len(found) == 5, what="five costs")
    assert sorted(costs.values()) == ["-1", "-1", "-2", "-3", "-4"]
    path = cluster.path("deployments", group="apis/apps/v1")
    (await cluster.api.patch(f"{path}/web", {"spec": {"replicas": 2}})).ok  # noqa: B018
    left = await until(cluster.names, lambda found: len(found) == 2, what="two pods")
    assert Counter(nodes[name][0] for name in left) == {"a": 1, "b": 1}

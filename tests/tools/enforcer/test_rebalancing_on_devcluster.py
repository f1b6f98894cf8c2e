"""`enforce --rebalance` as a process on the embedded cluster."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from scheduler.engine.model.fallback import FALLBACK
from scheduler.engine.model.group_topology import REQUIRED_TOPOLOGY
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from tests.support import build
from tests.support.build import ZONE, affinity, container, node, selector, term
from tests.support.enforcer_process import Shop, deployment, enforcing, shop
from tests.support.manifest_files import MANIFESTS, documents
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

_MARK = json.dumps([{"rule": f"podAntiAffinity by {ZONE}", "why": "it kept the pod pending alone for 60 s"}])
_ENTRY = json.dumps([{"rule": "podAntiAffinity", "topologyKey": ZONE, "afterSeconds": 60}])
_FLAGS = ("--rebalance", "--rebalance-hold", "0s", "--rebalance-cool-down", "0s", "--rebalance-pause", "0s")
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Shop]:
    async with shop(tmp_path) as made:
        for role in documents(MANIFESTS / "enforcer" / "rebalance.yaml"):
            (await made.api.post(f"{_RBAC}/{role['kind'].lower()}s", role)).ok  # noqa: B018
        yield made


async def _replicas(cluster: Shop) -> list[str]:
    """Create the replicas, and bind them as the scheduler does: the third with its rule relaxed."""
    apart = affinity(anti_required=[term(ZONE, selector("app=web"))])
    document = deployment(3, annotations={FALLBACK: _ENTRY}, affinity=apart)
    (await cluster.api.post(cluster.path("deployments", group="apis/apps/v1"), document)).ok  # noqa: B018

    async def created() -> list[str]:
        return sorted(await cluster.names())

    names = await until(created, lambda found: len(found) == 3, what="three pods")
    for name, where, mark in zip(names, ("a1", "b1", "b2"), ("", "", _MARK), strict=True):
        await cluster.bind(name, where, **({"affinity-scheduler.io/relaxed": mark} if mark else {}))
        await until(lambda name=name: cluster.ready(name), what=f"{name} to run")  # type: ignore[misc]
    return names


async def test_a_relaxed_pod_is_evicted_once_its_rule_can_hold_again(cluster: Shop) -> None:
    """Not before a third zone is there; a dry run says so and writes nothing."""
    *_, relaxed = names = await _replicas(cluster)
    why = f"podAntiAffinity by {ZONE} can hold again"
    async with enforcing(cluster.kubeconfig, *_FLAGS, "--dry-run") as daemon:
        (await cluster.api.post("/api/v1/nodes", node("c1", labels={ZONE: "c"}))).ok  # noqa: B018

        async def told() -> list[str]:
            return daemon.logged("Would move", why)

        await until(told, what="the log line")
    assert await cluster.names() == set(names)
    async with enforcing(cluster.kubeconfig, *_FLAGS) as daemon:
        after = await until(
            cluster.names, lambda found: relaxed not in found and len(found) == 3, what="the move"
        )
        assert set(names[:2]) < after
        (event,) = await until(lambda: cluster.events(relaxed, "Rebalanced"), what="the event")
        assert event["note"] == f"Evicted to move from b2 to a better node such as c1: {why}"
        assert await daemon.metric("affinity_scheduler_rebalancing_evictions_total", result="evicted") == 1


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
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
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
        (await cluster.api.patch(path, {"status": {"conditions": [told]}})).ok  # noqa: B018


async def test_a_small_pod_is_evicted_so_that_a_waiting_group_fits(cluster: Shop) -> None:
    """Zone b is kept by a pod without a controller, and takes the small one."""
    name = await _small(cluster)
    await cluster.pod("fixed", "b1", cpu="1")
    await _waiting_group(cluster)
    async with enforcing(cluster.kubeconfig, *_FLAGS, "--rebalance-for-groups", "1") as daemon:
        await until(cluster.names, lambda found: name not in found and len(found) == 4, what="the move")
        (event,) = await until(lambda: cluster.events(name, "Rebalanced"), what="the event")
        assert event["note"].startswith("Evicted to move from a1 to another node such as b")
        assert event["note"].endswith("so that pod group shop/g fits, which waits")
        members = [await cluster.api.get(f"{cluster.path('pods')}/{member}") for member in ("m0", "m1")]
        assert {member.ok["status"]["nominatedNodeName"] for member in members} == {"a1", "a2"}
        assert await daemon.metric("affinity_scheduler_rebalancing_evictions_total", result="evicted") == 1

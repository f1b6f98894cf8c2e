"""`enforce --deletion-costs` as a process: a Deployment on the embedded cluster is scaled down."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from scheduler.engine.model.pods import DELETION_COST
from tests.support.build import ZONE, selector, spread
from tests.support.enforcer_process import Shop, deployment, enforcing, shop
from tests.support.manifest_files import MANIFESTS, documents
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
#: Four in zone a, one in zone b; the pod in b is the youngest, which would go first without costs.
_NODES = ("a1", "a2", "a1", "a2", "b1")


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Shop]:
    async with shop(tmp_path) as made:
        yield made


async def _may_write(cluster: Shop) -> None:
    for role in documents(MANIFESTS / "enforcer" / "deletion-costs.yaml"):
        (await cluster.api.post(f"{_RBAC}/{role['kind'].lower()}s", role)).ok  # noqa: B018


async def _replicas(cluster: Shop) -> dict[str, str]:
    """Create the replicas one by one, each bound to its node; return their nodes by name."""
    path = cluster.path("deployments", group="apis/apps/v1")
    document = deployment(0, topologySpreadConstraints=[spread(ZONE, selector("app=web"))])
    (await cluster.api.post(path, document)).ok  # noqa: B018
    nodes: dict[str, str] = {}
    for number, node in enumerate(_NODES, 1):
        (await cluster.api.patch(f"{path}/web", {"spec": {"replicas": number}})).ok  # noqa: B018
        names = await until(cluster.names, lambda found, n=number: len(found) == n, what=f"{number} pods")  # type: ignore[misc]
        (name,) = names - nodes.keys()
        await cluster.bind(name, node)
        await until(lambda name=name: cluster.ready(name), what=f"{name} to run")  # type: ignore[misc]
        nodes[name] = node
    return nodes


async def _costs(cluster: Shop) -> dict[str, str]:
    items = (await cluster.api.get(cluster.path("pods"))).ok["items"]
    annotations = {one["metadata"]["name"]: one["metadata"].get("annotations") or {} for one in items}
    return {name: its[DELETION_COST] for name, its in annotations.items() if DELETION_COST in its}


async def test_scaled_down_replicas_leave_the_full_zone_first(cluster: Shop) -> None:
    await _may_write(cluster)
    nodes = await _replicas(cluster)
    async with enforcing(cluster.kubeconfig, "--deletion-costs=write"):
        costs = await until(lambda: _costs(cluster), lambda found: len(found) == 5, what="five costs")
    assert sorted(costs.values()) == ["-1", "-1", "-2", "-3", "-4"]
    path = cluster.path("deployments", group="apis/apps/v1")
    (await cluster.api.patch(f"{path}/web", {"spec": {"replicas": 2}})).ok  # noqa: B018
    left = await until(cluster.names, lambda found: len(found) == 2, what="two pods")
    assert Counter(nodes[name][0] for name in left) == {"a": 1, "b": 1}


async def test_costs_are_logged_and_not_written_by_default(cluster: Shop) -> None:
    await _replicas(cluster)
    async with enforcing(cluster.kubeconfig, "--deletion-costs") as daemon:

        async def told() -> list[str]:
            return daemon.logged("Would write the cost of deletion", "-4")

        await until(told, what="the log line")
    assert await _costs(cluster) == {}


async def test_without_the_right_nothing_but_the_log_says_so(cluster: Shop) -> None:
    await _replicas(cluster)
    async with enforcing(cluster.kubeconfig, "--deletion-costs=write", "-v", "1") as daemon:

        async def told() -> list[str]:
            return daemon.logged("Cost of deletion not written", "forbidden")

        await until(told, what="the log line")
    assert await _costs(cluster) == {}

"""`enforce --deletion-costs` as a process: a Deployment on the embedded cluster is scaled down."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from scheduler.engine.model.pods import DELETION_COST
from tests.support.build import ZONE, selector, spread
from tests.support.enforcer_process import Shop, deployment, enforcing, shop
from tests.support.manifest_files import MANIFESTS, documents
from tests.support.waiting import until

pytestmark = pytest.mark.slow

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
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


async def test_scaled_down_replicas_leave_the_full_zone_first(tmp_path: Path) -> None:
    """By default costs are only logged, by another enforcer meanwhile."""
    async with shop(tmp_path) as cluster:
        nodes = await _replicas(cluster)
        for role in documents(MANIFESTS / "enforcer" / "deletion-costs.yaml"):
            (await cluster.api.post(f"{_RBAC}/{role['kind'].lower()}s", role)).ok  # noqa: B018
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

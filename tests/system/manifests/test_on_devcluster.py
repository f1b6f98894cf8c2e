"""Situations that need rarely used rights, on the embedded cluster with the accounts of the manifests."""

from __future__ import annotations

from pathlib import Path

from scheduler.sandbox.devcluster.http.faults import FAULTS_PATH, Effect
from tests.support import build
from tests.support.api_client import Api
from tests.support.daemon import running
from tests.support.enforcer_driver import REQUIRED, rules
from tests.support.enforcer_process import enforcing, shop
from tests.support.waiting import until
from tests.system.processes.conftest import embedded


async def _lists_only(api: Api, *kinds: str) -> None:
    """Make the server refuse streamed lists once per kind."""
    faults = [{"action": Effect.RESPOND.value, "verb": "watch", "kind": kind, "code": 400} for kind in kinds]
    assert (await api.post(FAULTS_PATH, faults)).code == 204


async def test_the_scheduler_lists_if_lists_cannot_be_streamed(tmp_path: Path) -> None:
    workloads = ("services", "replicationcontrollers", "replicasets.apps", "statefulsets.apps")
    async with embedded(tmp_path, nodes=1) as cluster:
        await cluster.api.enter_namespace()
        await _lists_only(cluster.api, "pods", "nodes", "namespaces", *workloads)
        async with running(Path(cluster.kubeconfig)) as daemon:
            await cluster.add_pod("p")
            await cluster.all_bound(1)
            assert await daemon.metric("rest_client_requests_total", code="400") == 7


async def test_the_enforcer_lists_if_lists_cannot_be_streamed(tmp_path: Path) -> None:
    """It also writes two broken rules of one pod as a series of one event."""
    terms = [build.term(build.ZONE, build.selector(each)) for each in ("app=db", "tier=back")]
    async with shop(tmp_path) as cluster:
        await _lists_only(cluster.api, "pods", "nodes", "namespaces")
        await cluster.pod("db", "a1", labels={"app": "db", "tier": "back"})
        await cluster.pod("p", "a2", rules(far=terms, which=REQUIRED))
        async with enforcing(cluster.kubeconfig) as daemon:
            assert await daemon.metric("rest_client_requests_total", code="400") == 3
            await until(
                lambda: cluster.events("p", "AffinityRuleBroken"),
                lambda events: any(event.get("series") for event in events),
                what="a series",
            )

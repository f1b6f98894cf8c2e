"""A situation that needs rarely used rights of the enforcer, on the embedded cluster with the manifests' account."""

from __future__ import annotations

from pathlib import Path

from scheduler.sandbox.devcluster.http.faults import FAULTS_PATH, Effect
from tests.support import build
from tests.support.enforcer_driver import REQUIRED, rules
from tests.support.enforcer_process import enforcing, shop
from tests.support.waiting import until


async def test_the_enforcer_lists_if_lists_cannot_be_streamed(tmp_path: Path) -> None:
    """It also writes two broken rules of one pod as a series of one event."""
    terms = [build.term(build.ZONE, build.selector(each)) for each in ("app=db", "tier=back")]
    refused = {"action": Effect.RESPOND.value, "verb": "watch", "code": 400}
    async with shop(tmp_path) as cluster:
        faults = [{**refused, "kind": kind} for kind in ("pods", "nodes", "namespaces")]
        assert (await cluster.api.post(FAULTS_PATH, faults)).code == 204
        await cluster.pod("db", "a1", labels={"app": "db", "tier": "back"})
        await cluster.pod("p", "a2", rules(far=terms, which=REQUIRED))
        async with enforcing(cluster.kubeconfig) as daemon:
            assert await daemon.metric("rest_client_requests_total", code="400") == 3
            await until(
                lambda: cluster.events("p", "AffinityRuleBroken"),
                lambda events: any(event.get("series") for event in events),
                what="a series",
            )

"""HTTP endpoints and logs."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from tests.support.cluster import NAME, Cluster
from tests.support.daemon import Daemon, running, started
from tests.support.messages import refusals
from tests.support.waiting import until
from tests.system.processes.conftest import embedded


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with embedded(tmp_path_factory.mktemp("server"), nodes=1) as cluster:
        await cluster.api.enter_namespace()
        yield cluster


@pytest.fixture(scope="module")
async def busy(server: Cluster) -> AsyncIterator[Daemon]:
    """Yield a daemon that has bound a pod, failed another, and logs JSON."""
    async with running(Path(server.kubeconfig), "--log-format", "json", "-v", "10") as daemon:
        await server.add_pod("fits")
        await server.add_pod("too-large", cpu="1k")
        await server.condition("too-large", "0/1 nodes are available: 1 Insufficient cpu.")
        await until(lambda: server.events("fits", "Scheduled"), what="the event")
        yield daemon


async def test_it_is_alive_before_it_is_ready(server: Cluster) -> None:
    """/readyz fails with a reason until the first lists are complete; nothing is explained before."""
    assert server.devcluster is not None
    server.devcluster.faults.add(Fault(action=Effect.RESPOND, kind="nodes", code=503, times=-1))
    async with started(Path(server.kubeconfig)) as daemon:
        await until(lambda: daemon.get("/livez"), lambda answer: answer == (200, "ok"), what="life")
        await until(lambda: _n_refused(daemon), lambda n: n >= 2, what="refused lists")
        status, text = await daemon.get("/readyz")
        assert status == 500
        assert "[-]sched-handler-sync failed: reason withheld" in text
        assert (await daemon.get("/healthz"))[0] == 200
        assert (await daemon.get("/debug/explain"))[0] == 503
        server.devcluster.faults.clear()
        await until(daemon.is_ready, what="readiness")
        assert (await daemon.get("/debug/explain"))[0] == 200
        assert await daemon.stop() == 0


async def _n_refused(daemon: Daemon) -> float:
    return await daemon.metric("rest_client_requests_total", code="503")


async def test_configz_is_the_configuration_as_json(busy: Daemon) -> None:
    """Complete, under upstream's key."""
    status, text = await busy.get("/configz")
    found = json.loads(text)["componentconfig"]
    assert (status, found["kind"]) == (200, "KubeSchedulerConfiguration")
    assert [profile["schedulerName"] for profile in found["profiles"]] == [NAME]


async def test_log_lines_are_json(busy: Daemon) -> None:
    lines = [json.loads(line) for line in busy.lines]
    (bound,) = (line for line in lines if line["msg"] == "Successfully bound pod to node")
    assert bound["pod"].endswith("/fits")
    assert (bound["evaluatedNodes"], bound["feasibleNodes"]) == (1, 1)
    assert bound["node"]
    (waiting,) = (line for line in lines if line["msg"] == "Unable to schedule pod; no fit; waiting")
    assert refusals(waiting["err"]) == "0/1 nodes are available: 1 Insufficient cpu."


async def test_the_running_daemon_explains_a_pending_pod(busy: Daemon, server: Cluster) -> None:
    """With the reason in its event; a bound pod is not explained."""
    status, text = await busy.get(f"/debug/explain?namespace={server.api.namespace}&pod=too-large")
    answer = json.loads(text)
    assert status == 200
    assert refusals(answer["explanation"]["message"]) == "0/1 nodes are available: 1 Insufficient cpu."
    assert answer["pending"]["last"]["result"] == "unschedulable"

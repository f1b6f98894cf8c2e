"""Signals and restarts: binds in flight finish, and a new process learns what the old one did."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from scheduler.sandbox.devcluster.controllers.volumes import PROVISION_AFTER_S
from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from tests.support import storage_objects
from tests.support.build import Json
from tests.support.cluster import Cluster
from tests.support.daemon import Daemon, running, started
from tests.support.waiting import until
from tests.system.processes.conftest import embedded

BINDINGS = "/binding$"
#: Longer than a busy machine takes to begin all binds of a test, and shorter than a stop waits for them.
BIND_S = 6.0


@pytest.fixture
async def empty(server: Cluster) -> AsyncIterator[Cluster]:
    """Yield the module's cluster in a new namespace without a daemon; check afterwards that it is sound."""
    await server.api.enter_namespace()
    yield server
    await server.assert_sound()
    await server.clear()


@pytest.fixture
async def faulty(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Yield an embedded cluster of three nodes with injectable faults."""
    async with embedded(tmp_path, nodes=3) as cluster:
        await cluster.api.enter_namespace()
        yield cluster
        assert cluster.devcluster is not None
        cluster.devcluster.faults.clear()
        await cluster.assert_sound()


async def test_a_restart_rereads_all_state(empty: Cluster) -> None:
    """Pods bound by the first process count for the second; pods created in between wait for it."""
    for number in range(4):
        await empty.add_node(f"n{number}", allocatable={"cpu": "3"})
    kubeconfig = Path(empty.kubeconfig)
    async with running(kubeconfig):
        await asyncio.gather(*(empty.add_pod(f"old-{number}", cpu="1") for number in range(7)))
        before = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in await empty.all_bound(7)}
    await asyncio.gather(*(empty.add_pod(f"new-{number}", cpu="1") for number in range(6)))
    async with running(kubeconfig):
        bound = await until(_bound_in(empty), lambda pods: len(pods) == 12, what="5 more pods bound")
        (waiting,) = {pod["metadata"]["name"] for pod in await empty.pods()} - bound.keys()
        await empty.condition(waiting, "0/4 nodes are available: 4 Insufficient cpu.")
    assert bound.items() >= before.items()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda one: one.name)
async def test_a_restart_keeps_the_room_of_a_pod_that_waits_for_its_volume(
    empty: Cluster, number: signal.Signals
) -> None:
    """Its provisioner is slow; the next process comes to a smaller pod first."""
    storage_class = storage_objects.storage_class("slow", "slow.example.com")
    storage_class["metadata"]["annotations"] = {PROVISION_AFTER_S: "3600"}
    await empty.api.post("/apis/storage.k8s.io/v1/storageclasses", storage_class)
    claims = empty.api.in_namespace("persistentvolumeclaims")
    await empty.create(claims, storage_objects.claim("c", "slow", namespace=empty.api.namespace))
    await empty.add_node("a", allocatable={"cpu": "2"})
    kubeconfig, full = Path(empty.kubeconfig), "0/1 nodes are available: 1 Insufficient cpu."
    # A killed leader's Lease would have to run out.
    async with started(kubeconfig, "--leader-elect=false") as daemon:
        await until(daemon.is_ready, what="readiness")
        volumes = [{"name": "c", "persistentVolumeClaim": {"claimName": "c"}}]
        await empty.add_pod("zz-db", cpu="2", spec={"volumes": volumes})
        selected = "volume.kubernetes.io/selected-node"

        async def claim() -> Json:
            stored: Json = (await empty.api.get(f"{claims}/c")).ok
            return stored

        await until(
            claim, lambda one: selected in (one["metadata"].get("annotations") or {}), what="a choice"
        )
        await empty.add_pod("aa-web", cpu="1")
        await empty.condition("aa-web", full)
        daemon.process.send_signal(number)
        await daemon.ended()
    assert (await empty.pod("zz-db"))["status"]["nominatedNodeName"] == "a"
    async with running(kubeconfig, "--leader-elect=false"):
        await empty.add_pod("ab-late", cpu="1")
        await empty.condition("ab-late", full)
        made = storage_objects.volume(f"v-{number.name}".lower(), "slow", phase="Bound")
        uid = (await claim())["metadata"]["uid"]
        made["spec"]["claimRef"] = {"namespace": empty.api.namespace, "name": "c", "uid": uid}
        await empty.create("/api/v1/persistentvolumes", made)
        bound = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}}
        (await empty.api.patch(f"{claims}/c", bound | {"spec": {"volumeName": made["metadata"]["name"]}})).ok  # noqa: B018
        assert await empty.node_of("zz-db") == "a"
        assert "nominatedNodeName" not in (await empty.pod("zz-db"))["status"]
        await empty.condition("aa-web", full)


@pytest.mark.parametrize(
    ("number", "loop"), [(signal.SIGTERM, "asyncio"), (signal.SIGINT, "asyncio"), (signal.SIGTERM, "uvloop")]
)
async def test_a_signal_lets_binds_in_flight_finish(
    faulty: Cluster, number: signal.Signals, loop: str
) -> None:
    """Slow answers are awaited and their events written; no further cycle begins; exit code 0."""
    assert faulty.devcluster is not None
    faulty.devcluster.faults.add(Fault(action=Effect.DELAY, path=BINDINGS, delay_s=BIND_S, times=-1))
    async with started(Path(faulty.kubeconfig), "--event-loop", loop) as daemon:
        await until(daemon.is_ready, what="readiness")
        await asyncio.gather(*(faulty.add_pod(f"p{number}") for number in range(20)))
        await until(lambda: _assumed(daemon), lambda n: n == 20, what="20 binds in flight")
        daemon.process.send_signal(number)
        await until(lambda: daemon.get("/readyz"), lambda answer: answer[0] != 200, what="no readiness")
        await faulty.add_pod("late")
        assert await daemon.ended() == 0, daemon.log()
        assert not daemon.logged("Traceback"), daemon.log()
        assert daemon.logged("Requested to terminate, exiting")
    unbound = [pod["metadata"]["name"] for pod in await faulty.pods() if not pod["spec"].get("nodeName")]
    assert unbound == ["late"]
    for pod_number in range(20):
        assert len(await faulty.events(f"p{pod_number}", "Scheduled")) == 1


async def test_a_second_signal_ends_at_once(faulty: Cluster) -> None:
    assert faulty.devcluster is not None
    faulty.devcluster.faults.add(Fault(action=Effect.DELAY, path=BINDINGS, delay_s=3600.0))
    async with started(Path(faulty.kubeconfig)) as daemon:
        await until(daemon.is_ready, what="readiness")
        await faulty.add_pod("p")
        await until(lambda: _assumed(daemon), lambda n: n == 1, what="a bind in flight")
        daemon.process.send_signal(signal.SIGTERM)
        await until(lambda: daemon.get("/readyz"), lambda answer: answer[0] != 200, what="no readiness")
        daemon.process.send_signal(signal.SIGTERM)
        assert await daemon.ended() == 1


async def test_a_signal_ends_it_while_it_cannot_sync(faulty: Cluster) -> None:
    """Lists fail for ever, so that it is never ready; it stops nevertheless."""
    assert faulty.devcluster is not None
    faulty.devcluster.faults.add(Fault(action=Effect.RESPOND, kind="nodes", code=500, times=-1))
    async with started(Path(faulty.kubeconfig)) as daemon:
        await until(lambda: daemon.get("/livez"), lambda answer: answer[0] == 200, what="life")
        assert await daemon.stop() == 0, daemon.log()


def _bound_in(cluster: Cluster):
    async def bound() -> dict[str, str]:
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"]
            for pod in await cluster.pods()
            if pod["spec"].get("nodeName")
        }

    return bound


async def _assumed(daemon: Daemon) -> float:
    return await daemon.metric("scheduler_cache_size", type="assumed_pods")

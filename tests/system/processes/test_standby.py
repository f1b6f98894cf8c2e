"""A standby has everything before it leads: its takeover asks the server for the Lease, and then only writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import LEASE, POD
from tests.support import build
from tests.support.accounts import account_kubeconfig
from tests.support.cluster import NAME
from tests.support.daemon import Daemon, running
from tests.support.enforcer_process import enforcing
from tests.support.waiting import until

N_PODS = 5
LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{NAME}"


def hold_lease(cluster: DevCluster, name: str) -> None:
    """Let somebody hold the Lease who never releases it."""
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600, "leaseTransitions": 4}
    cluster.store.create(LEASE, "kube-system", {"metadata": {"name": name}, "spec": spec})


@asynccontextmanager
async def standby(cluster: DevCluster, folder: Path) -> AsyncIterator[Daemon]:
    """Run a scheduler that waits for the Lease, with five pods in its queue."""
    hold_lease(cluster, NAME)
    for number in range(N_PODS):
        pod = build.pod(f"p{number}", spec={"schedulerName": NAME})
        del pod["metadata"]["uid"], pod["status"]
        cluster.store.create(POD, "default", pod)
    async with running(Path(account_kubeconfig(cluster, "scheduler", folder))) as daemon:
        yield daemon


def n_bound(cluster: DevCluster) -> int:
    return sum(bool(pod["spec"].get("nodeName")) for pod in cluster.store.list(POD)[0])


def release(cluster: DevCluster, name: str = NAME, **annotations: str) -> None:
    """Release the Lease as its holder would, with these annotations."""
    change = {"metadata": {"annotations": annotations}, "spec": {"holderIdentity": ""}}
    cluster.store.patch(LEASE, "kube-system", name, change)


async def takeover(cluster: DevCluster, **annotations: str) -> list[tuple[str, str]]:
    """Release the Lease, wait until the standby has bound all pods, and return its requests until then."""
    requests: list[tuple[str, str]] = []
    cluster.arrivals.append(lambda _agent, method, path: requests.append((method, path)))
    release(cluster, **annotations)

    async def bound() -> int:
        return n_bound(cluster)

    await until(bound, lambda n: n == N_PODS, what="the bindings of the standby")
    return requests


async def test_a_standby_has_its_caches_and_its_queue_and_decides_nothing(tmp_path: Path) -> None:
    """Its caches are synced, all pods wait in the active queue, and none is tried."""
    async with DevCluster(nodes=3) as cluster, standby(cluster, tmp_path) as daemon:
        assert await daemon.metric("scheduler_cache_size", type="nodes") == 3
        assert await daemon.metric("scheduler_pending_pods", queue="active") == N_PODS
        assert await daemon.metric("leader_election_master_status") == 0
        assert await daemon.metric("scheduler_schedule_attempts_total") == 0
        assert n_bound(cluster) == 0


async def test_a_takeover_after_a_handover_reads_the_lease_alone(tmp_path: Path) -> None:
    """Its watches are open, and have shown what the last leader bound: no list, no watch, no review comes first."""
    async with DevCluster(nodes=3) as cluster, standby(cluster, tmp_path):
        version = max(int(pod["metadata"]["resourceVersion"]) for pod in cluster.store.list(POD)[0])
        requests = await takeover(cluster, **{"affinity-scheduler.io/bound-until": f"4 {version}"})
        assert [path for method, path in requests if method == "GET"] == [LEASE_PATH]
        assert requests[:2] == [("GET", LEASE_PATH), ("PUT", LEASE_PATH)]


async def test_a_takeover_without_a_handover_lists_the_pods_too(tmp_path: Path) -> None:
    """The last leader may have bound pods that no watch has shown yet."""
    async with DevCluster(nodes=3) as cluster, standby(cluster, tmp_path):
        requests = await takeover(cluster)
        assert [path for method, path in requests if method == "GET"] == [LEASE_PATH, "/api/v1/pods"]


async def test_the_leader_leaves_a_version_once_it_has_bound_pods(tmp_path: Path) -> None:
    """SIGTERM releases the Lease; the version is not older than any of its binds."""
    async with DevCluster(nodes=3) as cluster, standby(cluster, tmp_path) as daemon:
        await takeover(cluster)

        async def unconfirmed() -> float:
            return await daemon.metric("scheduler_cache_size", type="assumed_pods")

        await until(unconfirmed, lambda n: n == 0, what="the watch to show the binds")
        assert await daemon.stop() == 0
        lease = cluster.store.get(LEASE, "kube-system", NAME)
        assert lease["spec"]["holderIdentity"] == ""
        transitions, version = lease["metadata"]["annotations"]["affinity-scheduler.io/bound-until"].split()
        assert transitions == "5"
        versions = [int(pod["metadata"]["resourceVersion"]) for pod in cluster.store.list(POD)[0]]
        assert int(version) >= max(versions)


async def test_a_standby_of_the_enforcer_watches_its_lease_too(tmp_path: Path) -> None:
    """Its account may watch this Lease and no other."""
    name = "affinity-scheduler-enforcer"
    async with DevCluster(nodes=1) as cluster:
        requests: list[tuple[str, str]] = []
        cluster.arrivals.append(lambda _agent, method, path: requests.append((method, path)))
        hold_lease(cluster, name)
        async with enforcing(account_kubeconfig(cluster, "enforcer", tmp_path)) as daemon:
            release(cluster, name)

            async def leads() -> float:
                return await daemon.metric("leader_election_master_status")

            await until(leads, what="its election")
            assert ("GET", LEASE_PATH.rpartition("/")[0]) in requests
            assert not daemon.logged("seen late")

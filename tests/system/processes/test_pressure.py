"""A slow client: clientConnection.qps is kept, and what it holds back never holds back the Lease."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.daemon import Daemon, profiles, running
from tests.support.waiting import until
from tests.system.processes.conftest import embedded

#: As many at once as its start takes.
QPS, BURST = 8.0, 24
LEASE_S = 4
N_PODS = 30
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/affinity-scheduler"


@pytest.fixture(scope="module")
async def slow(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Cluster, Daemon]]:
    """Yield a cluster and a leader that may send only some requests a second."""
    folder = tmp_path_factory.mktemp("slow")
    configuration = json.loads(profiles({"schedulerName": "affinity-scheduler"}))
    configuration["clientConnection"] = {"qps": QPS, "burst": BURST}
    configuration["leaderElection"] = {
        "leaderElect": True, "leaseDuration": f"{LEASE_S}s", "renewDeadline": "3s", "retryPeriod": "500ms",
        "resourceName": "affinity-scheduler", "resourceNamespace": "kube-system",
    }  # fmt: skip
    file = folder / "configuration.json"
    file.write_text(json.dumps(configuration))
    async with embedded(folder, nodes=1) as cluster:
        await cluster.api.enter_namespace()
        async with running(Path(cluster.kubeconfig), "--config", str(file)) as daemon:
            yield cluster, daemon


async def test_requests_leave_as_slowly_as_configured_and_the_lease_is_renewed_meanwhile(
    slow: tuple[Cluster, Daemon],
) -> None:
    """A bind and an event for each pod, at eight a second: the queue is longer than the Lease would last."""
    cluster, daemon = slow
    started_s = time.monotonic()
    await asyncio.gather(*(cluster.add_pod(f"p{number}") for number in range(N_PODS)))
    lease = (await cluster.api.get(LEASE)).ok["spec"]

    async def all_are_bound_and_told() -> bool:
        counts = [len(await cluster.events(f"p{number}", "Scheduled")) for number in range(N_PODS)]
        return sum(counts) == N_PODS

    await until(all_are_bound_and_told, what="every event")
    held_back_s = (2 * N_PODS - BURST) / QPS
    assert time.monotonic() - started_s > held_back_s > LEASE_S
    after = (await cluster.api.get(LEASE)).ok["spec"]
    assert after["renewTime"] > lease["renewTime"]
    for field in ("holderIdentity", "acquireTime", "leaseTransitions"):
        assert after.get(field) == lease.get(field)
    assert await daemon.metric("leader_election_master_status") == 1
    assert not daemon.logged("Leaderelection lost")

"""etcd is full: nothing can be written until it has room again, and then everything goes on by itself."""

import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.proof.nights.servers import ELECTION, Night, night
from tests.support.cluster import NAME
from tests.support.daemon import started
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.asyncio]

_QUOTA_BYTES = 16 << 20
_FULL = "mvcc: database space exceeded"


async def test_binds_fail_while_etcd_is_full_and_succeed_once_it_has_room(tmp_path: Path) -> None:
    """The log has etcd's words, readyz stays good since reading works, and the pod is bound within seconds after."""
    async with night(tmp_path, etcd_flags=[f"--quota-backend-bytes={_QUOTA_BYTES}"]) as full:
        await full.cluster.add_node("n")
        async with started(full.kubeconfig, "--leader-elect=false") as daemon:
            await until(daemon.is_ready)
            # Pods can be created before etcd is full alone, and are to be decided afterwards.
            daemon.process.send_signal(signal.SIGSTOP)
            await full.cluster.add_pod("p")
            n_filled = await _fill(full)
            daemon.process.send_signal(signal.SIGCONT)
            await until(lambda: daemon.metric("scheduler_schedule_attempts_total", result="error"))
            assert daemon.logged(_FULL), daemon.log()
            assert await daemon.metric("rest_client_requests_total", code="500", method="POST")
            assert (await daemon.get("/readyz"))[0] == 200
            assert (await daemon.get("/livez"))[0] == 200
            assert await full.cluster.n_bound() == 0
            await _empty(full, n_filled)
            assert await full.cluster.node_of("p") == "n"
            assert not daemon.logged("Traceback"), daemon.log()


async def test_a_leader_that_cannot_renew_its_lease_ends_and_leads_again(tmp_path: Path) -> None:
    """As kube-scheduler does; what restarts it meets the same Lease, which nobody else could take."""
    async with night(tmp_path, etcd_flags=[f"--quota-backend-bytes={_QUOTA_BYTES}"]) as full:
        await full.cluster.add_node("n")
        async with started(full.kubeconfig, *ELECTION) as daemon:
            await until(lambda: daemon.metric("leader_election_master_status"))
            n_filled = await _fill(full)
            assert await daemon.ended() == 1, daemon.log()
            assert daemon.logged(f"the Lease {NAME} was not renewed in time"), daemon.log()
            assert not daemon.logged("Traceback"), daemon.log()
        async with started(full.kubeconfig, *ELECTION) as daemon:
            await until(lambda: daemon.metric("rest_client_requests_total", code="500"), what="a try to lead")
            assert await daemon.metric("leader_election_master_status") == 0
            await _empty(full, n_filled)
            await until(lambda: daemon.metric("leader_election_master_status"))
            await full.cluster.add_pod("p")
            await full.cluster.node_of("p")


async def _fill(full: Night) -> int:
    """Write ConfigMaps until etcd takes no more, and return their number."""
    path = full.cluster.api.in_namespace("configmaps")
    for number in range(100):
        content = {"metadata": {"name": f"big-{number}"}, "data": {"text": "x" * 900_000}}
        answer = await full.cluster.api.post(path, content)
        if answer.code >= 300:
            assert _FULL in answer.body["message"], answer.body
            return number
    raise AssertionError("etcd takes everything")


async def _empty(full: Night, n_filled: int) -> None:
    """Delete the ConfigMaps, compact, defragment and disarm the alarm: what Kubernetes' documentation says."""
    for number in range(n_filled):
        path = full.cluster.api.in_namespace("configmaps", f"big-{number}")
        (await full.cluster.api.delete(path)).ok  # noqa: B018 - asserts success
    async with aiohttp.ClientSession(full.etcd_url) as etcd:
        revision = (await _etcd(etcd, "/v3/kv/range", {"key": "AA=="}))["header"]["revision"]
        await _etcd(etcd, "/v3/kv/compaction", {"revision": revision, "physical": True})
        await _etcd(etcd, "/v3/maintenance/defragment", {})
        (alarm,) = (await _etcd(etcd, "/v3/maintenance/alarm", {"action": "GET"}))["alarms"]
        assert alarm["alarm"] == "NOSPACE"
        await _etcd(etcd, "/v3/maintenance/alarm", {"action": "DEACTIVATE", **alarm})


async def _etcd(etcd: aiohttp.ClientSession, path: str, request: dict[str, Any]) -> Any:
    async with etcd.post(path, json=request) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()

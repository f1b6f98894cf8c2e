"""The clock of the leader's machine is set by an hour, forward and back."""

from functools import partial
from pathlib import Path

import pytest

from tests.proof.nights.servers import ELECTION, LEASE_PATH, night
from tests.support.api_client import Api
from tests.support.daemon import Daemon, started
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.asyncio]

_HOUR_S = 3600


async def test_a_leader_whose_clock_jumps_leads_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps the Lease before a standby whose clock is right, retries pods in time, and measures no hour."""
    shift = tmp_path / "shift"
    shift.write_text("0")
    monkeypatch.setenv("CLOCK_SHIFT", str(shift))
    async with night(tmp_path) as server:
        cluster = server.cluster
        await cluster.add_node("other")
        module = ("tests.proof.nights.jumping_clock",)
        async with started(server.kubeconfig, *ELECTION, module=module) as leader:
            await until(lambda: leader.metric("leader_election_master_status"))
            monkeypatch.delenv("CLOCK_SHIFT")
            async with started(server.kubeconfig, *ELECTION) as standby:
                await until(standby.is_ready)
                measured_s = await _durations_s(leader)
                for number, jump_s in enumerate((_HOUR_S, -_HOUR_S, 0)):
                    # Refused before the jump, and to be tried again after it.
                    await cluster.add_pod(f"p{number}", node_selector={"number": str(number)})
                    await until(lambda: leader.metric("scheduler_pending_pods", queue="unschedulable"))
                    shift.write_text(str(jump_s))
                    await _renewed(cluster.api)
                    await cluster.add_node(f"n{number}", labels={"number": str(number)})
                    await cluster.node_of(f"p{number}")
                    await until(partial(cluster.events, f"p{number}", "Scheduled"), what="its event")
                    # After each jump: an hour more and one less would make none.
                    before_s, measured_s = measured_s, await _durations_s(leader)
                    for before, now in zip(before_s, measured_s, strict=True):
                        assert before < now < before + _HOUR_S / 10
                assert await leader.metric("leader_election_master_status") == 1
                assert await standby.metric("leader_election_master_status") == 0
                assert (await cluster.api.get(LEASE_PATH)).ok["spec"].get("leaseTransitions", 0) == 0
                assert (await leader.get("/readyz"))[0] == 200
                assert await leader.stop() == 0
                await until(lambda: standby.metric("leader_election_master_status"))
                assert not leader.logged("Traceback"), leader.log()


async def _durations_s(of: Daemon) -> list[float]:
    names = ("pod_scheduling_sli", "scheduling_attempt")
    return [await of.metric(f"scheduler_{name}_duration_seconds_sum") for name in names]


async def _renewed(api: Api) -> None:
    """Wait for the next renewal of the Lease."""

    async def version() -> str:
        found: str = (await api.get(LEASE_PATH)).ok["metadata"]["resourceVersion"]
        return found

    before = await version()
    await until(version, lambda now: now != before, what="a renewal")

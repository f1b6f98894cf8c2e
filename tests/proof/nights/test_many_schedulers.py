"""Three instances of ours on one Lease, of which two are killed, beside kube-scheduler on the same nodes."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.proof.nights.servers import ELECTION, LEASE_PATH, night
from tests.support.daemon import Daemon, started
from tests.support.waiting import until
from tests.tools.shadow.test_loop import KUBE_SCHEDULER, OTHER, kube_scheduler, process

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.asyncio,
    pytest.mark.skipif(
        not KUBE_SCHEDULER.is_file(), reason="no kube-scheduler beside the API server's binaries"
    ),
]

_ATTEMPTS = "scheduler_schedule_attempts_total"
#: Of each of the two schedulers, in each of three rounds. All fit with a fifth of the room to spare.
_N_PODS, _N_ROUNDS, _N_NODES, _CPU = 10, 3, 4, 19


async def test_every_pod_is_bound_once_while_two_of_three_instances_are_killed(tmp_path: Path) -> None:
    """By SIGKILL amid binds; the Lease changes hands twice, and the reference finds no rule broken."""
    async with night(tmp_path) as server, AsyncExitStack() as stack:
        cluster = server.cluster
        for number in range(_N_NODES):
            await cluster.add_node(f"n{number}", allocatable={"cpu": str(_CPU), "pods": "100"})
        command = kube_scheduler(server.kubeconfig, tmp_path, "1.36")
        await stack.enter_async_context(process(*command, log=tmp_path / "kube-scheduler.log"))
        instances = [await stack.enter_async_context(started(server.kubeconfig, *ELECTION)) for _ in range(3)]

        async def leaders() -> list[Daemon]:
            living = [each for each in instances if each.process.returncode is None]
            return [each for each in living if await each.metric("leader_election_master_status")]

        for round_number in range(_N_ROUNDS):
            (leader,) = await until(leaders, lambda found: len(found) == 1, what="one leader")
            bound_before = await leader.metric(_ATTEMPTS, result="scheduled")
            for number in range(_N_PODS):
                for scheduler in (None, OTHER):
                    names = {} if scheduler is None else {"scheduler": scheduler}
                    name = f"{'theirs' if scheduler else 'ours'}-{round_number}-{number}"
                    await cluster.add_pod(name, cpu="1", **names)
                if number == _N_PODS // 2 and round_number < _N_ROUNDS - 1:

                    async def bound(leader: Daemon = leader, before: float = bound_before) -> bool:
                        return await leader.metric(_ATTEMPTS, result="scheduled") > before

                    await until(bound, what="a bind of the leader")
                    leader.process.kill()
            await cluster.all_bound(2 * _N_PODS * (round_number + 1))
        lease = (await cluster.api.get(LEASE_PATH)).ok
        assert lease["spec"]["leaseTransitions"] == _N_ROUNDS - 1
        await cluster.assert_sound()
        (last,) = await leaders()
        assert not last.logged("Traceback"), last.log()
        assert await last.stop() == 0
        await asyncio.gather(*(each.process.wait() for each in instances))

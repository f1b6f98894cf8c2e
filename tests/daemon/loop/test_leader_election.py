"""Leader election against an API server, on a virtual clock."""

from __future__ import annotations

import asyncio
import inspect
import io
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.loop.leader_election import LeaderElector
from scheduler.daemon.metrics.logs import configure
from scheduler.daemon.settings.resolved import LeaderElection
from scheduler.errors import LeadershipLost
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from scheduler.sandbox.devcluster.kinds import LEASE
from tests.proof.chaos.run import virtually
from tests.support.scripted_server import anonymous

SETTINGS = LeaderElection()
LEASES = "leases.coordination.k8s.io"


async def settled() -> None:
    """Let everything run that needs no time to pass: requests go over loopback."""
    await asyncio.sleep(0.001)


class Candidate:
    def __init__(self, client: KubeClient, identity: str, jitter: float) -> None:
        self.elected = False
        self.log = io.StringIO()
        now_s = asyncio.get_running_loop().time
        self.leadership = LeaderElector(
            client,
            SETTINGS,
            identity,
            log=configure(verbosity=0, form="text", stream=self.log),
            clock_s=lambda: 1_700_000_000.0 + now_s(),
            now_s=now_s,
            jitter=lambda: jitter,
        )
        self.task = asyncio.ensure_future(self.leadership.run(self._on_elected))

    def _on_elected(self) -> None:
        self.elected = True

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def stop(self, handover: str = "") -> None:
        """End as a process that is told to: release the Lease and leave this in it."""
        await self.kill()
        await self.leadership.release(handover)


@dataclass
class Scene:
    cluster: DevCluster
    client: KubeClient
    candidates: list[Candidate] = field(default_factory=list)

    async def join(self, identity: str, *, jitter: float = 0.5) -> Candidate:
        candidate = Candidate(self.client, identity, jitter)
        self.candidates.append(candidate)
        await settled()
        return candidate


@asynccontextmanager
async def electing(*faults: Fault) -> AsyncIterator[Scene]:
    async with DevCluster() as cluster, KubeClient(anonymous(cluster.url)) as client:
        cluster.faults.add(*faults)
        scene = Scene(cluster, client)
        yield scene
        for candidate in scene.candidates:
            await candidate.kill()


@virtually
async def test_a_standby_says_for_whom_it_waits_and_until_when() -> None:
    """Once each: while the holder renews nothing else is said; after its death when its Lease ends."""
    async with electing() as scene:
        first, second = await scene.join("first"), await scene.join("second")
        await asyncio.sleep(60)
        (line,) = second.log.getvalue().splitlines()
        assert "Standby, since another instance holds the Lease" in line
        assert line.endswith(' lease="kube-system/affinity-scheduler" holder="first"')
        await first.kill()
        await asyncio.sleep(9)
        _, late = second.log.getvalue().splitlines()
        assert "The holder does not renew the Lease" in late
        assert 8.0 <= float(late.rpartition(" expires_in_s=")[2]) <= 10.0
        await asyncio.sleep(8)
        assert second.elected
        assert first.log.getvalue().count("\n") == 1


CUT_WATCH = Fault(action=Effect.CUT_STREAM, verb="watch", kind=LEASES)


@pytest.mark.parametrize(
    ("how", "faults"),
    [("released", []), ("deleted", []), ("released", [CUT_WATCH])],
    ids=["released", "deleted", "released, and its watch broke before"],
)
@virtually
async def test_a_lease_without_a_holder_is_taken_at_once(how: str, faults: list[Fault]) -> None:
    """The standby watches it. A user may delete it to have another leader; its holder finds out when it renews."""
    async with electing() as scene:
        first, second = await scene.join("first"), await scene.join("second")
        scene.cluster.faults.add(*faults)
        await asyncio.sleep(20.0)
        assert not second.elected
        assert not scene.cluster.faults.pending()
        if how == "released":
            await first.stop()
            assert not first.leadership.is_leader
        else:
            scene.cluster.store.delete(LEASE, "kube-system", SETTINGS.resource_name)
        await settled()
        assert second.elected


@virtually
async def test_a_successor_gets_what_the_leader_left_and_nobody_else_does() -> None:
    """The third one follows a leader that died, whose predecessor's word no longer holds."""
    async with electing() as scene:
        first, second = await scene.join("first"), await scene.join("second")
        await first.stop("41")
        await settled()
        assert (second.elected, second.leadership.handover) == (True, "41")
        third = await scene.join("third")
        await second.kill()
        await asyncio.sleep(20.0)
        assert (third.elected, third.leadership.handover) == (True, "")


@virtually
async def test_what_a_leader_left_ends_with_the_lease() -> None:
    """The second one reads it and cannot take the Lease, which is then deleted with everything that was in it."""
    async with electing() as scene:
        await (await scene.join("first")).stop("41")
        scene.cluster.faults.add(Fault(action=Effect.RESPOND, code=409, method="PUT", kind=LEASES, times=2))
        second = await scene.join("second")
        assert (second.elected, second.leadership.handover) == (False, "41")
        scene.cluster.store.delete(LEASE, "kube-system", SETTINGS.resource_name)
        await settled()
        assert (second.elected, second.leadership.handover) == (True, "")


@virtually
async def test_of_two_standbys_one_is_elected() -> None:
    """Both see the release at once, and the server accepts one of the two writes."""
    async with electing() as scene:
        first = await scene.join("first")
        standbys = [await scene.join("second"), await scene.join("third")]
        await first.stop()
        await asyncio.sleep(5.0)
        assert sorted(standby.elected for standby in standbys) == [False, True]


@pytest.mark.parametrize("code", [403, 500])
@virtually
async def test_without_a_watch_a_released_lease_is_taken_within_a_retry(code: int) -> None:
    """SIGTERM just after the standby has read the Lease: it leads within 2 s, and asks for no watch that it may not."""
    refused = Fault(action=Effect.RESPOND, code=code, verb="watch", kind=LEASES, times=1000)
    async with electing(refused) as scene:
        first, second = await scene.join("first"), await scene.join("second", jitter=0.999)
        await first.stop()
        await settled()
        assert not second.elected
        await asyncio.sleep(2.0)
        assert second.elected


@virtually
async def test_a_renewal_cancelled_by_the_shutdown_does_not_keep_the_lease() -> None:
    """The server wrote it, so that our version is out of date when we release the Lease."""
    async with electing() as scene:
        first, second = await scene.join("first"), await scene.join("second")
        scene.cluster.faults.add(Fault(action=Effect.LOSE_ANSWER, method="put", kind=LEASES, delay_s=5.0))
        await asyncio.sleep(2.5)
        assert not scene.cluster.faults.pending()
        await first.stop()
        await asyncio.sleep(4.5)
        assert second.elected


@virtually
async def test_a_dead_leader_is_followed_after_its_duration_and_not_before() -> None:
    """kill -9: the record has to stay unchanged for the Lease's own duration."""
    async with electing() as scene:
        first, second = await scene.join("first"), await scene.join("second", jitter=0.999)
        await asyncio.sleep(8.5)
        await first.kill()
        # The standby sees the last renewal, of second 8, at second 9.
        await asyncio.sleep(15.4)
        assert not second.elected
        await asyncio.sleep(0.2)
        assert second.elected


@pytest.mark.skipif(
    not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no clock that goes on in its sleep"
)
def test_time_counts_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Otherwise it would bind after it wakes up while another instance leads. `time.monotonic` stands still meanwhile.
    """
    slept_s = {time.CLOCK_BOOTTIME: 3600.0}
    monkeypatch.setattr(time, "clock_gettime", lambda clock: time.monotonic() + slept_s.get(clock, 0.0))
    now_s = inspect.signature(LeaderElector).parameters["now_s"].default
    assert now_s() > time.monotonic() + 3599.0


@virtually
async def test_a_leader_that_cannot_renew_stops_before_another_can_lead() -> None:
    async with electing() as scene:
        first = await scene.join("first")
        scene.cluster.faults.add(Fault(action=Effect.RESPOND, code=500, path="leases", times=1000))
        held = []
        for _ in range(2):
            await asyncio.sleep(6)
            held.append(first.leadership.is_leader)
        assert held == [True, False]
        with pytest.raises(LeadershipLost):
            await first.task


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(action=Effect.RESPOND, code=503, path="leases", times=2), id="a short outage"),
        pytest.param(
            Fault(action=Effect.LOSE_ANSWER, method="PUT", path="leases"),
            id="a lost answer: the next attempt gets a conflict, reads the Lease and finds itself the holder",
        ),
    ],
)
@virtually
async def test_a_renewal_that_fails_costs_nothing(fault: Fault) -> None:
    async with electing() as scene:
        first = await scene.join("first")
        scene.cluster.faults.add(fault)
        await asyncio.sleep(30)
        assert first.leadership.is_leader


@virtually
async def test_the_lease_shows_the_holder_its_acquire_time_and_the_transitions() -> None:
    """leaseTransitions counts takeovers; renewals keep acquireTime."""
    async with electing() as scene:
        first = await scene.join("first")
        await asyncio.sleep(5)
        spec = scene.cluster.store.get(LEASE, "kube-system", SETTINGS.resource_name)["spec"]
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("first", 15)
        assert spec["acquireTime"] < spec["renewTime"]
        assert spec["renewTime"].endswith("Z")
        await first.stop()
        await scene.join("second")
        await asyncio.sleep(3)
        spec = scene.cluster.store.get(LEASE, "kube-system", SETTINGS.resource_name)["spec"]
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("second", 1)

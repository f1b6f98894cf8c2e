"""Leader election against an API server, on a clock that the tests advance."""

from __future__ import annotations

import asyncio
import inspect
import io
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import load_credentials
from scheduler.daemon.loop.leader_election import LeaderElector
from scheduler.daemon.metrics.logs import configure
from scheduler.daemon.settings.resolved import LeaderElection
from scheduler.errors import LeadershipLost
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from scheduler.sandbox.devcluster.kinds import LEASE

SETTINGS = LeaderElection()
LEASES = "leases.coordination.k8s.io"


@dataclass
class Clock:
    """A clock that only advances when a test says so; sleepers wake in order."""

    now: float = 1000.0
    sleepers: list[tuple[float, asyncio.Event]] = field(default_factory=list)

    def seconds(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        self.sleepers.append((self.now + seconds, woken))
        await woken.wait()

    async def advance(self, seconds: float) -> None:
        """Advance in steps, and let due tasks run after each."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.5)
            due = [sleeper for sleeper in self.sleepers if sleeper[0] <= self.now]
            self.sleepers = [sleeper for sleeper in self.sleepers if sleeper[0] > self.now]
            for _, woken in due:
                woken.set()
            await settled()


async def settled() -> None:
    """Let everything run that needs no time to pass: requests go over loopback."""
    for _ in range(60):
        await asyncio.sleep(0.0005)


class Candidate:
    def __init__(self, client: KubeClient, clock: Clock, identity: str, jitter: float) -> None:
        self.elected = False
        self.log = io.StringIO()
        self.leadership = LeaderElector(
            client,
            SETTINGS,
            identity,
            log=configure(verbosity=0, form="text", stream=self.log),
            clock_s=lambda: 1_700_000_000.0 + clock.now,
            now_s=clock.seconds,
            sleep=clock.sleep,
            jitter=lambda: jitter,
        )
        self.task = asyncio.ensure_future(self.leadership.run(self._on_elected))

    def _on_elected(self) -> None:
        self.elected = True

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@dataclass
class Scene:
    cluster: DevCluster
    client: KubeClient
    clock: Clock
    candidates: list[Candidate] = field(default_factory=list)

    async def join(self, identity: str, *, jitter: float = 0.5) -> Candidate:
        candidate = Candidate(self.client, self.clock, identity, jitter)
        self.candidates.append(candidate)
        await settled()
        return candidate


@pytest_asyncio.fixture
async def scene(tmp_path) -> AsyncIterator[Scene]:
    async with DevCluster() as cluster:
        path = tmp_path / "kubeconfig"
        cluster.write_kubeconfig(path)
        credentials = await load_credentials(kubeconfig=str(path), master=None, environ={})
        async with KubeClient(credentials) as client:
            scene = Scene(cluster, client, Clock())
            yield scene
            for candidate in scene.candidates:
                await candidate.kill()


async def test_a_standby_says_for_whom_it_waits_and_until_when(scene: Scene) -> None:
    """Once each: while the holder renews nothing else is said; after its death when its Lease ends."""
    first = await scene.join("first")
    second = await scene.join("second")
    await scene.clock.advance(60)
    (line,) = second.log.getvalue().splitlines()
    assert "Standby, since another instance holds the Lease" in line
    assert line.endswith(' lease="kube-system/affinity-scheduler" holder="first"')
    await first.kill()
    await scene.clock.advance(9)
    _, late = second.log.getvalue().splitlines()
    assert "The holder does not renew the Lease" in late
    assert 8.0 <= float(late.rpartition(" expires_in_s=")[2]) <= 10.0
    await scene.clock.advance(8)
    assert second.elected
    assert first.log.getvalue().count("\n") == 1


async def test_a_released_lease_is_taken_at_once(scene: Scene) -> None:
    """The standby watches the Lease: no time passes between the release and its election."""
    first = await scene.join("first")
    second = await scene.join("second")
    await scene.clock.advance(20.0)
    assert not second.elected
    await first.kill()
    await first.leadership.release()
    assert not first.leadership.is_leader
    await settled()
    assert second.elected


async def test_a_successor_gets_what_the_leader_left_and_nobody_else_does(scene: Scene) -> None:
    """The third one follows a leader that died, whose predecessor's word no longer holds."""
    first = await scene.join("first")
    second = await scene.join("second")
    await first.kill()
    await first.leadership.release("41")
    await settled()
    assert (second.elected, second.leadership.handover) == (True, "41")
    third = await scene.join("third")
    await second.kill()
    await scene.clock.advance(20.0)
    assert (third.elected, third.leadership.handover) == (True, "")


async def test_what_a_leader_left_ends_with_the_lease(scene: Scene) -> None:
    """The second one reads it and cannot take the Lease, which is then deleted with everything that was in it."""
    first = await scene.join("first")
    await first.kill()
    await first.leadership.release("41")
    scene.cluster.faults.add(Fault(action=Effect.RESPOND, code=409, method="PUT", kind=LEASES, times=2))
    second = await scene.join("second")
    assert (second.elected, second.leadership.handover) == (False, "41")
    scene.cluster.store.delete(LEASE, "kube-system", SETTINGS.resource_name)
    await settled()
    assert (second.elected, second.leadership.handover) == (True, "")


async def test_a_deleted_lease_is_taken_at_once(scene: Scene) -> None:
    """A user may delete it to have another leader; its holder finds out when it renews."""
    await scene.join("first")
    second = await scene.join("second")
    scene.cluster.store.delete(LEASE, "kube-system", SETTINGS.resource_name)
    await settled()
    assert second.elected


async def test_of_two_standbys_one_is_elected(scene: Scene) -> None:
    """Both see the release at once, and the server accepts one of the two writes."""
    first = await scene.join("first")
    standbys = [await scene.join("second"), await scene.join("third")]
    await first.kill()
    await first.leadership.release()
    await scene.clock.advance(5.0)
    assert sorted(standby.elected for standby in standbys) == [False, True]


@pytest.mark.parametrize("code", [403, 500])
async def test_without_a_watch_a_released_lease_is_taken_within_a_retry(scene: Scene, code: int) -> None:
    """SIGTERM just after the standby has read the Lease: it leads within 2 s, and asks for no watch that it may not."""
    scene.cluster.faults.add(Fault(action=Effect.RESPOND, code=code, verb="watch", kind=LEASES, times=1000))
    first = await scene.join("first")
    second = await scene.join("second", jitter=0.999)
    await first.kill()
    await first.leadership.release()
    await settled()
    assert not second.elected
    await scene.clock.advance(2.0)
    assert second.elected


async def test_a_watch_that_broke_is_opened_again(scene: Scene) -> None:
    first = await scene.join("first")
    second = await scene.join("second")
    scene.cluster.faults.add(Fault(action=Effect.CUT_STREAM, verb="watch", kind=LEASES))
    await scene.clock.advance(6.0)
    assert not scene.cluster.faults.pending()
    await first.kill()
    await first.leadership.release()
    await settled()
    assert second.elected


async def test_a_renewal_cancelled_by_the_shutdown_does_not_keep_the_lease(scene: Scene) -> None:
    """The server wrote it, so that our version is out of date when we release the Lease."""
    first = await scene.join("first")
    second = await scene.join("second")
    scene.cluster.faults.add(Fault(action=Effect.LOSE_ANSWER, method="put", kind=LEASES, delay_s=5.0))
    await scene.clock.advance(2.5)
    await first.kill()
    assert not scene.cluster.faults.pending()
    await first.leadership.release()
    await scene.clock.advance(4.5)
    assert second.elected


async def test_a_dead_leader_is_followed_after_its_duration_and_not_before(scene: Scene) -> None:
    """kill -9: the record has to stay unchanged for the Lease's own duration."""
    first = await scene.join("first")
    second = await scene.join("second", jitter=0.999)
    await scene.clock.advance(8.5)
    await first.kill()
    waited_s = 0.0
    while not second.elected:
        await scene.clock.advance(0.5)
        waited_s += 0.5
    # The last renewal was half a second old.
    assert 14.5 <= waited_s <= 15.0


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


async def test_a_leader_that_cannot_renew_stops_before_another_can_lead(scene: Scene) -> None:
    first = await scene.join("first")
    scene.cluster.faults.add(Fault(action=Effect.RESPOND, code=500, path="leases", times=1000))
    held = []
    for _ in range(2):
        await scene.clock.advance(6)
        held.append(first.leadership.is_leader)
    assert held == [True, False]
    with pytest.raises(LeadershipLost):
        await first.task


async def test_a_short_outage_costs_nothing(scene: Scene) -> None:
    first = await scene.join("first")
    scene.cluster.faults.add(Fault(action=Effect.RESPOND, code=503, path="leases", times=2))
    await scene.clock.advance(30)
    assert first.leadership.is_leader


async def test_a_renewal_whose_answer_was_lost_counts(scene: Scene) -> None:
    """The next attempt gets a conflict, reads the Lease and finds itself the holder."""
    first = await scene.join("first")
    scene.cluster.faults.add(Fault(action=Effect.LOSE_ANSWER, method="PUT", path="leases", times=1))
    await scene.clock.advance(8)
    assert first.leadership.is_leader


async def test_the_lease_shows_the_holder_its_acquire_time_and_the_transitions(scene: Scene) -> None:
    """leaseTransitions counts takeovers; renewals keep acquireTime."""
    first = await scene.join("first")
    await scene.clock.advance(5)
    spec = scene.cluster.store.get(LEASE, "kube-system", "affinity-scheduler")["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("first", 15)
    assert spec["acquireTime"] < spec["renewTime"]
    assert spec["renewTime"].endswith("Z")
    await first.kill()
    await first.leadership.release()
    second = await scene.join("second")
    await scene.clock.advance(3)
    assert second.elected
    spec = scene.cluster.store.get(LEASE, "kube-system", "affinity-scheduler")["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("second", 1)

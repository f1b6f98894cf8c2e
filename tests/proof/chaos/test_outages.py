"""Long outages and throttling: nothing is lost, the server is not flooded, and no instance restarts in vain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from scheduler.daemon.loop.app import Scheduler
from scheduler.daemon.writes.concurrency_limit import MIN_LIMIT
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from scheduler.sandbox.devcluster.kinds import POD
from tests.proof.chaos.instance import Instance, living
from tests.proof.chaos.journal import Journal
from tests.proof.chaos.run import virtually
from tests.support import build
from tests.support.daemon import sum_of_samples
from tests.support.waiting import until

TEN_MINUTES_S = 600.0
#: Longest pause of any retry, and the time of a relist and of the cycles after it.
AFTERWARDS_S = 60.0
#: The time within which every watch receives a bookmark.
BOOKMARKED_S = 70.0
#: Everything but Leases.
THE_REST = r"^/(api/v1|apis/(events|apps))"


@asynccontextmanager
async def running(
    *faults: Fault, elected: bool = False, status_port: int = 0
) -> AsyncIterator[tuple[Instance, Scheduler, DevCluster]]:
    """Run an instance with full caches in an idle cluster, which leads if there is an election."""
    async with DevCluster(nodes=4) as cluster:
        cluster.faults.add(*faults)
        journal = Journal(asyncio.get_running_loop().time)
        instance = Instance(
            "one", elected=elected, server_port=cluster.port, journal=journal, status_port=status_port
        )

        async def ready() -> Scheduler | None:
            scheduler = None if instance.life is None else instance.life.scheduler
            if scheduler is None or not scheduler._caches.is_synced():
                return None
            return scheduler if scheduler._leads() and scheduler._caught_up else None

        async with living([instance]):
            scheduler = await until(
                ready, timeout_s=100.0, what="a scheduler that leads and knows the cluster"
            )
            assert scheduler is not None
            scheduler._caches.informers[0]._client._on_request = scheduler._metrics.on_request
            yield instance, scheduler, cluster


def create(cluster: DevCluster, prefix: str, n_pods: int) -> None:
    """Create the objects without faults."""
    for number in range(n_pods):
        pod = build.pod(f"{prefix}{number}", spec={"schedulerName": "ours"})
        del pod["metadata"]["uid"], pod["status"]
        cluster.store.create(POD, "default", pod)


def n_bound(cluster: DevCluster) -> int:
    return sum("nodeName" in pod["spec"] for pod in cluster.store.list(POD)[0])


def n_bindings(cluster: DevCluster) -> int:
    """Return the number of binds that the server has stored."""
    with cluster.store.history.reader(POD, 0) as reader:
        states = [
            (change.previous.obj["spec"], change.revision.obj["spec"])
            for change in reader.take(100_000)
            if change.previous is not None
        ]
    return sum(before.get("nodeName") != after.get("nodeName") for before, after in states)


def requests(instance: Instance, **labels: str) -> float:
    """Return the requests of its current life so far."""
    return metric(instance, "rest_client_requests_total", **labels)


def metric(instance: Instance, name: str, **labels: str) -> float:
    assert instance.life is not None
    return sum_of_samples(instance.life.scheduler._metrics.render().decode(), name, **labels)


@virtually
async def test_ten_minutes_without_a_server_cost_nothing_but_time() -> None:
    """Binds are unanswered when the server goes and pods wait when it returns: one life, every pod bound once."""
    async with running() as (instance, _, cluster):
        cluster.faults.add(Fault(action=Effect.LOSE_ANSWER, path="/binding$", times=5, delay_s=1.0))
        create(cluster, "before", 10)
        await asyncio.sleep(0.5)
        instance.wire.cut(refuse=True)
        before = requests(instance)
        await asyncio.sleep(TEN_MINUTES_S / 2)
        create(cluster, "meanwhile", 10)
        await asyncio.sleep(TEN_MINUTES_S / 2)
        n_tried = requests(instance) - before
        # Seven watches twice a minute, unanswered binds six times, events ten seconds apart.
        assert 100 < n_tried < 1000
        instance.wire.thaw()
        await asyncio.sleep(AFTERWARDS_S)
        assert n_bound(cluster) == 20
        assert n_bindings(cluster) == 20
        assert (instance.n_lives, instance.crashes) == (1, [])
        assert instance.life is not None
        await asyncio.sleep(BOOKMARKED_S)
        assert instance.life.scheduler._caches.is_fresh()


@virtually
async def test_a_leader_that_cannot_renew_for_ten_minutes_ends_and_comes_back_to_all_its_work() -> None:
    """It must not act as leader any more; the next life waits for the server and places every pod."""
    async with running(elected=True) as (instance, _, cluster):
        create(cluster, "before", 5)
        await asyncio.sleep(1.0)
        instance.wire.cut(refuse=True)
        await asyncio.sleep(TEN_MINUTES_S)
        assert instance.n_lives > 1
        create(cluster, "after", 5)
        instance.wire.thaw()
        await asyncio.sleep(AFTERWARDS_S)
        assert n_bound(cluster) == n_bindings(cluster) == 10
        assert instance.crashes == []


@virtually
async def test_ten_minutes_of_429_slow_it_down_and_cost_no_leadership() -> None:
    """All but the Lease is throttled: the leader stays, obeys retryAfter, and drops events."""
    async with running(elected=True) as (instance, _, cluster):
        cluster.faults.add(Fault(action=Effect.RESPOND, path=THE_REST, code=429, retry_after_s=10, times=-1))
        create(cluster, "p", 30)
        before = requests(instance, code="429")
        # The watch that is open brings the pods.
        await asyncio.sleep(TEN_MINUTES_S)
        n_throttled = requests(instance, code="429") - before
        # 30 pods, five tries each 10 s apart, then a backoff of 10 s, at most; and the watches.
        assert 30 < n_throttled < 3000
        assert instance.life is not None
        assert instance.life.scheduler._leads()
        assert instance.n_lives == 1
        cluster.faults.clear()
        await asyncio.sleep(AFTERWARDS_S)
        assert n_bound(cluster) == n_bindings(cluster) == 30
        assert metric(instance, "affinity_scheduler_events_dropped_total") > 0


@virtually
async def test_binds_that_are_throttled_slow_all_binds_down_and_silence_the_events() -> None:
    """Only binds are throttled: fewer are sent at a time, and events are dropped at once."""
    async with running() as (instance, _, cluster):
        cluster.faults.add(
            Fault(action=Effect.RESPOND, path="/binding$", code=429, retry_after_s=10, times=-1)
        )
        create(cluster, "p", 10)
        await asyncio.sleep(60.0)
        assert instance.life is not None
        loop = instance.life.scheduler._loop
        assert loop is not None
        assert loop._max_binding() == MIN_LIMIT
        assert metric(instance, "affinity_scheduler_events_dropped_total") > 0
        cluster.faults.clear()
        await asyncio.sleep(AFTERWARDS_S)
        assert n_bound(cluster) == 10
        create(cluster, "later", 100)
        await asyncio.sleep(AFTERWARDS_S)
        assert n_bound(cluster) == 110
        assert loop._max_binding() > MIN_LIMIT


@virtually
async def test_a_leader_from_the_start_has_nothing_to_catch_up_on() -> None:
    """Its caches are newer than its Lease: pods are placed although no further list is answered."""
    no_lists = Fault(action=Effect.RESPOND, verb="list", kind="pods", code=500, times=-1)
    async with running(no_lists, elected=True) as (_, _, cluster):
        create(cluster, "p", 3)
        await asyncio.sleep(AFTERWARDS_S)
        assert n_bound(cluster) == 3

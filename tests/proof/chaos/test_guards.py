"""Probes and recovery of an instance during long failures, on a virtual clock."""

from __future__ import annotations

import asyncio
import json

import aiohttp

from scheduler.daemon.kube.store import ObjectVersion
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.stimuli import NodeGone, NodeSeen
from scheduler.engine.state.audit import differences
from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from scheduler.sandbox.devcluster.kinds import NODE, POD
from tests.proof.chaos.run import virtually
from tests.proof.chaos.test_outages import create, metric, running
from tests.support import build
from tests.support.ports import free_port
from tests.support.waiting import until


@virtually
async def test_a_quiet_cluster_is_no_reason_to_worry() -> None:
    """With nothing but bookmarks for twenty minutes the caches stay fresh and the loop alive."""
    async with running() as (_, scheduler, _cluster):
        for _ in range(20):
            await asyncio.sleep(60.0)
            assert scheduler._caches.is_fresh()
            assert scheduler._makes_progress()


@virtually
async def test_a_watch_that_dies_without_a_word_is_noticed_within_little_more_than_a_minute() -> None:
    """A watch is open and silent for hours: changes are noticed once a bookmark is overdue."""
    async with running() as (_, scheduler, cluster):
        cluster.faults.add(Fault(action=Effect.STALL_STREAM, kind="nodes", delay_s=10_000.0))
        await asyncio.sleep(1.0)
        cluster.store.create(NODE, "", build.node("late"))
        await asyncio.sleep(80.0)
        assert scheduler._machine.state.node("late") is not None


@virtually
async def test_a_watch_that_does_not_show_a_bind_is_reopened_within_seconds() -> None:
    """The API server confirms a bind that the watch does not show."""
    async with running() as (_, scheduler, cluster):
        cluster.faults.add(Fault(action=Effect.DELAY, path=r"/binding$", delay_s=1.0))
        create(cluster, "p", 1)
        await asyncio.sleep(0.5)
        cluster.faults.add(Fault(action=Effect.STALL_STREAM, kind="pods", delay_s=10_000.0))
        await asyncio.sleep(5.0)
        assert scheduler._machine.n_unconfirmed == 1
        await asyncio.sleep(10.0)
        assert scheduler._machine.n_unconfirmed == 0
        (placed,) = scheduler._machine.state.placed.values()
        assert placed.pod.node_name


@virtually
async def test_a_late_watch_without_missing_binds_is_kept() -> None:
    """The watch is silent for long since nothing happens, then seconds late with a bind."""
    async with running() as (instance, scheduler, cluster):
        waiting = build.pod("p", spec={"schedulerName": "ours"}, node_selector={"late": "yes"})
        cluster.store.create(POD, "default", waiting)
        await asyncio.sleep(40.0)
        cluster.faults.add(Fault(action=Effect.DELAY, path=r"/binding$", delay_s=1.0))
        cluster.store.create(NODE, "", build.node("late", labels={"late": "yes"}))
        await asyncio.sleep(0.5)
        cluster.faults.add(Fault(action=Effect.STALL_STREAM, kind="pods", delay_s=8.0))
        await asyncio.sleep(7.0)
        assert scheduler._machine.n_unconfirmed == 1
        await asyncio.sleep(60.0)
        assert scheduler._machine.n_unconfirmed == 0
        assert metric(instance, "affinity_scheduler_watch_restarts_total") == 0


@virtually
async def test_a_new_leader_does_not_pause_between_the_pages_that_it_waits_for() -> None:
    """The audit does pause between pages, since nothing waits for it."""
    async with running() as (_, scheduler, cluster):
        for number in range(1_001):
            cluster.store.create(POD, "default", build.pod(f"p{number}", node="node-0001"))
        await asyncio.sleep(1.0)
        pods = next(one for one in scheduler._caches.informers if one.kind == "Pod")
        began_s = asyncio.get_running_loop().time()
        assert await pods.catch_up() == 0
        caught_up_s = asyncio.get_running_loop().time()
        assert caught_up_s - began_s < 0.1
        assert await pods.compare() == 0
        assert asyncio.get_running_loop().time() - caught_up_s >= 0.2


@virtually
async def test_an_instance_whose_counts_are_wrong_ends_and_returns_with_the_right_ones() -> None:
    """The recount finds wrong counts; the process reports them and ends, and the next one reads everything again."""
    async with running() as (instance, scheduler, _cluster):
        await asyncio.sleep(60.0)
        assert instance.n_lives == 1
        scheduler._machine.state.nodes._pod_count.own[0] += 1
        await asyncio.sleep(60.0)
        assert instance.n_lives == 2
        assert "1 counts differ from a recount" in instance.crashes[0]
        assert instance.machine is not None
        assert differences(instance.machine.state) == []


@virtually
async def test_an_event_that_no_watch_brought_is_found_by_a_list() -> None:
    """A lost addition, update and deletion are found and counted within a quarter of an hour."""
    async with running() as (instance, scheduler, cluster):
        nodes = next(one for one in scheduler._caches.informers if one.kind == "Node")
        store = nodes._reflector.list_watch.store

        def told_of(key: str) -> dict[str, bytes]:
            return store._shards[store.shard_of(key)].listed

        machine = scheduler._machine
        # Drop three events.
        machine.handle(NodeGone("node-0001"), 0.0)
        lost, late, left = "node-0001", "node-0002", "ghost"
        del told_of(lost)[lost]
        known = store.version_of(late)
        assert known is not None
        told_of(late)[late] = ObjectVersion(known.uid, "1").packed
        ghost = build.node("ghost")
        ghost["metadata"]["resourceVersion"] = "1"
        machine.handle(NodeSeen(decode_node(json.dumps(ghost).encode())), 0.0)
        told_of(left)[left] = ObjectVersion("ghost", "1").packed
        await asyncio.sleep(900.0)
        assert instance.n_lives == 1
        there = {node["metadata"]["name"] for node in cluster.store.list(NODE)[0]}
        assert {name for name in machine.state.nodes.row_by_name if machine.state.node(name)} == there
        metrics = scheduler._metrics.render().decode()
        assert 'affinity_scheduler_cache_divergences_total{kind="Node"} 3\n' in metrics


async def says(url: str) -> int:
    """Return the status of an endpoint; 0 if nothing listens."""
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status
    except aiohttp.ClientConnectionError:
        return 0


@virtually
async def test_liveness_falls_when_the_loop_is_stuck_although_http_answers() -> None:
    """The loop waits for ever while a pod is in the inbox."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    async with running(status_port=port) as (_, scheduler, cluster):
        # Name resolution runs in threads, for which the virtual clock does not wait.
        await until(lambda: says(f"{url}/livez"), lambda status: status == 200, timeout_s=300.0)

        async def never(timeout_s: float | None) -> None:
            del timeout_s
            await asyncio.Event().wait()

        scheduler._inbox.wait = never  # type: ignore[method-assign]  # what a bug in there would do
        for name in ("first", "second"):
            create(cluster, name, 1)
            await asyncio.sleep(5.0)
        await asyncio.sleep(100.0)
        assert await says(f"{url}/livez") == 200
        await asyncio.sleep(100.0)
        assert await says(f"{url}/livez") == 500
        assert await says(f"{url}/healthz") == 500


@virtually
async def test_readiness_falls_when_a_cache_hears_nothing_and_liveness_does_not() -> None:
    """A restart would not repair the server."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    async with running(status_port=port) as (instance, _, _cluster):
        await until(lambda: says(f"{url}/readyz"), lambda status: status == 200, timeout_s=300.0)
        instance.wire.freeze()
        await asyncio.sleep(100.0)
        assert await says(f"{url}/readyz") == 200
        await asyncio.sleep(200.0)
        assert await says(f"{url}/readyz") == 500
        assert await says(f"{url}/livez") == 200
        instance.wire.thaw()
        await asyncio.sleep(130.0)
        assert await says(f"{url}/readyz") == 200

"""What an instance says of itself when its surroundings fail for long; minutes pass in a second here."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from scheduler.devcluster.server import DevCluster
from scheduler.shell.app import Scheduler
from scheduler.state.audit import differences
from tests.chaos.instance import Instance
from tests.chaos.journal import Journal
from tests.chaos.virtual import run_virtually


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Instance, Scheduler, DevCluster]]:
    """An instance that has its caches, in a cluster where nothing happens."""
    async with DevCluster(nodes=2) as cluster:
        journal = Journal(asyncio.get_running_loop().time)
        instance = Instance(
            "one",
            scheduler_name="ours",
            elected=False,
            server_port=cluster.port,
            journal=journal,
            chance=random.Random(1),
        )
        living = asyncio.create_task(instance.live())
        await asyncio.sleep(1.0)
        assert instance.life is not None
        yield instance, instance.life.scheduler, cluster
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)


def test_a_quiet_cluster_is_no_reason_to_worry() -> None:
    """Bookmarks are all there is for an hour: the caches stay fresh, and the loop alive."""

    async def play() -> None:
        async with running() as (_, scheduler, _cluster):
            for _ in range(60):
                await asyncio.sleep(60.0)
                assert scheduler._is_fresh()
                assert scheduler._makes_progress()

    run_virtually(play())


def test_a_cache_that_hears_nothing_is_stale_until_it_does() -> None:
    """Connections stay open and bring nothing: after minutes readiness falls, and rises again with the first word."""

    async def play() -> None:
        async with running() as (instance, scheduler, _cluster):
            instance.wire.freeze()
            await asyncio.sleep(100.0)
            assert scheduler._is_fresh()
            await asyncio.sleep(200.0)
            assert not scheduler._is_fresh()
            assert scheduler._makes_progress(), "a restart would not bring the server back"
            instance.wire.thaw()
            await asyncio.sleep(130.0)
            assert scheduler._is_fresh()

    run_virtually(play())


def test_an_instance_whose_counts_are_wrong_ends_and_returns_with_the_right_ones() -> None:
    """The recount finds what no decision would: the process says so, and the next one reads everything anew."""

    async def play() -> None:
        async with running() as (instance, scheduler, _cluster):
            await asyncio.sleep(60.0)
            assert instance.n_lives == 1
            scheduler._machine.state.nodes.pod_count[0] += 1
            await asyncio.sleep(60.0)
            assert instance.n_lives == 2
            assert "1 counts differ from a recount" in instance.crashes[0]
            assert instance.machine is not None
            assert differences(instance.machine.state) == []

    run_virtually(play())

"""The record of unmatched pods in a ConfigMap, read by another process with another monotonic clock."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.metrics.logs import Logger, configure
from scheduler.errors import ApiError
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import CONFIG_MAP
from scheduler.tools.enforcer import grace_record
from scheduler.tools.enforcer.grace_record import MAX_PODS, REFRESH_S, STALE_S, GraceRecord
from tests.support.scripted_server import anonymous

pytestmark = pytest.mark.asyncio

NAME = "affinity-scheduler-enforcer"


@dataclass
class Clocks:
    """Seconds since the epoch and of a monotonic clock, advanced by the tests."""

    epoch_s: float = 1_700_000_000.0
    now_s: float = 50.0

    def move(self, seconds: float) -> None:
        self.epoch_s += seconds
        self.now_s += seconds


@dataclass
class Scene:
    server: DevCluster
    client: KubeClient
    clocks: Clocks
    log: Logger
    written: io.StringIO

    def record(self, clocks: Clocks | None = None) -> GraceRecord:
        """Return the record of one process."""
        used = clocks or self.clocks
        return GraceRecord(
            self.client,
            "kube-system",
            NAME,
            log=self.log,
            clock_s=lambda: used.epoch_s,
            now_s=lambda: used.now_s,
        )

    def version(self) -> str:
        (stored,) = (
            each
            for each in self.server.store.list(CONFIG_MAP, "kube-system")[0]
            if each["metadata"]["name"] == NAME
        )
        return str(stored["metadata"]["resourceVersion"])


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    written = io.StringIO()
    log = configure(verbosity=2, form="text", stream=written)
    async with DevCluster() as server, KubeClient(anonymous(server.url)) as client:
        yield Scene(server, client, Clocks(), log, written)


async def test_a_successor_reads_the_times_on_its_own_clock() -> None:
    async with scene() as given:
        await given.record().save({"a": 20.0, "b": 49.5})
        successor = Clocks(epoch_s=given.clocks.epoch_s + 10.0, now_s=7000.0)
        assert await given.record(successor).load() == {"a": 6960.0, "b": 6989.5}


async def test_an_unchanged_record_is_not_rewritten() -> None:
    """Except now and then, so that a record with pods does not become stale."""
    async with scene() as given:
        record = given.record()
        await record.save({})
        assert await given.record().load() == {}
        await record.save({"a": 20.0})
        version = given.version()
        given.clocks.move(REFRESH_S - 1.0)
        await record.save({"a": 20.0})
        assert given.version() == version
        given.clocks.move(1.0)
        await record.save({"a": 20.0})
        assert given.version() != version


async def test_a_predecessors_record_is_overwritten_even_if_no_pod_is_unmatched() -> None:
    """Otherwise a pod that loses its match later could count as unmatched since then."""
    async with scene() as given:
        await given.record().save({"a": 20.0})
        successor = given.record()
        await successor.load()
        await successor.save({})
        assert await given.record().load() == {}


async def test_a_stale_record_is_ignored() -> None:
    async with scene() as given:
        await given.record().save({"a": 20.0})
        given.clocks.move(STALE_S + 1.0)
        assert await given.record().load() == {}


async def test_a_clock_that_was_set_back_yields_no_time_in_the_future() -> None:
    async with scene() as given:
        await given.record().save({"a": 20.0})
        given.clocks.epoch_s -= 1000.0
        assert await given.record().load() == {"a": given.clocks.now_s}


async def test_after_a_conflict_the_record_is_overwritten() -> None:
    async with scene() as given:
        ours, theirs = given.record(), given.record()
        await ours.save({"a": 20.0})
        await theirs.load()
        await theirs.save({"b": 30.0})
        await ours.save({"a": 20.0, "c": 40.0})
        assert await given.record().load() == {"a": 20.0, "c": 40.0}


async def test_a_paused_former_leader_does_not_overwrite_the_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grace_record, "PERIOD_S", 0.0)
    async with scene() as given:
        paused, leader = given.record(), given.record()
        await paused.save({"a": 20.0})
        await leader.load()
        await leader.save({"b": 30.0})
        given.clocks.move(REFRESH_S)
        asked = asyncio.Event()

        def leads() -> bool:
            asked.set()
            return False

        keeping = asyncio.create_task(paused.save_periodically(lambda: {"a": 20.0}, leads))
        await asked.wait()
        keeping.cancel()
        assert await given.record().load() == {"b": 30.0}


async def test_a_deleted_record_is_recreated() -> None:
    async with scene() as given:
        record = given.record()
        await record.save({"a": 20.0})
        given.server.store.delete(CONFIG_MAP, "kube-system", NAME)
        await record.save({"b": 20.0})
        assert await given.record().load() == {"b": 20.0}


async def test_it_is_bounded_and_keeps_the_pods_unmatched_for_longest() -> None:
    async with scene() as given:
        await given.record().save({f"p{number}": float(-number) for number in range(MAX_PODS + 10)})
        kept = await given.record().load()
        assert len(kept) == MAX_PODS
        assert "p0" not in kept
        assert f"p{MAX_PODS + 9}" in kept


async def test_an_unreadable_record_is_logged_and_ignored() -> None:
    async with scene() as given:
        broken = {"metadata": {"name": NAME}, "data": {"lost-since.json": '{"savedAt": "yesterday"}'}}
        given.server.store.create(
            CONFIG_MAP, "kube-system", {"apiVersion": "v1", "kind": "ConfigMap", **broken}
        )
        assert await given.record().load() == {}
        assert "Unreadable record ignored" in given.written.getvalue()


async def test_a_failed_write_is_logged_and_retried() -> None:
    async with scene() as given:
        record = given.record()
        await given.server.stop()
        await record.save({"a": 20.0})
        assert "Failed to write the record" in given.written.getvalue()
        with pytest.raises(ApiError):
            await record.load()
        await given.server.start()
        await record.save({"a": 20.0})
        assert await given.record().load() == {"a": 20.0}

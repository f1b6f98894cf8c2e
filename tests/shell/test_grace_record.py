"""The record of lost matches: kept in a ConfigMap, read by a successor whose clock began elsewhere."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from scheduler.devcluster.kinds import CONFIG_MAP
from scheduler.devcluster.server import DevCluster
from scheduler.errors import ApiError
from scheduler.kube.client import KubeClient
from scheduler.observe.logs import Logger, configure
from scheduler.shell import grace_record
from scheduler.shell.grace_record import CONFIRM_S, MAX_PODS, STALE_S, GraceRecord
from tests.kube.scripted import anonymous

NAME = "affinity-scheduler-enforcer"


@dataclass
class Clocks:
    """Seconds since the epoch and of a monotonic clock, moved by hand."""

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
        """The record as one process has it."""
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


@pytest.mark.asyncio
async def test_a_successor_reads_the_times_on_its_own_clock() -> None:
    async with scene() as given:
        await given.record().save({"a": 20.0, "b": 49.5})
        successor = Clocks(epoch_s=given.clocks.epoch_s + 10.0, now_s=7000.0)
        assert await given.record(successor).load() == {"a": 6960.0, "b": 6989.5}


@pytest.mark.asyncio
async def test_nothing_is_written_while_nothing_changes() -> None:
    """But a record with pods in it is confirmed now and then, so that it is not taken for stale."""
    async with scene() as given:
        record = given.record()
        await record.save({})
        assert await given.record().load() == {}
        await record.save({"a": 20.0})
        version = given.version()
        given.clocks.move(CONFIRM_S - 1.0)
        await record.save({"a": 20.0})
        assert given.version() == version
        given.clocks.move(1.0)
        await record.save({"a": 20.0})
        assert given.version() != version


@pytest.mark.asyncio
async def test_what_a_predecessor_wrote_is_written_over_although_nobody_waits_any_more() -> None:
    """Else a pod that loses its match again later could be taken for one that has waited since then."""
    async with scene() as given:
        await given.record().save({"a": 20.0})
        successor = given.record()
        await successor.load()
        await successor.save({})
        assert await given.record().load() == {}


@pytest.mark.asyncio
async def test_a_stale_record_is_ignored() -> None:
    async with scene() as given:
        await given.record().save({"a": 20.0})
        given.clocks.move(STALE_S + 1.0)
        assert await given.record().load() == {}


@pytest.mark.asyncio
async def test_a_clock_that_was_set_back_lets_nobody_wait_in_the_future() -> None:
    async with scene() as given:
        await given.record().save({"a": 20.0})
        given.clocks.epoch_s -= 1000.0
        assert await given.record().load() == {"a": given.clocks.now_s}


@pytest.mark.asyncio
async def test_who_was_overtaken_by_a_predecessor_writes_over_it() -> None:
    async with scene() as given:
        ours, theirs = given.record(), given.record()
        await ours.save({"a": 20.0})
        await theirs.load()
        await theirs.save({"b": 30.0})
        await ours.save({"a": 20.0, "c": 40.0})
        assert await given.record().load() == {"a": 20.0, "c": 40.0}


@pytest.mark.asyncio
async def test_who_was_paused_until_another_leads_does_not_write_over_its_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grace_record, "PERIOD_S", 0.0)
    async with scene() as given:
        paused, leader = given.record(), given.record()
        await paused.save({"a": 20.0})
        await leader.load()
        await leader.save({"b": 30.0})
        given.clocks.move(CONFIRM_S)
        asked = asyncio.Event()

        def leads() -> bool:
            asked.set()
            return False

        keeping = asyncio.create_task(paused.keep(lambda: {"a": 20.0}, leads))
        await asked.wait()
        keeping.cancel()
        assert await given.record().load() == {"b": 30.0}


@pytest.mark.asyncio
async def test_a_deleted_record_is_made_again() -> None:
    async with scene() as given:
        record = given.record()
        await record.save({"a": 20.0})
        given.server.store.delete(CONFIG_MAP, "kube-system", NAME)
        await record.save({"b": 20.0})
        assert await given.record().load() == {"b": 20.0}


@pytest.mark.asyncio
async def test_it_is_bounded_and_keeps_those_that_wait_longest() -> None:
    async with scene() as given:
        await given.record().save({f"p{number}": float(-number) for number in range(MAX_PODS + 10)})
        kept = await given.record().load()
        assert len(kept) == MAX_PODS
        assert "p0" not in kept
        assert f"p{MAX_PODS + 9}" in kept


@pytest.mark.asyncio
async def test_an_unreadable_record_is_told_and_counts_as_none() -> None:
    async with scene() as given:
        broken = {"metadata": {"name": NAME}, "data": {"lost-since.json": '{"savedAt": "yesterday"}'}}
        given.server.store.create(
            CONFIG_MAP, "kube-system", {"apiVersion": "v1", "kind": "ConfigMap", **broken}
        )
        assert await given.record().load() == {}
        assert "Unreadable record ignored" in given.written.getvalue()


@pytest.mark.asyncio
async def test_a_server_that_says_no_is_told_and_asked_again() -> None:
    async with scene() as given:
        record = given.record()
        await given.server.stop()
        await record.save({"a": 20.0})
        assert "Failed to record" in given.written.getvalue()
        with pytest.raises(ApiError):
            await record.load()
        await given.server.start()
        await record.save({"a": 20.0})
        assert await given.record().load() == {"a": 20.0}

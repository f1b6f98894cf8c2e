"""The writers execute every instruction; every bind has exactly one result, or is abandoned by name."""

import asyncio
import io
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast
from unittest import mock

import pytest

from scheduler.daemon.loop.connection import Connection
from scheduler.daemon.metrics.logs import configure
from scheduler.daemon.metrics.metrics import Metrics
from scheduler.daemon.writes.inbox import Inbox
from scheduler.daemon.writes.victims import VictimEvictor
from scheduler.daemon.writes.writers import Writers
from scheduler.engine.model.instructions import (
    Bind,
    EmitEvent,
    EvictVictim,
    PatchCondition,
    WriteReservation,
)
from scheduler.engine.model.object_writes import NodeSelection
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import (
    BindDone,
    BindFailed,
    EvictionEnded,
    ReservationWritten,
    Stimulus,
    VictimFate,
)
from scheduler.engine.model.volumes import PersistentVolumeClaim
from tests.daemon.writes.answers import refusal
from tests.support.driving import Driver
from tests.support.scripted_server import Script, client_of, held, reply, scripted, silence
from tests.support.storage_objects import claim
from tests.support.volume_server import VolumeServer


@dataclass
class Bench:
    writers: Writers
    inbox: Inbox
    script: Script

    async def answer(self) -> Stimulus:
        """Return the next result."""
        while not (taken := self.inbox.take(1)):
            await self.inbox.wait(None)
        return taken[0]


def _ignore(_told: object) -> None:
    return None


@asynccontextmanager
async def bench(*answers: object, stream: io.StringIO | None = None) -> AsyncIterator[Bench]:
    inbox, background = Inbox(), list[asyncio.Task[None]]()
    log = configure(verbosity=2, form="text", stream=stream)
    async with (
        asyncio.timeout(5.0),
        scripted(*answers) as script,
        client_of(script) as client,
        asyncio.TaskGroup() as group,
    ):
        writers = Writers(
            cast(Connection, SimpleNamespace(client=client, log=log)),
            Driver().machine,
            inbox,
            Metrics(),
            group,
            leads=lambda: True,
            on_attempt=_ignore,
            on_evicted=_ignore,
            clock_s=lambda: 0.0,
            now_s=time.monotonic,
        )
        writers.start(lambda name, task: background.append(group.create_task(task, name=name)))
        yield Bench(writers, inbox, script)
        for task in background:
            task.cancel()


def waiting() -> Pod:
    return Driver().pod("p")


UID = waiting().uid


RESULTS = {
    "bound": ([reply(status=201)], BindDone(UID)),
    "refused": ([refusal(403, "Forbidden", "no right")], BindFailed(UID, "no right")),
}


@pytest.mark.parametrize(("answers", "stimulus"), RESULTS.values(), ids=RESULTS)
async def test_a_bind_has_one_result(answers: list[object], stimulus: Stimulus) -> None:
    """With the text of upstream's condition."""
    async with bench(*answers) as made:
        made.writers.execute(Bind(waiting(), "a"))
        assert await made.answer() == stimulus
        assert len(made.inbox) == 0


async def test_abandoned_binds_are_named_and_have_no_result() -> None:
    """The process can end although the server does not answer."""
    async with bench(silence()) as made:
        made.writers.execute(Bind(waiting(), "a"))
        await made.script.until_received(1)
        assert made.writers.abandon() == ["default/p"]
    assert len(made.inbox) == 0


async def test_a_bind_waits_for_the_condition_in_flight() -> None:
    """PodScheduled=False is never written after the pod got its node."""
    release = asyncio.Event()
    async with bench(held(release, reply()), reply(status=201)) as made:
        made.writers.execute(PatchCondition(waiting(), "Unschedulable", "m"))
        await made.script.until_received(1)
        made.writers.execute(Bind(waiting(), "a"))
        release.set()
        assert await made.answer() == BindDone(UID)
    assert [one.method for one in made.script.received] == ["PATCH", "POST"]


def reserving(*, nominates: bool = True) -> WriteReservation:
    """Return the reservation of a pod on node a: the node is selected for its claim."""
    stored = VolumeServer().apply(claim("c", "made"))
    assert isinstance(stored, PersistentVolumeClaim)
    return WriteReservation(waiting(), "a", (NodeSelection(stored, "a"),), 1, nominates)


WRITTEN = json.dumps({"metadata": {"name": "c", "resourceVersion": "9"}}).encode()


def statuses(script: Script) -> list[object]:
    """Return the status that each request patches; None of a claim's."""
    return [json.loads(one.body).get("status") for one in script.received]


@pytest.mark.parametrize("answer", [reply(), refusal(403)], ids=["written", "refused"])
async def test_a_pod_is_nominated_before_its_claims_are_written(answer: object) -> None:
    """As upstream, a nomination that cannot be written holds nothing up."""
    async with bench(answer, reply(WRITTEN)) as made:
        made.writers.execute(reserving())
        assert await made.answer() == ReservationWritten(UID, ("9",), number=1)
    assert statuses(made.script) == [{"nominatedNodeName": "a"}, None]


async def test_a_pod_that_need_not_be_nominated_costs_no_patch() -> None:
    async with bench(reply(WRITTEN)) as made:
        made.writers.execute(reserving(nominates=False))
        await made.answer()
    assert statuses(made.script) == [None]


async def test_the_condition_that_waits_is_written_with_the_nomination_and_before_those_of_other_pods() -> (
    None
):
    release = asyncio.Event()
    others = [Driver().pod(f"other-{number}") for number in range(9)]
    answers = [held(release, reply()), held(release, reply()), reply(), reply(WRITTEN), *[reply()] * 7]
    async with bench(*answers) as made:
        for pod in (*others, waiting()):
            made.writers.execute(PatchCondition(pod, "Unschedulable", "m"))
        await made.script.until_received(2)
        made.writers.execute(reserving())
        await made.answer()
        release.set()
    status = statuses(made.script)[2]
    assert isinstance(status, dict)
    assert (status["nominatedNodeName"], status["conditions"][0]["message"]) == ("a", "m")


async def test_a_nomination_that_is_over_before_it_is_sent_is_not_written() -> None:
    """The pod's wait has failed meanwhile, which ends the nomination."""
    release = asyncio.Event()
    async with bench(held(release, reply()), reply(), reply(WRITTEN)) as made:
        made.writers.execute(PatchCondition(waiting(), "Unschedulable", "m"))
        await made.script.until_received(1)
        made.writers.execute(reserving())
        made.writers.execute(PatchCondition(waiting(), "SchedulerError", "failed", ""))
        release.set()
        await made.answer()
    nominations = [
        status.get("nominatedNodeName", "-") for status in statuses(made.script) if isinstance(status, dict)
    ]
    assert nominations == ["-", None]


async def test_events_are_written_when_no_bind_is_in_flight() -> None:
    release = asyncio.Event()
    async with bench(held(release, reply(status=201)), reply(status=201)) as made:
        made.writers.execute(Bind(waiting(), "a"))
        made.writers.execute(EmitEvent(waiting(), "Normal", "Scheduled", "Binding", "why"))
        await made.script.until_received(1)
        for _ in range(200):
            await asyncio.sleep(0)
        assert [one.path.rpartition("/")[2] for one in made.script.received] == ["binding"]
        release.set()
        await made.script.until_received(2)
    assert [one.path.rpartition("/")[2] for one in made.script.received] == ["binding", "events"]


FATES = {
    VictimFate.DELETED: '"Preemptor Pod preempted victim Pod" preemptor="default/high" victim="default/low" node="n"',
    VictimFate.FAILED: '"Failed to evict a pod for one of higher priority" pod="default/low" err="403 Forbidden: no"',
    VictimFate.SPARED: "",
}


@pytest.mark.parametrize(("fate", "line"), FATES.items())
async def test_evictions_that_delete_a_pod_or_fail_are_logged(fate: VictimFate, line: str) -> None:
    high, low = Driver().pod("high"), Driver().pod("low", node="n")
    ended = fate, "403 Forbidden: no" if fate is VictimFate.FAILED else ""
    log = io.StringIO()
    async with bench(stream=log) as made:
        with mock.patch.object(VictimEvictor, "evict", mock.AsyncMock(return_value=ended)):
            made.writers.execute(EvictVictim(high, low))
            assert await made.answer() == EvictionEnded(high.uid, low.uid, fate)
    assert line in log.getvalue()
    assert bool(line) == bool(log.getvalue())


class _Evictions:
    def __init__(self, made: Bench) -> None:
        self._made, self.running = made, dict[str, asyncio.Event]()

    async def ask(self, name: str, *, priority: int = 0, number: int = 0) -> None:
        high, low = Driver().pod("high", priority=priority), Driver().pod(name, node="n")
        self._made.writers.execute(EvictVictim(high, low, number))
        await _idle()

    async def end(self, name: str) -> None:
        self.running[name].set()
        await _idle()

    async def evict(self, instruction: EvictVictim) -> tuple[VictimFate, str]:
        name = instruction.victim.name
        ends = self.running[name] = asyncio.Event()
        await ends.wait()
        del self.running[name]
        return VictimFate.SPARED, ""


async def _idle() -> None:
    """Let all tasks run as far as they can: none waits for anything but another one."""
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def evicting(limit: int, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[_Evictions]:
    monkeypatch.setattr("scheduler.daemon.writes.writers.MAX_EVICTIONS", limit)
    async with bench() as made:
        evictions = _Evictions(made)
        monkeypatch.setattr(VictimEvictor, "evict", lambda _, instruction: evictions.evict(instruction))
        yield evictions
        made.writers.abandon()


async def test_the_most_important_pod_evicts_first_then_the_one_decided_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Victims of one pod go in the order of their arrival."""
    async with evicting(1, monkeypatch) as evictions:
        await evictions.ask("first")
        await evictions.ask("decided-late", number=3)
        await evictions.ask("decided-early", number=2)
        await evictions.ask("its-second-victim", number=2)
        await evictions.ask("important", priority=1, number=4)
        for name in ("first", "important", "decided-early", "its-second-victim", "decided-late"):
            assert list(evictions.running) == [name]
            await evictions.end(name)


async def test_no_more_evictions_run_than_the_limit_and_a_freed_place_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with evicting(2, monkeypatch) as evictions:
        for name in ("a", "b", "c", "d"):
            await evictions.ask(name)
        assert list(evictions.running) == ["a", "b"]
        await evictions.end("a")
        await evictions.end("b")
        assert list(evictions.running) == ["c", "d"]
        await evictions.end("c")
        await evictions.end("d")
        for name in ("e", "f", "g"):
            await evictions.ask(name)
        assert list(evictions.running) == ["e", "f"]


async def test_evictions_whose_turn_has_not_come_do_not_begin_once_the_others_are_abandoned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with evicting(1, monkeypatch) as evictions:
        await evictions.ask("a")
        await evictions.ask("b")
        assert evictions._made.writers.abandon() == ["default/a"]
        await _idle()
        assert list(evictions.running) == ["a"], "the cancelled one, and no other"

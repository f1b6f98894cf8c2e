"""The outbox executes every instruction; every bind has exactly one result, or is abandoned by name."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from scheduler.daemon.metrics.logs import configure
from scheduler.daemon.writes.binder import Binder
from scheduler.daemon.writes.conditions import ConditionWriter
from scheduler.daemon.writes.inbox import Inbox
from scheduler.daemon.writes.outbox import ClusterOutbox
from scheduler.daemon.writes.pod_group_status import PodGroupStatusWriter
from scheduler.daemon.writes.recorder import EventRecorder
from scheduler.daemon.writes.reservation_writer import ReservationWriter
from scheduler.daemon.writes.victims import VictimEvictor
from scheduler.engine.model.instructions import (
    Attempted,
    Bind,
    EmitEvent,
    Instruction,
    PatchCondition,
    ProceedWithEviction,
    WriteReservation,
)
from scheduler.engine.model.object_writes import NodeSelection
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import BindDone, BindFailed, EvictionDue, ReservationWritten, Stimulus
from scheduler.engine.model.volumes import PersistentVolumeClaim
from tests.support.api_bodies import body
from tests.support.driving import NAME, Driver
from tests.support.scripted_server import FakeSleep, Script, client_of, held, reply, scripted, silence
from tests.support.storage_objects import claim
from tests.support.volume_server import VolumeServer

pytestmark = pytest.mark.asyncio


@dataclass
class Bench:
    """An outbox with a scripted server, and its results."""

    outbox: ClusterOutbox
    inbox: Inbox
    attempts: list[Attempted]
    evicted: list[Pod]

    async def answer(self) -> Stimulus:
        """Return the next result."""
        async with asyncio.timeout(5.0):
            while not (taken := self.inbox.take(1)):
                await self.inbox.wait(None)
        return taken[0]


async def _proceed(due: EvictionDue) -> list[Instruction]:
    return [ProceedWithEviction(due.preemptor_uid, due.victim_uid)]


@asynccontextmanager
async def bench(script: Script) -> AsyncIterator[Bench]:
    """Run the outbox with everything that it needs."""
    inbox, attempts, evicted = Inbox(), list[Attempted](), list[Pod]()
    log = configure(verbosity=0, form="text")
    async with client_of(script) as client, asyncio.TaskGroup() as group:
        binder = Binder(client, sleep=FakeSleep())
        conditions = ConditionWriter(client, clock_s=lambda: 0.0, log=log)
        recorder = EventRecorder(client, sleep=FakeSleep())
        outbox = ClusterOutbox(
            binds=group,
            binder=binder,
            reservations=ReservationWriter(client, pause=binder.pause),
            victims=VictimEvictor(
                client,
                clock_s=lambda: 0.0,
                pause=binder.pause,
                put=_proceed,
            ),
            conditions=conditions,
            groups=PodGroupStatusWriter(client, clock_s=lambda: 0.0, log=log, may_write=lambda: True),
            recorder=recorder,
            inbox=inbox,
            hostname="host",
            on_attempt=attempts.append,
            on_evicted=evicted.append,
        )
        background = [group.create_task(conditions.run()), group.create_task(recorder.run())]
        yield Bench(outbox, inbox, attempts, evicted)
        for task in background:
            task.cancel()


def waiting() -> Pod:
    """Return a pending pod."""
    return Driver().pod("p")


def on(node_name: str, uid: str) -> object:
    """Return a response with the pod on this node."""
    return reply(
        json.dumps({"metadata": {"name": "p", "uid": uid}, "spec": {"nodeName": node_name}}).encode()
    )


UID = waiting().uid


RESULTS = {
    "bound": ([reply(status=201)], BindDone(UID)),
    "refused": ([reply(body(403, "Forbidden", "no right"), status=403)], BindFailed(UID, "no right")),
    "gone": ([reply(body(404, "NotFound", "x"), status=404)], BindFailed(UID, 'pods "p" not found')),
    "bound elsewhere": (
        [reply(body(409, "Conflict", "x"), status=409), on("b", UID)],
        BindFailed(
            UID,
            'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "b"',
        ),
    ),
}


@pytest.mark.parametrize(("answers", "stimulus"), RESULTS.values(), ids=RESULTS)
async def test_a_bind_has_one_result(answers: list[object], stimulus: Stimulus) -> None:
    """With the text of upstream's condition."""
    async with scripted(*answers) as script, bench(script) as made:
        made.outbox.execute(Bind(waiting(), "a"))
        assert await made.answer() == stimulus
        assert len(made.inbox) == 0


async def test_abandoned_binds_are_named_and_have_no_result() -> None:
    """The process can end although the server does not answer."""
    async with scripted(silence()) as script:
        async with asyncio.timeout(5.0):
            async with bench(script) as made:
                made.outbox.execute(Bind(waiting(), "a"))
                await script.until_received(1)
                assert made.outbox.abandon_binds() == ["default/p"]
        assert len(made.inbox) == 0


async def test_a_bind_waits_for_the_condition_in_flight() -> None:
    """PodScheduled=False is never written after the pod got its node."""
    release = asyncio.Event()

    async with scripted(held(release, reply()), reply(status=201)) as script, bench(script) as made:
        async with asyncio.timeout(5.0):
            made.outbox.execute(PatchCondition(waiting(), "Unschedulable", "m"))
            await script.until_received(1)
            made.outbox.execute(Bind(waiting(), "a"))
            release.set()
            assert await made.answer() == BindDone(UID)
    assert [one.method for one in script.received] == ["PATCH", "POST"]


def reserving(*, nominates: bool = True) -> WriteReservation:
    """Return the reservation of a pod on node a: the node is selected for its claim."""
    stored = VolumeServer().apply(claim("c", "made"))
    assert isinstance(stored, PersistentVolumeClaim)
    return WriteReservation(waiting(), "a", (NodeSelection(stored, "a"),), 1, nominates)


WRITTEN = json.dumps({"metadata": {"name": "c", "resourceVersion": "9"}}).encode()


def statuses(script: Script) -> list[object]:
    """Return the status that each request patches; None of a claim's."""
    return [json.loads(one.body).get("status") for one in script.received]


@pytest.mark.parametrize(
    "answer", [reply(), reply(body(403, "Forbidden", "no right"), status=403)], ids=["written", "refused"]
)
async def test_a_pod_is_nominated_before_its_claims_are_written(answer: object) -> None:
    """As upstream, a nomination that cannot be written holds nothing up."""
    async with scripted(answer, reply(WRITTEN)) as script, bench(script) as made:
        made.outbox.execute(reserving())
        assert await made.answer() == ReservationWritten(UID, ("9",), number=1)
    assert statuses(script) == [{"nominatedNodeName": "a"}, None]


async def test_a_pod_that_need_not_be_nominated_costs_no_patch() -> None:
    async with scripted(reply(WRITTEN)) as script, bench(script) as made:
        made.outbox.execute(reserving(nominates=False))
        await made.answer()
    assert statuses(script) == [None]


async def test_the_condition_that_waits_is_written_with_the_nomination_and_before_those_of_other_pods() -> (
    None
):
    release = asyncio.Event()
    others = [Driver().pod(f"other-{number}") for number in range(9)]
    answers = [held(release, reply()), held(release, reply()), reply(), reply(WRITTEN), *[reply()] * 7]
    async with scripted(*answers) as script, bench(script) as made:
        async with asyncio.timeout(5.0):
            for pod in (*others, waiting()):
                made.outbox.execute(PatchCondition(pod, "Unschedulable", "m"))
            await script.until_received(2)
            made.outbox.execute(reserving())
            await made.answer()
            release.set()
    status = statuses(script)[2]
    assert isinstance(status, dict)
    assert (status["nominatedNodeName"], status["conditions"][0]["message"]) == ("a", "m")


async def test_a_nomination_that_is_over_before_it_is_sent_is_not_written() -> None:
    """The pod's wait has failed meanwhile, which ends the nomination."""
    release = asyncio.Event()
    async with scripted(held(release, reply()), reply(), reply(WRITTEN)) as script, bench(script) as made:
        async with asyncio.timeout(5.0):
            made.outbox.execute(PatchCondition(waiting(), "Unschedulable", "m"))
            await script.until_received(1)
            made.outbox.execute(reserving())
            made.outbox.execute(PatchCondition(waiting(), "SchedulerError", "failed", ""))
            release.set()
            await made.answer()
    nominations = [
        status.get("nominatedNodeName", "-") for status in statuses(script) if isinstance(status, dict)
    ]
    assert nominations == ["-", None]


async def test_events_are_written_when_no_bind_is_in_flight() -> None:
    """The bind matters more."""
    release = asyncio.Event()

    async with scripted(held(release, reply(status=201)), reply(status=201)) as script, bench(script) as made:
        async with asyncio.timeout(5.0):
            made.outbox.execute(Bind(waiting(), "a"))
            made.outbox.execute(EmitEvent(waiting(), "Normal", "Scheduled", "Binding", "why"))
            await script.until_received(1)
            for _ in range(200):
                await asyncio.sleep(0)
            assert [one.path.rpartition("/")[2] for one in script.received] == ["binding"]
            release.set()
            await script.until_received(2)
    assert [one.path.rpartition("/")[2] for one in script.received] == ["binding", "events"]


async def test_an_event_names_its_profile_and_host() -> None:
    """reportingController is the pod's schedulerName."""
    async with scripted(reply(status=201)) as script, bench(script) as made:
        made.outbox.execute(EmitEvent(waiting(), "Warning", "FailedScheduling", "Scheduling", "why"))
        await script.until_received(1)
    event = json.loads(script.received[0].body)
    assert (event["reportingController"], event["reportingInstance"]) == (NAME, f"{NAME}-host")
    assert (event["regarding"]["uid"], event["regarding"]["apiVersion"], event["note"]) == (UID, "v1", "why")

"""The event recorder: series, order, and precedence of binds."""

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from scheduler.daemon.kube.event_series import (
    FINISH_S,
    EventKey,
    EventSeries,
    ObjectReference,
    bounded_text,
)
from scheduler.daemon.kube.requests import micro_time
from scheduler.daemon.writes.recorder import (
    DEFER_AFTER_BIND_S,
    DEFER_S,
    QUEUE_LIMIT,
    WORKERS,
    EventRecorder,
)
from scheduler.errors import Unreachable
from tests.daemon.writes.answers import refusal
from tests.support.scripted_server import FakeSleep, client_of, held, lost, reply, scripted
from tests.support.waiting import TIMEOUT_S

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


def key_of(name="p", rv="5", *, uid="u", namespace="default", **fields):
    regarding = ObjectReference("Pod", namespace, name, uid, resource_version=rv)
    defaults = {
        "type": "Warning",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "reporting_controller": "affinity-scheduler",
        "reporting_instance": "affinity-scheduler-host",
    }
    return EventKey(regarding=regarding, **(defaults | fields))


def observed(series, key, note, epoch_s, now_s=None):
    write = series.observe(key, note, epoch_s, epoch_s if now_s is None else now_s)
    assert write is not None
    return write


def wire(write):
    return write.request.method, write.request.path, json.loads(write.request.body)


def test_the_first_occurrence_creates_an_event():
    """With all fields that events.k8s.io/v1 requires."""
    write = observed(EventSeries(), key_of(), "0/1 nodes are available.", 1.5)
    assert wire(write) == (
        "POST",
        EVENTS,
        {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"p.{1_500_000_000:x}", "namespace": "default"},
            "eventTime": "1970-01-01T00:00:01.500000Z",
            "reportingController": "affinity-scheduler",
            "reportingInstance": "affinity-scheduler-host",
            "action": "Scheduling",
            "reason": "FailedScheduling",
            "regarding": {
                "kind": "Pod",
                "namespace": "default",
                "name": "p",
                "uid": "u",
                "apiVersion": "v1",
                "resourceVersion": "5",
            },
            "note": "0/1 nodes are available.",
            "type": "Warning",
        },
    )
    assert write.on_missing is None


def test_the_second_patches_a_series_and_further_ones_are_only_counted():
    series = EventSeries()
    created = observed(series, key_of(), "first", 1.0)
    patched = observed(series, key_of(), "second", 2.0)
    name = json.loads(created.request.body)["metadata"]["name"]
    counted = {"count": 2, "lastObservedTime": "1970-01-01T00:00:02.000000Z"}
    assert wire(patched) == ("PATCH", f"{EVENTS}/{name}", {"series": counted})
    assert patched.on_missing is not None
    again = json.loads(patched.on_missing.body)
    assert (patched.on_missing.method, again["note"], again["series"]) == ("POST", "first", counted)
    assert [series.observe(key_of(), "more", 3.0 + i, 3.0 + i) for i in range(5)] == [None] * 5
    assert [json.loads(write.request.body)["series"]["count"] for write in series.refresh()] == [7]


#: A second event, and whether it is one of the first one's series.
SECOND = {
    "another version of the pod, whose condition is written between two failures": (key_of(rv="6"), True),
    "another pod": (key_of(name="q"), False),
    "another type": (key_of(type="Normal"), False),
    "another reason": (key_of(reason="Scheduled"), False),
    "another action": (key_of(action="Binding"), False),
    "another profile": (key_of(reporting_controller="b"), False),
    "another related object": (key_of(related=ObjectReference("Node", "", "n", "v")), False),
}


@pytest.mark.parametrize(("second", "is_equal"), SECOND.values(), ids=SECOND)
def test_a_difference_in_more_than_the_note_and_the_version_is_another_event(second, is_equal):
    series = EventSeries()
    writes = [observed(series, key, "note", 1.0) for key in (key_of(), second)]
    assert [write.request.method for write in writes] == ["POST", "PATCH" if is_equal else "POST"]
    assert len({json.loads(write.request.body).get("metadata", {}).get("name") for write in writes}) == 2


def test_idle_events_are_forgotten_and_idle_series_patched_a_last_time():
    series = EventSeries()
    for key, times in (
        (key_of("single"), [0.0]),
        (key_of("idle"), [0.0, 1.0, 2.0]),
        (key_of("busy"), [0.0, 300.0]),
    ):
        for at_s in times:
            series.observe(key, "note", at_s, at_s)
    assert list(series.finish_idle(FINISH_S)) == []
    single, idle = series.finish_idle(FINISH_S + 3.0)
    assert single is None
    assert idle is not None
    assert json.loads(idle.request.body)["series"]["count"] == 3
    assert len(series) == 1
    assert observed(series, key_of("single"), "note", FINISH_S + 4.0).request.method == "POST"


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0])
def test_a_clock_that_jumps_neither_keeps_idle_events_nor_forgets_others(jump_s):
    """The series shows the new time of day."""
    series = EventSeries()
    observed(series, key_of(), "note", 10_000.0, 1.0)
    observed(series, key_of(), "note", 10_001.0 + jump_s, 2.0)
    assert list(series.finish_idle(FINISH_S)) == []
    (last,) = series.finish_idle(FINISH_S + 3.0)
    assert last is not None
    shown = json.loads(last.request.body)["series"]["lastObservedTime"]
    assert shown == micro_time(10_001.0 + jump_s)


def test_an_event_that_recurs_while_others_are_forgotten_stays():
    """Events are forgotten one at a time, and others occur meanwhile."""
    series = EventSeries()
    for name in ("a", "b"):
        series.observe(key_of(name), "note", 0.0, 0.0)
    steps = series.finish_idle(FINISH_S + 1.0)
    assert next(steps) is None
    assert observed(series, key_of("b"), "note", FINISH_S + 1.0).request.method == "PATCH"
    assert list(steps) == []
    assert len(series) == 1


def test_the_table_is_bounded():
    """The oldest event is forgotten first."""
    series = EventSeries(capacity=2)
    for name in ("a", "b", "c"):
        series.observe(key_of(name), "note", 1.0, 1.0)
    assert len(series) == 2
    assert observed(series, key_of("a"), "note", 2.0).request.method == "POST"


NAMES = {
    "too long with its time": ("a" * 250, "default"),
    "no DNS subdomain": ("A_b", "default"),
    "an object outside namespaces": ("n1", ""),
}


@pytest.mark.parametrize(("name", "namespace"), NAMES.values(), ids=NAMES)
def test_names_and_namespaces_are_always_valid(name, namespace):
    """A UUID if the object's name is unsuitable; `default` if it has no namespace."""
    write = observed(EventSeries(), key_of(name, namespace=namespace), "note", 1.0)
    metadata = json.loads(write.request.body)["metadata"]
    assert metadata["namespace"] == "default"
    assert len(metadata["name"]) == (36 if namespace else len("n1.3b9aca00"))


NOTES = {
    "fits": ("x" * 1024, "x" * 1024),
    "cut": ("x" * 1025, "x" * 1020 + " ..."),
    "counted in bytes": ("é" * 513, "é" * 510 + " ..."),
    "never inside a character": ("x" + "é" * 512, "x" + "é" * 509 + " ..."),
}


@pytest.mark.parametrize(("text", "bounded"), NOTES.values(), ids=NOTES)
def test_notes_fit_the_api(text, bounded):
    assert bounded_text(text, 1024) == bounded
    assert len(bounded.encode()) <= 1024


class Recording:
    """A running recorder with clocks that stand still, and its server."""

    def __init__(self, script, client, **options):
        self.script = script
        self.sleep = FakeSleep()
        self.now_s = 0.0
        self.n_dropped = 0
        defaults = {"now_s": lambda: self.now_s, "sleep": self._sleep, "on_dropped": self._on_dropped}
        self.recorder = EventRecorder(client, clock_s=lambda: 1.0, jitter=lambda: 1.0, **(defaults | options))

    def _on_dropped(self):
        self.n_dropped += 1

    async def _sleep(self, seconds):
        if seconds == FINISH_S:
            await asyncio.Event().wait()
        await self.sleep(seconds)

    async def record(self, *keys):
        for key in keys:
            self.recorder.record(key, "note")
        await self.recorder.drain(5.0)


@asynccontextmanager
async def recording(*answers, **options):
    async with scripted(*answers) as script, client_of(script) as client:
        made = Recording(script, client, **options)
        running = asyncio.create_task(made.recorder.run())
        yield made
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def turns(n):
    for _ in range(n):
        await asyncio.sleep(0)


async def test_events_of_one_pod_are_written_in_order():
    async with recording(reply(), reply()) as made:
        await made.record(key_of(), key_of(), key_of())
    assert [request.method for request in made.script.received] == ["POST", "PATCH"]
    assert made.n_dropped == 0


async def test_a_standby_writes_no_events():
    """Its timers report the same groups as the leader's."""
    leads = iter([False, True])
    async with recording(reply(), leads=lambda: next(leads)) as made:
        await made.record(key_of("a"), key_of("b"))
    (written,) = made.script.received
    assert json.loads(written.body)["regarding"]["name"] == "b"


async def test_a_patch_of_an_expired_event_recreates_it():
    gone = refusal(404, "NotFound")
    async with recording(reply(), gone, reply()) as made:
        await made.record(key_of(), key_of())
    assert [request.method for request in made.script.received] == ["POST", "PATCH", "POST"]
    assert json.loads(made.script.received[2].body)["series"]["count"] == 2


async def test_a_lost_connection_is_retried_and_a_refusal_is_not():
    """After ten seconds plus up to a quarter."""
    answers = [lost(), lost(), reply(), refusal(403, "Forbidden", "no events")]
    async with recording(*answers) as made:
        await made.record(key_of())
        await made.record(key_of("q"))
    assert made.sleep.slept_s == [12.5, 12.5]
    assert (len(made.script.received), made.n_dropped) == (4, 1)


async def test_events_are_dropped_after_a_429():
    busy = refusal(429, "TooManyRequests", **{"Retry-After": "7"})
    async with recording(busy, reply()) as made:
        await made.record(key_of("a"))
        assert (made.n_dropped, len(made.script.received)) == (1, 1)
        await made.record(key_of("b"))
        assert (made.n_dropped, len(made.script.received)) == (2, 1)
        made.now_s = 7.0
        await made.record(key_of("c"))
    assert (made.n_dropped, len(made.script.received)) == (2, 2)


async def test_a_full_queue_drops_and_counts():
    async with scripted() as script, client_of(script) as client:
        dropped = []
        recorder = EventRecorder(client, on_dropped=lambda: dropped.append(1))
        for number in range(QUEUE_LIMIT + 5):
            recorder.record(key_of(f"p{number}", uid=f"u{number}"), "note")
        assert len(dropped) == 5
        await recorder.drain(0.0)
        assert recorder._pending == QUEUE_LIMIT


async def test_a_bind_without_an_answer_delays_events_briefly():
    """They are written while the server keeps that bind waiting."""
    async with recording(reply()) as made:
        made.recorder.defer_to_binds()
        made.recorder.record(key_of(), "note")
        await turns(200)
        assert made.script.received == []
        made.now_s = DEFER_AFTER_BIND_S
        await made.recorder.drain(5.0)
        assert len(made.script.received) == 1


@pytest.mark.parametrize(
    "pauses", [pytest.param(False, id="without a pause"), pytest.param(True, id="in bursts")]
)
async def test_continuous_binds_delay_an_event_by_two_seconds_at_most(pauses):
    """Pauses between binds may be too short to write all events. Later events wait again."""
    async with recording(reply(), reply()) as made:
        made.recorder.defer_to_binds()
        made.recorder.record(key_of("a", uid="a"), "note")
        while made.now_s < DEFER_S:
            await turns(50)
            assert made.script.received == []
            made.now_s += DEFER_AFTER_BIND_S / 2
            if pauses:
                made.recorder.resume()
            made.recorder.defer_to_binds()
        await made.recorder.drain(5.0)
        assert len(made.script.received) == 1
        made.recorder.record(key_of("b", uid="b"), "note")
        await turns(200)
        assert len(made.script.received) == 1
        made.recorder.resume()
        await made.recorder.drain(5.0)
        assert len(made.script.received) == 2


async def test_many_queued_events_are_written_during_binds(monkeypatch):
    """Otherwise the queue would overflow."""
    monkeypatch.setattr("scheduler.daemon.writes.recorder.DEFER_LIMIT", 2)
    async with recording(reply(), reply(), reply()) as made:
        made.recorder.defer_to_binds()
        for number in range(3):
            made.recorder.record(key_of(f"p{number}", uid=f"u{number}"), "note")
            made.recorder.defer_to_binds()
        await made.script.until_received(1)
        made.recorder.resume()
        await made.recorder.drain(5.0)
        assert len(made.script.received) == 3


@pytest.mark.parametrize(("many", "n_sent"), [(1000, 2), (0, 3)])
async def test_two_events_are_written_at_a_time_unless_many_are_queued(many, n_sent, monkeypatch):
    monkeypatch.setattr("scheduler.daemon.writes.recorder.DEFER_LIMIT", many)
    uid_by_worker = {hash(f"u{number}") % WORKERS: f"u{number}" for number in range(100)}
    release = asyncio.Event()
    answers = [held(release, reply()) for _ in range(3)]
    async with recording(*answers) as made:
        for uid in list(uid_by_worker.values())[:3]:
            made.recorder.record(key_of(uid, uid=uid), "note")
        await made.script.until_received(n_sent)
        await turns(100)
        assert len(made.script.received) == n_sent
        release.set()
        await made.recorder.drain(5.0)
        assert len(made.script.received) == 3


async def test_other_tasks_run_while_many_series_are_finished():
    """Nothing is written here: the queue grows, a few writes at a time."""
    finishing, finished = asyncio.Event(), asyncio.Event()
    clock_s = 0.0

    async def sleep(_seconds):
        if finishing.is_set():
            finished.set()
            await asyncio.Event().wait()
        await finishing.wait()

    async with scripted() as script, client_of(script) as client:
        recorder = EventRecorder(client, now_s=lambda: clock_s, sleep=sleep)
        keeping = asyncio.create_task(recorder._maintain_series())
        for number in [*range(300), *range(300)]:
            recorder.record(key_of(f"p{number}", uid=f"u{number}"), "note")
        await asyncio.sleep(0)
        clock_s = FINISH_S + 1.0
        finishing.set()
        lengths = []
        while not finished.is_set():
            lengths.append(recorder._pending)
            await asyncio.sleep(0)
        keeping.cancel()
    assert (lengths[0], recorder._pending) == (600, 900)
    assert max(after - before for before, after in pairwise([*lengths, 900])) <= 50


async def test_events_are_written_while_others_pause_between_two_attempts():
    """Two are written at a time, but a pause is no write."""
    written, paused = asyncio.Event(), asyncio.Event()
    tried: Counter[str] = Counter()

    class Client:
        async def request(self, request, **_):
            kind = "bad" if "/bad/" in request.path else "good"
            tried[kind] += 1
            if kind == "bad":
                raise Unreachable(0, "Unreachable", "no route")
            written.set()

    async def pause(_):
        await paused.wait()

    by_worker = {hash(f"u{number}") % WORKERS: f"u{number}" for number in range(200)}
    client: Any = Client()
    recorder = EventRecorder(client, sleep=pause)
    running = asyncio.create_task(recorder.run())
    for number, uid in by_worker.items():
        recorder.record(key_of(uid=uid, namespace="good" if number == WORKERS - 1 else "bad"), "note")
    async with asyncio.timeout(TIMEOUT_S):
        await written.wait()
    assert tried == {"bad": WORKERS - 1, "good": 1}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

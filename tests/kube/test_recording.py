"""Events: folded into series, written without holding anybody up."""

import asyncio
import json
from itertools import pairwise

import pytest

from scheduler.kube.event_series import (
    FINISH_S,
    EventKey,
    EventSeries,
    ObjectReference,
    bounded_text,
)
from scheduler.shell.recorder import BEHIND_ONE_S, BEHIND_S, MAX_TRIES, QUEUE_LIMIT, EventRecorder
from tests.kube.build import body
from tests.kube.scripted import Naps, client_of, lost, reply, scripted

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


def about(name="p", rv="5", *, uid="u", namespace="default", **fields):
    regarding = ObjectReference("Pod", namespace, name, uid, resource_version=rv)
    defaults = {
        "type": "Warning",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "reporting_controller": "affinity-scheduler",
        "reporting_instance": "affinity-scheduler-host",
    }
    return EventKey(regarding=regarding, **(defaults | fields))


def sent(series, key, note, now_s):
    """The write of an occurrence that has one."""
    write = series.observe(key, note, now_s)
    assert write is not None
    return write


def wire(write):
    return write.request.method, write.request.path, json.loads(write.request.body)


def test_the_first_occurrence_creates_an_event():
    """All fields that events.k8s.io/v1 wants, none that it forbids."""
    write = sent(EventSeries(), about(), "0/1 nodes are available.", 1.5)
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
    """Whatever their notes say."""
    series = EventSeries()
    created = sent(series, about(), "first", 1.0)
    patched = sent(series, about(), "second", 2.0)
    name = json.loads(created.request.body)["metadata"]["name"]
    counted = {"count": 2, "lastObservedTime": "1970-01-01T00:00:02.000000Z"}
    assert wire(patched) == ("PATCH", f"{EVENTS}/{name}", {"series": counted})
    assert patched.on_missing is not None
    again = json.loads(patched.on_missing.body)
    assert (patched.on_missing.method, again["note"], again["series"]) == ("POST", "first", counted)
    assert [series.observe(about(), "more", 3.0 + i) for i in range(5)] == [None] * 5
    assert [json.loads(write.request.body)["series"]["count"] for write in series.refresh()] == [7]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(about(rv="6"), id="another version of the pod"),
        pytest.param(about(name="q"), id="another pod"),
        pytest.param(about(type="Normal"), id="another type"),
        pytest.param(about(reason="Scheduled"), id="another reason"),
        pytest.param(about(action="Binding"), id="another action"),
        pytest.param(about(reporting_controller="b"), id="another profile"),
        pytest.param(about(related=ObjectReference("Node", "", "n", "v")), id="another related object"),
    ],
)
def test_what_differs_in_more_than_the_note_is_another_event(other):
    """Two creations, two names, even in the same nanosecond."""
    series = EventSeries()
    writes = [sent(series, key, "note", 1.0) for key in (about(), other)]
    assert [write.request.method for write in writes] == ["POST", "POST"]
    assert len({json.loads(write.request.body)["metadata"]["name"] for write in writes}) == 2


def test_idle_events_are_forgotten_and_idle_series_patched_a_last_time():
    """After six minutes; what goes on, stays."""
    series = EventSeries()
    for key, times in (
        (about("single"), [0.0]),
        (about("idle"), [0.0, 1.0, 2.0]),
        (about("busy"), [0.0, 300.0]),
    ):
        for at_s in times:
            series.observe(key, "note", at_s)
    assert list(series.finish_idle(FINISH_S)) == []
    single, idle = series.finish_idle(FINISH_S + 3.0)
    assert single is None
    assert idle is not None
    assert json.loads(idle.request.body)["series"]["count"] == 3
    assert len(series) == 1
    assert sent(series, about("single"), "note", FINISH_S + 4.0).request.method == "POST"


def test_what_comes_again_before_its_turn_to_be_forgotten_stays():
    """Events are forgotten one at a time, and others come meanwhile."""
    series = EventSeries()
    for name in ("a", "b"):
        series.observe(about(name), "note", 0.0)
    steps = series.finish_idle(FINISH_S + 1.0)
    assert next(steps) is None
    assert sent(series, about("b"), "note", FINISH_S + 1.0).request.method == "PATCH"
    assert list(steps) == []
    assert len(series) == 1


def test_the_table_is_bounded():
    """The oldest kind goes first."""
    series = EventSeries(capacity=2)
    for name in ("a", "b", "c"):
        series.observe(about(name), "note", 1.0)
    assert len(series) == 2
    assert sent(series, about("a"), "note", 2.0).request.method == "POST"


@pytest.mark.parametrize(
    ("name", "namespace"),
    [
        pytest.param("a" * 250, "default", id="too long with its time"),
        pytest.param("A_b", "default", id="no DNS subdomain"),
        pytest.param("n1", "", id="an object outside namespaces"),
    ],
)
def test_names_and_namespaces_are_always_valid(name, namespace):
    """A UUID where the object's name will not do; `default` where it has no namespace."""
    write = sent(EventSeries(), about(name, namespace=namespace), "note", 1.0)
    metadata = json.loads(write.request.body)["metadata"]
    assert metadata["namespace"] == "default"
    assert len(metadata["name"]) == (36 if namespace else len("n1.3b9aca00"))


@pytest.mark.parametrize(
    ("text", "bounded"),
    [
        pytest.param("x" * 1024, "x" * 1024, id="fits"),
        pytest.param("x" * 1025, "x" * 1020 + " ...", id="cut"),
        pytest.param("é" * 513, "é" * 510 + " ...", id="counted in bytes"),
        pytest.param("x" + "é" * 512, "x" + "é" * 509 + " ...", id="never inside a character"),
    ],
)
def test_notes_fit_the_api(text, bounded):
    """1024 bytes."""
    assert bounded_text(text, 1024) == bounded
    assert len(bounded.encode()) <= 1024


class Recording:
    """A recorder at work, with clocks that stand still."""

    def __init__(self, script):
        self.script = script
        self.naps = Naps()
        self.now_s = 0.0

    async def __aenter__(self):
        self._client = client_of(self.script)
        client = await self._client.__aenter__()
        self.recorder = EventRecorder(
            client, clock_s=lambda: 1.0, now_s=lambda: self.now_s, sleep=self._sleep, chance=lambda: 1.0
        )
        self._task = asyncio.create_task(self.recorder.run())
        return self

    async def _sleep(self, seconds):
        if seconds == FINISH_S:
            await asyncio.Event().wait()
        await self.naps(seconds)

    async def __aexit__(self, *failure):
        self._task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self._task
        await self._client.__aexit__(*failure)

    async def record(self, *keys):
        for key in keys:
            self.recorder.record(key, "note")
        await self.recorder.drain(5.0)
        return self.recorder.counts


async def turns(n):
    """Everybody who can go on has gone on so often."""
    for _ in range(n):
        await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_events_of_one_pod_are_written_in_order():
    """Create, then patch; the third is only counted."""
    async with scripted(reply(), reply()) as script, Recording(script) as recording:
        counts = await recording.record(about(), about(), about())
    assert [request.method for request in script.asked] == ["POST", "PATCH"]
    assert counts.written == 2


@pytest.mark.asyncio
async def test_a_patch_of_an_expired_event_creates_it_again():
    """With its series."""
    gone = reply(body(404, "NotFound"), status=404)
    async with scripted(reply(), gone, reply()) as script, Recording(script) as recording:
        await recording.record(about(), about())
    assert [request.method for request in script.asked] == ["POST", "PATCH", "POST"]
    assert json.loads(script.asked[2].body)["series"]["count"] == 2


@pytest.mark.asyncio
async def test_a_lost_connection_is_tried_again_and_a_refusal_is_not():
    """Ten seconds and a quarter apart."""
    answers = [lost(), lost(), reply(), reply(body(403, "Forbidden", "no events"), status=403)]
    async with scripted(*answers) as script, Recording(script) as recording:
        await recording.record(about())
        counts = await recording.record(about("q"))
    assert recording.naps.taken_s == [12.5, 12.5]
    assert (counts.written, counts.failed, counts.last_error) == (1, 1, "403 Forbidden: no events")


@pytest.mark.asyncio
async def test_an_unreachable_server_is_given_up_after_twelve_tries():
    """The event is counted as failed."""
    async with scripted() as script:
        pass
    async with Recording(script) as recording:
        counts = await recording.record(about())
    assert len(recording.naps.taken_s) == MAX_TRIES - 1
    assert counts.failed == 1


@pytest.mark.asyncio
async def test_events_are_shed_while_the_server_asks_for_quiet():
    """They are the first to give way, and come back afterwards."""
    busy = reply(body(429, "TooManyRequests"), status=429, headers={"Retry-After": "7"})
    async with scripted(busy, reply()) as script, Recording(script) as recording:
        counts = await recording.record(about("a"))
        assert (counts.shed, len(script.asked)) == (1, 1)
        await recording.record(about("b"))
        assert (counts.shed, len(script.asked)) == (2, 1)
        recording.now_s = 7.0
        await recording.record(about("c"))
    assert (counts.shed, counts.written) == (2, 1)


@pytest.mark.asyncio
async def test_a_full_queue_drops_and_counts():
    """Recording never waits."""
    async with scripted() as script, client_of(script) as client:
        dropped = []
        recorder = EventRecorder(client, on_dropped=lambda: dropped.append(1))
        for number in range(QUEUE_LIMIT + 5):
            recorder.record(about(f"p{number}", uid=f"u{number}"), "note")
        assert (recorder.counts.overflowed, len(dropped)) == (5, 5)
        await recorder.drain(0.0)
        assert recorder.counts.last_error == f"{QUEUE_LIMIT} events were not written in time"


@pytest.mark.asyncio
async def test_events_wait_while_binds_are_under_way():
    """Until the last is answered."""
    async with scripted(reply(), reply()) as script, Recording(script) as recording:
        recording.recorder.give_way()
        for name in ("a", "b"):
            recording.recorder.record(about(name, uid=name), "note")
        recording.recorder.give_way()
        await turns(200)
        assert script.asked == []
        recording.recorder.go_on()
        await recording.recorder.drain(5.0)
        assert recording.recorder.counts.written == 2


@pytest.mark.asyncio
async def test_a_bind_that_is_never_answered_holds_events_up_for_a_moment_only():
    """Others may be written while the server is silent about one."""
    async with scripted(reply()) as script, Recording(script) as recording:
        recording.recorder.give_way()
        recording.recorder.record(about(), "note")
        await turns(200)
        assert script.asked == []
        recording.now_s = BEHIND_ONE_S
        await recording.recorder.drain(5.0)
        assert recording.recorder.counts.written == 1


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "pauses", [pytest.param(False, id="without a pause"), pytest.param(True, id="in gusts")]
)
async def test_binds_that_go_on_and_on_hold_events_up_for_two_seconds_only(pauses):
    """A pause may be too short to write what has gathered since the one before. Later events are held up again."""
    async with scripted(reply(), reply()) as script, Recording(script) as recording:
        recording.recorder.give_way()
        recording.recorder.record(about("a", uid="a"), "note")
        while recording.now_s < BEHIND_S:
            await turns(50)
            assert script.asked == []
            recording.now_s += BEHIND_ONE_S / 2
            if pauses:
                recording.recorder.go_on()
            recording.recorder.give_way()
        await recording.recorder.drain(5.0)
        assert recording.recorder.counts.written == 1
        recording.recorder.record(about("b", uid="b"), "note")
        await turns(200)
        assert len(script.asked) == 1
        recording.recorder.go_on()
        await recording.recorder.drain(5.0)
        assert recording.recorder.counts.written == 2


@pytest.mark.asyncio
async def test_where_many_events_wait_they_are_written_beside_the_binds(monkeypatch):
    """Otherwise the queue would overflow as long as binds go on."""
    monkeypatch.setattr("scheduler.shell.recorder.BEHIND_LIMIT", 2)
    async with scripted(reply(), reply(), reply()) as script, Recording(script) as recording:
        recording.recorder.give_way()
        for number in range(3):
            recording.recorder.record(about(f"p{number}", uid=f"u{number}"), "note")
            recording.recorder.give_way()
        await script.until_asked(1)
        recording.recorder.go_on()
        await recording.recorder.drain(5.0)
        assert recording.recorder.counts.written == 3


@pytest.mark.asyncio
async def test_the_last_patches_of_many_series_leave_others_their_turn():
    """Nobody writes here: what is queued only grows, a few at a time."""
    finishing, finished = asyncio.Event(), asyncio.Event()
    clock_s = 0.0

    async def sleep(_seconds):
        if finishing.is_set():
            finished.set()
            await asyncio.Event().wait()
        await finishing.wait()

    async with scripted() as script, client_of(script) as client:
        recorder = EventRecorder(client, clock_s=lambda: clock_s, sleep=sleep)
        keeping = asyncio.create_task(recorder._keep_series())
        for number in [*range(300), *range(300)]:
            recorder.record(about(f"p{number}", uid=f"u{number}"), "note")
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

"""The events that the measurement over HTTP waits for."""

import asyncio
import json

from scheduler.daemon.kube.event_series import EventKey, EventSeries, ObjectReference
from tests.bench.api_objects import Objects, objects_of
from tests.bench.http_level import Told
from tests.bench.servers import started

_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


async def _tell(objects: Objects, reason: str, *pods: str) -> None:
    for pod in pods:
        about = ObjectReference("Pod", "default", pod, f"uid-{pod}")
        write = EventSeries().observe(
            EventKey("Normal", "Binding", reason, "ours", "ours-1", about), "why", 1.0, 1.0
        )
        assert write is not None
        assert write.request.body is not None
        await objects.post(_EVENTS, json.loads(write.request.body))


async def test_events_of_other_pods_do_not_stand_for_those_of_bindings():
    """Pods that fit no node have events too, in some shapes more than the bindings."""
    with started("devcluster") as server:
        async with objects_of(server) as objects, asyncio.timeout(20.0):
            await _tell(objects, "Scheduled", "before")
            told = await Told.before(objects)
            await _tell(objects, "FailedScheduling", "large-1", "large-2", "large-3")
            await _tell(objects, "Scheduled", "a")
            looked = asyncio.Event()
            written: list[str] = []

            def measure() -> int:
                looked.set()
                return len(written)

            waiting = asyncio.create_task(told.of(2, measure))
            await looked.wait()
            written.append("b")
            await _tell(objects, "Scheduled", "b")
            assert await waiting == (1, 0)


async def test_events_that_never_come_are_told_and_not_waited_for(monkeypatch):
    """A scheduler that drops events is measured too."""
    monkeypatch.setattr("tests.bench.http_level._EVENTS_QUIET_S", 0.2)
    with started("devcluster") as server:
        async with objects_of(server) as objects, asyncio.timeout(20.0):
            told = await Told.before(objects)
            await _tell(objects, "Scheduled", "a")
            assert await told.of(3, lambda: "measured") == ("measured", 2)

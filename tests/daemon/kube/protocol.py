"""Plays the list-watch protocol: signs in, actions out."""

import asyncio
from contextlib import aclosing

import msgspec

from scheduler.daemon.kube.changes import Deleted, Upserted
from scheduler.daemon.kube.list_watch import FetchPage, ListWatch, OpenStream, Pause, Publish
from scheduler.daemon.kube.reflector import Reflector
from scheduler.daemon.kube.requests import WatchPath
from scheduler.errors import Invalid
from tests.support.api_bodies import page
from tests.support.scripted_server import FakeSleep, client_of

PODS = WatchPath("/api/v1/pods")


class _Labelled(msgspec.Struct):
    class Meta(msgspec.Struct):
        labels: dict[str, str] = {}

    metadata: Meta


def decode(raw):
    msgspec.json.decode(raw, type=_Labelled)
    return msgspec.json.decode(raw)["metadata"]["resourceVersion"]


def list_watch(*, watch_list=False, jitter=0.5, resource=PODS, is_absence=lambda _: False):
    machine = ListWatch(resource, decode, jitter=lambda: jitter, is_absence=is_absence)
    return machine if watch_list else paging(machine)


def paging(machine):
    """Return the machine after a server has refused to stream a list, so that it reads pages."""
    machine.on_failure(Invalid(400, "BadRequest", "no streamed lists"))
    return machine


def up(name, rv, uid=None):
    return Upserted(f"default/{name}", uid or f"uid-{name}", str(rv))


def down(name, uid=None):
    return Deleted(f"default/{name}", uid or f"uid-{name}")


#: A sign is what a server does, or that a pause is over; called with the machine that it tells.
DUE = ListWatch.on_due


def arrived(body):
    return lambda machine: machine.on_page(body)


def brought(lines):
    return lambda machine: machine.on_lines(lines)


def ended(lived_s):
    return lambda machine: machine.on_stream_end(lived_s)


def failed(error):
    return lambda machine: machine.on_failure(error)


def play(machine, *signs):
    """Give the signs and return all actions in order; requests as (action, the relevant part of the query)."""
    return [_summary(action) for sign in signs for action in sign(machine)]


def _summary(action):
    match action:
        case FetchPage(request=request):
            return ("ask", dict(request.query).get("continue", ""))
        case OpenStream(request=request):
            query = dict(request.query)
            return ("stream list",) if "sendInitialEvents" in query else ("watch", query["resourceVersion"])
        case Pause(seconds=seconds):
            return ("pause", seconds)
        case Publish(changes=changes):
            return changes


def synced(machine, *pods, rv=10):
    """Bring a list-watch to its first watch and return it."""
    machine.on_due()
    actions = machine.on_page(page(*pods, rv=rv))
    while actions[-1] == Pause(0.0):
        actions = machine.on_due()
    return machine


async def published(script, until, *, watch_list=False, silent_s=30.0):
    """Return all changes up to and including the first that `until` accepts, and the pauses taken."""
    sleep = FakeSleep()
    changes = []
    async with client_of(script) as client:
        reflector = Reflector(client, PODS, decode, sleep=sleep, jitter=lambda: 0.5, silent_s=silent_s)
        if not watch_list:
            paging(reflector.list_watch)
        async with asyncio.timeout(10), aclosing(reflector.batches()) as batches:
            async for batch in batches:
                for change in batch:
                    changes.append(change)
                    if until(change):
                        return changes, sleep.slept_s
    raise AssertionError("batches ended")


def queries(script, *names):
    return [tuple(asked.query.get(name) for name in names) for asked in script.received]

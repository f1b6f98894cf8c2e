"""Plays the list-watch protocol: what happens in, what is done about it out."""

import msgspec

from scheduler.kube.changes import Deleted, Key, Upserted
from scheduler.kube.requests import Resource
from scheduler.kube.watching import Ask, Due, Follow, PageArrived, Pause, Publish, Watching
from tests.kube.build import page

PODS = Resource("/api/v1/pods")


class _Labelled(msgspec.Struct):
    class Meta(msgspec.Struct):
        labels: dict[str, str] = {}

    metadata: Meta


def decode(raw):
    msgspec.json.decode(raw, type=_Labelled)
    return msgspec.json.decode(raw)["metadata"]["resourceVersion"]


def watching(*, watch_list=False, chance=0.5, resource=PODS):
    return Watching(resource, decode, chance=lambda: chance, watch_list=watch_list)


def up(name, rv, uid=None):
    return Upserted(Key("default", name), uid or f"uid-{name}", str(rv))


def down(name, uid=None):
    return Deleted(Key("default", name), uid or f"uid-{name}")


def play(machine, *events):
    """All actions in order; requests as (action, what matters of the query)."""
    return [_told(action) for event in events for action in machine.handle(event)]


def _told(action):
    match action:
        case Ask(request=request):
            return ("ask", dict(request.query).get("continue", ""))
        case Follow(request=request):
            query = dict(request.query)
            return ("stream list",) if "sendInitialEvents" in query else ("watch", query["resourceVersion"])
        case Pause(seconds=seconds):
            return ("pause", seconds)
        case Publish(changes=changes):
            return changes


def synced(machine, *pods, rv=10):
    """Bring a machine to its first watch, whatever it said on the way."""
    machine.handle(Due())
    actions = machine.handle(PageArrived(page(*pods, rv=rv)))
    while actions[-1] == Pause(0.0):
        actions = machine.handle(Due())
    return machine

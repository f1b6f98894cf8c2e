"""Schedulers with one guard removed each, which the suite has to tell from an intact one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from unittest import mock

from scheduler.core.event_handlers import EventHandlers
from scheduler.framework.events import ClusterEvent
from scheduler.kube import requests
from scheduler.kube.changes import Change
from scheduler.kube.store import Store
from scheduler.model.pods import Pod
from scheduler.queueing.pod_queue import PodQueue
from scheduler.queueing.queued_pod import QueuedPod
from scheduler.shell.app import Scheduler
from scheduler.shell.binder import Binder, PodNotFound
from scheduler.state.cluster import ClusterState
from scheduler.state.node_table import NodeTable, Usage
from tests.chaos.run import Shape
from tests.chaos.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Sabotage:
    """A missing guard, the runs that notice it, and their verdict."""

    name: str
    #: The attribute that is replaced, and its replacement.
    owner: Any
    attribute: str
    instead: Any
    shape: Shape
    verdict: Verdict
    #: Seeds are tried from here on; one of the first few finds the missing guard.
    first_seed: int = 0

    def committed(self) -> mock._patch[Any]:
        """Remove the guard for the duration of the block."""
        return mock.patch.object(self.owner, self.attribute, self.instead)


async def _never_looked_up(
    _self: Binder, _namespace: str, _name: str, _uid: str, _node_name: str
) -> PodNotFound:
    """Take a bind without an answer for failed, without reading the pod."""
    return PodNotFound()


def _always_lead(self: Scheduler) -> bool:
    """Let every instance with full caches bind."""
    self._caught_up = True
    return True


def _assume_nothing(_self: ClusterState, _pod: Pod, _node_name: str) -> None:
    """Count a decision only when the watch shows it."""


def _bind_without_uid(*, uid: str, **settings: Any) -> requests.Request:
    """Bind any pod of the name."""
    assert uid
    return _WHOLE_BIND(uid="", **settings)


_WHOLE_BIND = requests.bind
_WHOLE_NOTIFY_QUEUE = EventHandlers._notify_queue
_WHOLE_REMOVE_USAGE = NodeTable.remove_usage


def _tell_no_departures(
    self: EventHandlers, event: ClusterEvent, old: object, new: object, now_s: float
) -> None:
    """Drop events of deletions."""
    if new is not None:
        _WHOLE_NOTIFY_QUEUE(self, event, old, new, now_s)


def _forget_failures(
    _self: PodQueue, _queued: QueuedPod, _unschedulable_plugins: frozenset[str], _now_s: float
) -> None:
    """Drop a pod that found no node."""


def _nothing_vanishes(self: Store[Any], _changes: list[Change[Any]]) -> None:
    """Keep objects that a relist no longer has."""
    for shard in self._shards:
        shard.unlisted = {}


def _keep_room(self: NodeTable, row: int, usage: Usage) -> None:
    """Never free host ports."""
    _WHOLE_REMOVE_USAGE(self, row, Usage(usage.requested, usage.non_zero, ()))


SABOTAGES = (
    Sabotage(
        "lost answers are not settled",
        Binder,
        "_settle",
        _never_looked_up,
        Shape.ALONE,
        Verdict.STRANGE,
        2,
    ),
    Sabotage("nothing is assumed", ClusterState, "assume", _assume_nothing, Shape.ALONE, Verdict.RULE),
    Sabotage("the Lease is no matter", Scheduler, "_leads", _always_lead, Shape.ELECTED, Verdict.LEASE),
    Sabotage("binds name no uid", requests, "bind", _bind_without_uid, Shape.ALONE, Verdict.STRANGE, 18),
    Sabotage(
        "departures wake nobody",
        EventHandlers,
        "_notify_queue",
        _tell_no_departures,
        Shape.ALONE,
        Verdict.LEFT,
        9,
    ),
    Sabotage("failures are forgotten", PodQueue, "put_back", _forget_failures, Shape.ALONE, Verdict.LEFT),
    Sabotage("lists end nothing", Store, "finish_list", _nothing_vanishes, Shape.ALONE, Verdict.CACHE, 2),
    Sabotage("ports stay taken", NodeTable, "remove_usage", _keep_room, Shape.ALONE, Verdict.CRASH),
)

"""
The loop that plans objects and executes their plans.

House rules:

1. Level-triggered: an object that changed, or that a change of another one concerns, is planned from the present state.
2. Coalescing: many changes cause one plan; an object waits longer after a costly plan, so that planning never takes
   more than a tenth of the time.
3. A plan and the writes that it orders happen in one turn of the event loop, unless webhooks are asked about its pods:
   nothing else is planned before these have answered.
4. A refused write ends the plan; the object is tried again after a pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final
from zlib import crc32

from scheduler.sandbox.devcluster.controllers.actions import (
    Action,
    Create,
    Delete,
    Emit,
    Revisit,
    Update,
    replaced,
)
from scheduler.sandbox.devcluster.controllers.objects import is_terminating, key_of, node_name, uid
from scheduler.sandbox.devcluster.controllers.planning import FOLLOWED, PLANS, Place, concerned
from scheduler.sandbox.devcluster.controllers.volumes import plan_claim
from scheduler.sandbox.devcluster.kinds import CORE_EVENT, PERSISTENT_VOLUME_CLAIM, POD, JsonObject, Kind
from scheduler.sandbox.devcluster.parts import rfc3339
from scheduler.sandbox.devcluster.status import StatusError
from scheduler.sandbox.devcluster.storage.history import ObjectChange
from scheduler.sandbox.devcluster.storage.store import ObjectStore
from scheduler.sandbox.devcluster.webhooks import create

_LOG: Final = logging.getLogger(__name__)
#: An object is planned at most once in `_PACE_S`, and at most once in `_PACE_FACTOR` times its last plan's duration.
_PACE_S: Final = 0.005
_PACE_FACTOR: Final = 10.0
#: Seconds until a pod that came to a node runs, or a deleted one is gone.
_MOMENT_S: Final = 0.05
#: Seconds for which nothing is created for an object after a refusal.
_PAUSE_S: Final = 1.0
#: Longest time to hold the event loop.
_SLICE_S: Final = 0.005


async def run_controllers(store: ObjectStore, now_s: Callable[[], float]) -> None:
    """Run the controllers and the kubelet stand-in on `store` until cancelled; they wait by the clock `now_s`."""
    loop = _ControllerLoop(store, now_s)
    end = store.history.follow(FOLLOWED, loop.follow)
    try:
        await loop.run()
    finally:
        end()


class _ControllerLoop:
    """Plans objects that changed and executes the plans. Times inside are of the monotonic clock `now_s`."""

    def __init__(self, store: ObjectStore, now_s: Callable[[], float]) -> None:
        self._store, self._now_s = store, now_s
        #: Object that waits to be planned -> when it is due.
        self._due_s: dict[Place, float] = {}
        #: The same by time; entries that differ from `_due_s` are outdated.
        self._queue: list[tuple[float, int, Place]] = []
        self._order = count()
        self._woken = asyncio.Event()
        #: Object -> the earliest time of its next plan.
        self._not_before_s: dict[Place, float] = {}
        #: Object whose plan was refused -> until when nothing is created for it.
        self._held_until_s: dict[Place, float] = {}
        #: Claim of a volume -> when it changed last.
        self._changed_s: dict[Place, float] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._woken.clear()
            began_s = self._now_s()
            while self._queue and self._queue[0][0] <= self._now_s():
                due_s, _, place = heapq.heappop(self._queue)
                if self._due_s.get(place) == due_s:
                    del self._due_s[place]
                    await self._process(place)
                if self._now_s() - began_s > _SLICE_S:
                    await asyncio.sleep(0)
                    began_s = self._now_s()
            wait_s = max(self._queue[0][0] - self._now_s(), 0.0) if self._queue else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()

    def follow(self, kind: Kind, change: ObjectChange) -> None:
        """Note a change of the store."""
        if kind not in FOLLOWED:
            return
        obj, previous = change.revision.obj, change.previous.obj if change.previous else None
        if kind is PERSISTENT_VOLUME_CLAIM:
            self._changed_s[(kind, *key_of(obj))] = self._now_s()
        places = dict.fromkeys(concerned(self._store, kind, obj, previous))
        if previous is not None:
            places |= dict.fromkeys(concerned(self._store, kind, previous, obj))
        for place in places:
            is_bound_pod = kind is POD and place[0] is POD and node_name(obj)
            self._schedule(place, _MOMENT_S if is_bound_pod else 0.0)

    def _schedule(self, place: Place, after_s: float) -> None:
        """Plan the object no later than `after_s` from now, as far as its pace allows."""
        due_s = max(self._now_s() + after_s, self._not_before_s.get(place, 0.0))
        if self._due_s.get(place, due_s + 1) > due_s:
            self._due_s[place] = due_s
            heapq.heappush(self._queue, (due_s, next(self._order), place))
            self._woken.set()

    async def _process(self, place: Place) -> None:
        """Plan the object and execute the plan."""
        began_s, obj = self._now_s(), self._store.find(*place)
        if obj is None:
            for times in (self._not_before_s, self._held_until_s, self._changed_s):
                times.pop(place, None)
            return
        try:
            if place[0] is PERSISTENT_VOLUME_CLAIM:
                actions = plan_claim(obj, self._store, began_s - self._changed_s[place])
            else:
                actions = [*PLANS[place[0]](obj, self._store)]
        except (AttributeError, KeyError, TypeError, ValueError) as malformed:
            _LOG.warning("%s %s/%s is malformed: %r", place[0].kind, *place[1:], malformed)
            return
        planned_s = self._now_s()
        await self._execute(place, obj, actions)
        # Pods have few plans, and are many.
        if place[0] is not POD:
            self._not_before_s[place] = self._now_s() + max(_PACE_S, _PACE_FACTOR * (planned_s - began_s))

    async def _execute(self, place: Place, obj: JsonObject, actions: Sequence[Action]) -> None:
        """Execute actions in order, up to the first that is refused."""
        held_s = self._held_until_s.get(place, 0.0) - self._now_s()
        for action in actions:
            if isinstance(action, Revisit):
                self._schedule(place, action.after_s)
            elif isinstance(action, Create) and held_s > 0:
                self._schedule(place, held_s)
            elif isinstance(action, Create) and not _is_same(obj, self._store.find(*place)):
                # The owner went while webhooks were asked about its pods.
                return
            elif await self._is_refused(obj, action):
                self._held_until_s[place] = self._now_s() + _PAUSE_S
                self._schedule(place, _PAUSE_S)
                return

    async def _is_refused(self, planned: JsonObject, action: Create | Update | Delete | Emit) -> bool:
        """Execute one action; return whether it still makes sense and was refused."""
        try:
            match action:
                case Create():
                    namespace = str(action.obj["metadata"].get("namespace", ""))
                    await create(self._store, action.kind, namespace, action.obj, [])
                case Update():
                    # A plan and its writes happen in one turn of the event loop.
                    version = self._store.get(action.kind, *key_of(action.obj))["metadata"]["resourceVersion"]
                    current = replaced(action.obj, ("metadata", "resourceVersion"), version)
                    self._store.update(action.kind, current, subresource=action.subresource)
                case Delete():
                    key = key_of(action.obj)
                    self._store.delete(action.kind, *key, uid=uid(action.obj), grace_period_s=action.grace_s)
                case Emit():
                    self._record(planned, action)
        except StatusError as refused:
            if isinstance(action, Create):
                self._record(planned, Emit("FailedCreate", f"Error creating: {refused.message}"))
                return True
            # The object is gone or was replaced; that change causes the next plan.
            return refused.code != 404 and not (refused.code == 409 and isinstance(action, Delete))
        return False

    def _record(self, planned: JsonObject, emit: Emit) -> None:
        """Store the event, unless there is an equal one. Never raises."""
        metadata, now = planned["metadata"], rfc3339(self._store.now_s())
        namespace, component = metadata.get("namespace", "default"), f"{planned['kind'].lower()}-controller"
        mark = crc32(f"{uid(planned)} {emit.reason} {emit.message}".encode())
        name = f"{metadata['name'][:200].rstrip('-.')}.{mark:x}"
        if self._store.find(CORE_EVENT, namespace, name) is not None:
            return
        about = {
            "apiVersion": planned["apiVersion"],
            "kind": planned["kind"],
            "name": metadata["name"],
            "namespace": metadata.get("namespace", ""),
            "resourceVersion": metadata.get("resourceVersion", ""),
            "uid": uid(planned),
        }
        event = {
            "metadata": {"name": name},
            "involvedObject": about,
            "reason": emit.reason,
            "message": emit.message,
            "type": "Warning",
            "source": {"component": component},
            "reportingComponent": component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "eventTime": None,
        }
        # A terminating namespace takes no events.
        with contextlib.suppress(StatusError):
            self._store.create(CORE_EVENT, namespace, event)


def _is_same(obj: JsonObject, stored: JsonObject | None) -> bool:
    return stored is not None and uid(stored) == uid(obj) and not is_terminating(stored)


def log_failure(task: asyncio.Task[None]) -> None:
    """Log why a task failed, unless it was cancelled."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _LOG.error("%s: %s", task.get_name(), error, exc_info=error)

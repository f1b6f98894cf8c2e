"""
The loop that plans objects and executes their plans.

House rules:

1. Level-triggered: an object that changed, or whose dependents changed, is planned again from the present state.
2. Coalescing: many changes cause one plan; an object waits longer after a costly plan, so that planning never takes
   more than a tenth of the time.
3. A plan and the writes that it orders happen in one turn of the event loop: nothing changes between them.
4. Pods that webhooks are asked about are created after that; their owner is not planned again before.
5. A refused write ends the plan; the object is tried again after a pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
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
from scheduler.sandbox.devcluster.controllers.kubelet import KubeletLoop
from scheduler.sandbox.devcluster.controllers.ownership import key_of, uid
from scheduler.sandbox.devcluster.controllers.planning import Place, Planner
from scheduler.sandbox.devcluster.controllers.pods import is_terminating
from scheduler.sandbox.devcluster.controllers.queue import WorkQueue
from scheduler.sandbox.devcluster.kinds import (
    CORE_EVENT,
    POD,
    JsonObject,
    Kind,
)
from scheduler.sandbox.devcluster.status import StatusError
from scheduler.sandbox.devcluster.storage.store import ObjectStore
from scheduler.sandbox.devcluster.timestamps import rfc3339
from scheduler.sandbox.devcluster.webhooks import WebhookAdmission

_LOG: Final = logging.getLogger(__name__)
#: An object is planned at most once in `_PACE_S`, and at most once in `_PACE_FACTOR` times its last plan's duration.
_PACE_S: Final = 0.005
_PACE_FACTOR: Final = 10.0
#: Seconds for which nothing is created for an object after a refusal.
_PAUSE_S: Final = 1.0


async def run_controllers(
    store: ObjectStore, admission: WebhookAdmission, now_s: Callable[[], float]
) -> None:
    """
    Run controllers and kubelet stand-in on `store` until cancelled; `admission` asks webhooks about new pods.

    Both wait by the clock `now_s`.
    """
    workloads = ControllerLoop(store, admission, now_s)
    pods = KubeletLoop(store, now_s)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(workloads.run(), name="devcluster controllers")
            tasks.create_task(pods.run(), name="devcluster kubelet")
    finally:
        workloads.close()
        pods.close()


class ControllerLoop:
    """Plans objects that changed and executes the plans. Times inside are of the monotonic clock `now_s`."""

    def __init__(self, store: ObjectStore, admission: WebhookAdmission, now_s: Callable[[], float]) -> None:
        self._store, self._now_s, self._admission = store, now_s, admission
        #: Owner -> the task that creates its pods through webhooks.
        self._creating: dict[Place, asyncio.Task[None]] = {}
        #: Object that waits to be planned -> when it is due.
        self._due_s: dict[Place, float] = {}
        #: Entries that differ from `_due_s` are outdated.
        self._queue: WorkQueue[Place] = WorkQueue(now_s)
        #: Object -> the earliest time of its next plan.
        self._not_before_s: dict[Place, float] = {}
        #: Object whose plan was refused -> until when nothing is created for it.
        self._held_until_s: dict[Place, float] = {}
        self._planner = Planner(store, self._schedule, now_s)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._queue.run(self._process)

    def close(self) -> None:
        """Stop following the store and creating pods."""
        self._planner.close()
        for task in self._creating.values():
            task.cancel()

    def _schedule(self, place: Place, after_s: float = 0.0) -> None:
        """Plan the object no later than `after_s` from now, as far as its pace allows."""
        due_s = max(self._now_s() + after_s, self._not_before_s.get(place, 0.0))
        if self._due_s.get(place, due_s + 1) > due_s:
            self._due_s[place] = due_s
            self._queue.put(place, due_s)

    def _process(self, place: Place, due_s: float) -> None:
        """Plan the object, unless that is due at another time, and execute the plan."""
        # An owner whose pods are being created is planned again afterwards.
        if self._due_s.get(place) != due_s or place in self._creating:
            return
        del self._due_s[place]
        began_s = self._now_s()
        obj = self._store.find(*place)
        if obj is None:
            self._not_before_s.pop(place, None)
            self._held_until_s.pop(place, None)
            return
        try:
            actions = self._planner.plan(place[0], obj)
        except (AttributeError, KeyError, TypeError, ValueError) as malformed:
            _LOG.warning("%s %s/%s is malformed: %r", place[0].kind, *place[1:], malformed)
            return
        self._execute(place, obj, actions)
        ended_s = self._now_s()
        self._not_before_s[place] = ended_s + max(_PACE_S, _PACE_FACTOR * (ended_s - began_s))

    # -- execution -------------------------------------------------------------------------------------------

    def _execute(self, place: Place, obj: JsonObject, actions: Sequence[Action]) -> None:
        """Execute actions in order, up to the first that is refused; pods that webhooks are asked about come last."""
        held_s = self._held_until_s.get(place, 0.0) - self._now_s()
        asks = self._admission.is_needed()
        pods: list[Create] = []
        if held_s > 0:
            self._schedule(place, held_s)
        for action in actions:
            if isinstance(action, Revisit):
                self._schedule(place, action.after_s)
            elif isinstance(action, Create) and (held_s > 0 or (asks and action.kind is POD)):
                pods += [] if held_s > 0 else [action]
            elif self._is_refused(obj, action):
                return self._hold(place)
        if pods:
            creating = self._create_pods(place, uid(obj), pods)
            self._creating[place] = asyncio.create_task(creating, name=f"pods of {place[2]}")
            self._creating[place].add_done_callback(log_failure)
        return None

    async def _create_pods(self, place: Place, owner_uid: str, pods: Sequence[Create]) -> None:
        """Create the pods, unless webhooks or the store refuse them or their owner goes."""
        try:
            for action in pods:
                owner = self._store.find(*place)
                if owner is None or uid(owner) != owner_uid or is_terminating(owner):
                    break
                try:
                    await self._admission.create(action.obj["metadata"]["namespace"], action.obj, [])
                except StatusError as refused:
                    self._record_refusal(owner, refused)
                    self._hold(place)
                    break
        finally:
            # Replaced by the plan that is scheduled below.
            del self._creating[place]
            self._due_s.pop(place, None)
        self._schedule(place)

    def _hold(self, place: Place) -> None:
        """Create nothing for an object for a while, after a refusal, and plan it again then."""
        self._held_until_s[place] = self._now_s() + _PAUSE_S
        self._schedule(place, _PAUSE_S)

    def _is_refused(self, planned: JsonObject, action: Create | Update | Delete | Emit) -> bool:
        """Execute one action; return whether it still makes sense and was refused."""
        try:
            match action:
                case Create():
                    self._store.create(action.kind, _namespace(action.obj), action.obj)
                case Update():
                    current = self._current(action.kind, action.obj)
                    self._store.update(action.kind, current, subresource=action.subresource)
                case Delete():
                    self._store.delete(action.kind, *key_of(action.obj), uid=uid(action.obj))
                case Emit():
                    self._record(planned, action)
        except StatusError as refused:
            # The object is gone or was replaced; that change causes the next plan.
            if refused.code == 404 and not isinstance(action, Create):
                return False
            if refused.code == 409 and isinstance(action, Delete):
                return False
            if isinstance(action, Create):
                self._record_refusal(planned, refused)
            return True
        return False

    def _current(self, kind: Kind, obj: JsonObject) -> JsonObject:
        """Return `obj` with the stored resourceVersion: a plan and its writes happen in one turn of the event loop."""
        stored = self._store.get(kind, *key_of(obj))
        return replaced(obj, ("metadata", "resourceVersion"), stored["metadata"]["resourceVersion"])

    # -- events ----------------------------------------------------------------------------------------------

    def _record_refusal(self, owner: JsonObject, refused: StatusError) -> None:
        """Record on the owner why something of it could not be created."""
        self._record(owner, Emit("FailedCreate", f"Error creating: {refused.message}"))

    def _record(self, planned: JsonObject, emit: Emit) -> None:
        """Store the event, or count it on an equal one. Never raises."""
        metadata, now = planned["metadata"], rfc3339(self._store.now_s())
        namespace, component = metadata.get("namespace", "default"), f"{planned['kind'].lower()}-controller"
        mark = crc32(f"{uid(planned)} {emit.reason} {emit.message}".encode())
        name = f"{metadata['name'][:200].rstrip('-.')}.{mark:x}"
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
            "reportingInstance": "",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "eventTime": None,
        }
        earlier = self._store.find(CORE_EVENT, namespace, name)
        try:
            if earlier is None:
                self._store.create(CORE_EVENT, namespace, event)
            else:
                counted = {**earlier, "count": earlier.get("count", 1) + 1, "lastTimestamp": now}
                self._store.update(CORE_EVENT, counted)
        except StatusError as refused:
            # A terminating namespace takes no events.
            if refused.code not in (403, 404):
                _LOG.warning("event %s was refused: %s", emit.reason, refused.message)


def _namespace(obj: JsonObject) -> str:
    return str(obj["metadata"].get("namespace", ""))


def log_failure(task: asyncio.Task[None]) -> None:
    """Log why a task failed, unless it was cancelled."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _LOG.error("%s: %s", task.get_name(), error, exc_info=error)

"""
The loop that plans objects and executes their plans.

House rules:

1. Level-triggered: an object that changed, or whose dependents changed, is planned again from the present state.
2. Coalescing: many changes cause one plan; an object waits longer after a costly plan, so that planning never takes
   more than a tenth of the time.
3. A plan and the writes that it orders happen in one turn of the event loop: nothing changes between them.
4. Pods that webhooks are asked about are created after that; their owner is not planned again before.
5. A refused write ends the plan; the object is tried again after a growing pause.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from scheduler.sandbox.devcluster.controllers.actions import (
    Action,
    Create,
    Delete,
    Emit,
    Revisit,
    Update,
    UpdateStatus,
    replaced,
)
from scheduler.sandbox.devcluster.controllers.kubelet import KubeletLoop, KubeletSettings
from scheduler.sandbox.devcluster.controllers.ownership import key_of, uid
from scheduler.sandbox.devcluster.controllers.planning import COMPONENTS, Place, Planner
from scheduler.sandbox.devcluster.controllers.pods import is_terminating
from scheduler.sandbox.devcluster.controllers.queue import WorkQueue
from scheduler.sandbox.devcluster.kinds import (
    CORE_EVENT,
    POD,
    JsonObject,
    Kind,
)
from scheduler.sandbox.devcluster.status import StatusError
from scheduler.sandbox.devcluster.storage.store import Store
from scheduler.sandbox.devcluster.timestamps import rfc3339
from scheduler.sandbox.devcluster.webhooks import WebhookAdmission

_LOG: Final = logging.getLogger(__name__)
#: An object is planned at most once in `_PACE_S`, and at most once in `_PACE_FACTOR` times its last plan's duration.
_PACE_S: Final = 0.005
_PACE_FACTOR: Final = 10.0
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0


async def run_controllers(
    store: Store,
    kubelet: KubeletSettings | None = None,
    admission: WebhookAdmission | None = None,
    *,
    now_s: Callable[[], float] = time.monotonic,
) -> None:
    """
    Run controllers and kubelet stand-in on `store` until cancelled; `admission` asks webhooks about new pods.

    Both wait by the clock `now_s`.
    """
    workloads = ControllerLoop(store, admission, now_s)
    pods = KubeletLoop(store, kubelet or KubeletSettings(), now_s)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(workloads.run(), name="devcluster controllers")
            tasks.create_task(pods.run(), name="devcluster kubelet")
    finally:
        workloads.close()
        pods.close()


@dataclass(frozen=True, slots=True)
class _Failure:
    """For how long, and until when, nothing new is created for an object whose last plan was refused."""

    pause_s: float
    until_s: float


class ControllerLoop:
    """Plans objects that changed and executes the plans. Times inside are of the monotonic clock `now_s`."""

    def __init__(
        self,
        store: Store,
        admission: WebhookAdmission | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._now_s, self._admission = store, now_s, admission
        #: Owner -> the task that creates its pods through webhooks.
        self._creating: dict[Place, asyncio.Task[None]] = {}
        #: Object that waits to be planned -> when it is due.
        self._due_s: dict[Place, float] = {}
        #: Entries that differ from `_due_s` are outdated.
        self._queue: WorkQueue[Place] = WorkQueue(now_s)
        #: Object -> the earliest time of its next plan.
        self._not_before_s: dict[Place, float] = {}
        self._failures: dict[Place, _Failure] = {}
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
            self._failures.pop(place, None)
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
        failure = self._failures.get(place)
        is_held = failure is not None and self._now_s() < failure.until_s
        asks = self._admission is not None and self._admission.is_needed()
        pods, revisit_s = [], None
        for action in actions:
            if isinstance(action, Revisit):
                revisit_s = action.after_s
            elif isinstance(action, Create) and (is_held or (asks and action.kind is POD)):
                pods += [] if is_held else [action]
            elif (refused := self._refusal_of(place[0], action)) is not None:
                return self._finish(place, refused, revisit_s, is_held=is_held)
        if not pods or self._admission is None:
            return self._finish(place, None, revisit_s, is_held=is_held)
        creating = self._create_pods(place, uid(obj), pods, self._admission, revisit_s)
        self._creating[place] = asyncio.create_task(creating, name=f"pods of {place[2]}")
        return self._creating[place].add_done_callback(log_failure)

    async def _create_pods(
        self,
        place: Place,
        owner_uid: str,
        pods: Sequence[Create],
        admission: WebhookAdmission,
        revisit_s: float | None,
    ) -> None:
        """Create the pods, unless webhooks or the store refuse them or their owner goes."""
        refused = None
        try:
            for action in pods:
                owner = self._store.find(*place)
                if owner is None or uid(owner) != owner_uid or is_terminating(owner):
                    break
                try:
                    pod = await admission.create(action.obj["metadata"]["namespace"], action.obj, [])
                    self._record_write(place[0], action, pod)
                except StatusError as refusal:
                    refused = refusal
                    self._record_refusal(place[0], action, refusal)
                    break
        finally:
            # Replaced by the plan that is scheduled below.
            del self._creating[place]
            self._due_s.pop(place, None)
        self._finish(place, refused, revisit_s, is_held=False)
        self._schedule(place)

    def _finish(
        self, place: Place, refused: StatusError | None, revisit_s: float | None, *, is_held: bool
    ) -> None:
        """Schedule a retry after a refusal; lift the pause after a success."""
        now_s, failure = self._now_s(), self._failures.get(place)
        if refused is not None:
            pause_s = min(failure.pause_s * 2, _LONGEST_PAUSE_S) if failure else _FIRST_PAUSE_S
            self._failures[place] = _Failure(pause_s, now_s + pause_s)
            revisit_s = pause_s
        elif failure is not None and is_held:
            revisit_s = min(failure.until_s - now_s, _LONGEST_PAUSE_S if revisit_s is None else revisit_s)
        else:
            self._failures.pop(place, None)
        if revisit_s is not None:
            self._schedule(place, revisit_s)

    def _refusal_of(
        self, planned: Kind, action: Create | Update | UpdateStatus | Delete | Emit
    ) -> StatusError | None:
        """Execute one action and return None; return the refusal if the action still makes sense and was refused."""
        try:
            match action:
                case Create():
                    made = self._store.create(action.kind, _namespace(action.obj), action.obj)
                    self._record_write(planned, action, made)
                case Update():
                    self._store.update(action.kind, self._current(action.kind, action.obj))
                case UpdateStatus():
                    current = self._current(action.kind, action.obj)
                    self._store.update(action.kind, current, subresource="status")
                case Delete():
                    self._store.delete(action.kind, *key_of(action.obj), uid=uid(action.obj))
                    self._record_write(planned, action, action.obj)
                case Emit():
                    self._record(planned, action)
        except StatusError as refused:
            # The object is gone or was replaced; that change causes the next plan.
            if refused.code == 404 and not isinstance(action, Create):
                return None
            if refused.code == 409 and isinstance(action, Delete):
                return None
            self._record_refusal(planned, action, refused)
            return refused
        return None

    def _current(self, kind: Kind, obj: JsonObject) -> JsonObject:
        """Return `obj` with the stored resourceVersion: a plan and its writes happen in one turn of the event loop."""
        stored = self._store.get(kind, *key_of(obj))
        return replaced(obj, ("metadata", "resourceVersion"), stored["metadata"]["resourceVersion"])

    # -- events ----------------------------------------------------------------------------------------------

    def _record_write(self, planned: Kind, action: Create | Delete, obj: JsonObject) -> None:
        """Record on the owner, if there is one, that something of it was created or deleted."""
        if action.owner is None:
            return
        verb, name = "Create" if isinstance(action, Create) else "Delete", obj["metadata"]["name"]
        event = Emit(action.owner, f"Successful{verb}", f"{verb}d {action.kind.singular}: {name}")
        self._record(planned, event)

    def _record_refusal(self, planned: Kind, action: Action, refused: StatusError) -> None:
        """Record on the owner why its pod could not be created."""
        if isinstance(action, Create) and action.owner is not None:
            text = f"Error creating: {refused.message}"
            self._record(planned, Emit(action.owner, "FailedCreate", text, "Warning"))

    def _record(self, planned: Kind, emit: Emit) -> None:
        """Store the event, or count it on an equal one. Never raises."""
        metadata, now = emit.about["metadata"], rfc3339(self._store.now_s())
        namespace = metadata.get("namespace", "default")
        mark = crc32(f"{uid(emit.about)} {emit.reason} {emit.message}".encode())
        name = f"{metadata['name'][:200].rstrip('-.')}.{mark:x}"
        about = {
            "apiVersion": emit.about["apiVersion"],
            "kind": emit.about["kind"],
            "name": metadata["name"],
            "namespace": metadata.get("namespace", ""),
            "resourceVersion": metadata.get("resourceVersion", ""),
            "uid": uid(emit.about),
        }
        event = {
            "metadata": {"name": name},
            "involvedObject": about,
            "reason": emit.reason,
            "message": emit.message,
            "type": emit.type,
            "source": {"component": COMPONENTS[planned]},
            "reportingComponent": COMPONENTS[planned],
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

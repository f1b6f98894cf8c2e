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
import contextlib
import heapq
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from scheduler.sandbox.devcluster.controllers.actions import Action, Create
from scheduler.sandbox.devcluster.controllers.device_claims import DEVICE_CLAIM_CONTROLLER
from scheduler.sandbox.devcluster.controllers.execution import Executor
from scheduler.sandbox.devcluster.controllers.index import COMPONENTS
from scheduler.sandbox.devcluster.controllers.kubelet_loop import KubeletLoop, KubeletSettings
from scheduler.sandbox.devcluster.controllers.ownership import uid
from scheduler.sandbox.devcluster.controllers.planning import Planner
from scheduler.sandbox.devcluster.controllers.pods import is_terminating
from scheduler.sandbox.devcluster.kinds import POD, RESOURCE_CLAIM, JsonObject, Kind
from scheduler.sandbox.devcluster.status import StatusError
from scheduler.sandbox.devcluster.storage.store import Store
from scheduler.sandbox.devcluster.webhooks import WebhookAdmission

_LOG: Final = logging.getLogger(__name__)
#: Longest time to hold the event loop.
_SLICE_S: Final = 0.005
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
    workloads, pods = (
        ControllerLoop(store, admission, now_s),
        KubeletLoop(store, kubelet or KubeletSettings(), now_s),
    )
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(workloads.run(), name="devcluster controllers")
            tasks.create_task(pods.run(), name="devcluster kubelet")
    finally:
        workloads.close()
        pods.close()


@dataclass(slots=True)
class _WorkItem:
    """An object that waits to be planned."""

    kind: Kind
    namespace: str
    name: str
    with_orphans: bool
    due_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why an object's last plan was refused, and until when nothing new is created for it."""

    message: str
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
        self._store = store
        self._now_s = now_s
        self._admission = admission
        #: Uid of an owner -> the task that creates its pods through webhooks.
        self._creating: dict[str, asyncio.Task[None]] = {}
        #: Uid -> the object that waits to be planned.
        self._items: dict[str, _WorkItem] = {}
        #: Heap of (due_s, uid); entries that differ from `_items` are outdated.
        self._order: list[tuple[float, str]] = []
        #: Uid -> the earliest time of the next plan.
        self._not_before_s: dict[str, float] = {}
        self._failures: dict[str, _Failure] = {}
        self._woken = asyncio.Event()
        self._executors = {kind: Executor(store, kind, name) for kind, name in COMPONENTS.items()}
        for kind in (POD, RESOURCE_CLAIM):
            self._executors[kind] = Executor(store, kind, DEVICE_CLAIM_CONTROLLER)
        self._planner = Planner(store, self._enqueue, now_s)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._woken.clear()
            await self._work()
            wait_s = max(self._order[0][0] - self._now_s(), 0.0) if self._order else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()

    def close(self) -> None:
        """Stop following the store and creating pods."""
        self._planner.close()
        for task in self._creating.values():
            task.cancel()

    async def _work(self) -> None:
        """Plan every object that is due, yielding to the event loop in between."""
        began_s = self._now_s()
        while self._order and self._order[0][0] <= self._now_s():
            due_s, key = heapq.heappop(self._order)
            item = self._items.get(key)
            # An owner whose pods are being created is planned again afterwards.
            if item is not None and item.due_s == due_s and key not in self._creating:
                del self._items[key]
                self._process(key, item)
            if self._now_s() - began_s > _SLICE_S:
                await asyncio.sleep(0)
                began_s = self._now_s()

    def _enqueue(self, kind: Kind, obj: JsonObject, *, with_orphans: bool) -> None:
        metadata = obj["metadata"]
        item = _WorkItem(kind, metadata.get("namespace", ""), metadata["name"], with_orphans)
        self._schedule(uid(obj), item, 0.0)

    def _schedule(self, key: str, item: _WorkItem, after_s: float) -> None:
        """Plan the object no later than `after_s` from now, as far as its pace allows."""
        item.due_s = max(self._now_s() + after_s, self._not_before_s.get(key, 0.0))
        queued = self._items.get(key)
        if queued is not None:
            queued.with_orphans |= item.with_orphans
            if queued.due_s <= item.due_s:
                return
            item.with_orphans = queued.with_orphans
        self._items[key] = item
        heapq.heappush(self._order, (item.due_s, key))
        self._woken.set()

    def _process(self, key: str, item: _WorkItem) -> None:
        """Plan the object, and execute the plan."""
        began_s = self._now_s()
        obj = self._store.find(item.kind, item.namespace, item.name)
        if obj is None or uid(obj) != key:
            self._not_before_s.pop(key, None)
            self._failures.pop(key, None)
            return
        try:
            failure = self._failures.get(key)
            reason = failure.message if failure else None
            actions = self._planner.plan(item.kind, obj, with_orphans=item.with_orphans, failure=reason)
        except (AttributeError, KeyError, TypeError, ValueError) as malformed:
            _LOG.warning("%s %s/%s is malformed: %r", item.kind.kind, item.namespace, item.name, malformed)
            return
        self._execute(key, item, actions)
        ended_s = self._now_s()
        self._not_before_s[key] = ended_s + max(_PACE_S, _PACE_FACTOR * (ended_s - began_s))

    def _execute(self, key: str, item: _WorkItem, actions: Sequence[Action]) -> None:
        now_s = self._now_s()
        failure = self._failures.get(key)
        is_held = failure is not None and now_s < failure.until_s
        if is_held:
            actions = [action for action in actions if not isinstance(action, Create)]
        pods: list[Create] = []
        if self._admission is not None and self._admission.is_needed():
            pods = [action for action in actions if isinstance(action, Create) and action.kind is POD]
            actions = [
                action for action in actions if not isinstance(action, Create) or action.kind is not POD
            ]
        refused, revisit_s = self._executors[item.kind].execute(actions)
        if pods and refused is None and self._admission is not None:
            creating = self._create_pods(key, item, pods, self._admission, revisit_s)
            self._creating[key] = asyncio.create_task(creating, name=f"pods of {item.name}")
            self._creating[key].add_done_callback(log_failure)
            return
        self._finish(key, item, refused, revisit_s, is_held=is_held)

    async def _create_pods(
        self,
        key: str,
        item: _WorkItem,
        pods: Sequence[Create],
        admission: WebhookAdmission,
        revisit_s: float | None,
    ) -> None:
        """Create the pods, unless webhooks or the store refuse them or their owner goes."""

        def is_wanted() -> bool:
            owner = self._store.find(item.kind, item.namespace, item.name)
            return owner is not None and uid(owner) == key and not is_terminating(owner)

        try:
            refused = await self._executors[item.kind].make(pods, admission, is_wanted)
        finally:
            # Replaced by the plan that is scheduled below.
            del self._creating[key]
            self._items.pop(key, None)
        self._finish(key, item, refused, revisit_s, is_held=False)
        self._schedule(key, replace(item, with_orphans=True), 0.0)

    def _finish(
        self,
        key: str,
        item: _WorkItem,
        refused: StatusError | None,
        revisit_s: float | None,
        *,
        is_held: bool,
    ) -> None:
        """Schedule a retry after a refusal; lift the pause after a success."""
        now_s, failure = self._now_s(), self._failures.get(key)
        if refused is not None:
            pause_s = min(failure.pause_s * 2, _LONGEST_PAUSE_S) if failure else _FIRST_PAUSE_S
            self._failures[key] = _Failure(refused.message, pause_s, now_s + pause_s)
            revisit_s = 0.0
        elif failure is not None and is_held:
            revisit_s = min(failure.until_s - now_s, _LONGEST_PAUSE_S if revisit_s is None else revisit_s)
        elif self._failures.pop(key, None) is not None:
            revisit_s = 0.0
        if revisit_s is not None:
            self._schedule(key, replace(item, with_orphans=False), revisit_s)


def log_failure(task: asyncio.Task[None]) -> None:
    """Log why a task failed, unless it was cancelled."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _LOG.error("%s: %s", task.get_name(), error, exc_info=error)

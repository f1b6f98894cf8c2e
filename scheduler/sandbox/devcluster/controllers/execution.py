"""Executes the actions of a plan on the store, and records events about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from scheduler.sandbox.devcluster.controllers.actions import (
    Action,
    Create,
    Delete,
    Emit,
    Revisit,
    Update,
    UpdateStatus,
)
from scheduler.sandbox.devcluster.controllers.copies import replaced
from scheduler.sandbox.devcluster.controllers.ownership import uid
from scheduler.sandbox.devcluster.controllers.recorder import Recorder
from scheduler.sandbox.devcluster.kinds import PERSISTENT_VOLUME_CLAIM, STATEFUL_SET, JsonObject, Kind
from scheduler.sandbox.devcluster.status import StatusError
from scheduler.sandbox.devcluster.storage.store import Store
from scheduler.sandbox.devcluster.webhooks import WebhookAdmission


class Executor:
    """Turns actions of one controller into writes, in order, up to the first that is refused."""

    def __init__(self, store: Store, kind: Kind, component: str) -> None:
        """Execute plans of `kind`, and record events as `component`."""
        self._store = store
        self._kind = kind
        self._recorder = Recorder(store, component)

    def execute(self, actions: Iterable[Action]) -> tuple[StatusError | None, float | None]:
        """Return (the refusal that ended it or None, seconds until the object is planned again or None)."""
        revisit_s = None
        for action in actions:
            if isinstance(action, Revisit):
                revisit_s = action.after_s
            elif (refused := self._execute_one(action)) is not None:
                return refused, revisit_s
        return None, revisit_s

    async def make(
        self, pods: Iterable[Create], admission: WebhookAdmission, is_wanted: Callable[[], bool]
    ) -> StatusError | None:
        """Create pods as `execute` does, but through webhooks, as long as they are wanted."""
        for action in pods:
            if not is_wanted():
                return None
            try:
                namespace = action.obj["metadata"]["namespace"]
                self._record_creation(action, await admission.create(namespace, action.obj, []))
            except StatusError as refused:
                self._record_refusal(action, refused)
                return refused
        return None

    def _execute_one(self, action: Create | Update | UpdateStatus | Delete | Emit) -> StatusError | None:
        """Execute one action and return None; return the refusal if the action still makes sense and was refused."""
        try:
            match action:
                case Create():
                    self._create(action)
                case Update():
                    self._store.update(action.kind, self._current(action.kind, action.obj))
                case UpdateStatus():
                    current = self._current(action.kind, action.obj)
                    self._store.update(action.kind, current, subresource="status")
                case Delete():
                    self._delete(action)
                case Emit():
                    self._recorder.record(action)
        except StatusError as refused:
            # The object is gone or was replaced; that change causes the next plan.
            if refused.code == 404 and not isinstance(action, Create):
                return None
            if refused.code == 409 and isinstance(action, Delete):
                return None
            self._record_refusal(action, refused)
            return refused
        return None

    def _current(self, kind: Kind, obj: JsonObject) -> JsonObject:
        """Return `obj` with the stored resourceVersion: a plan and its writes happen in one turn of the event loop."""
        metadata = obj["metadata"]
        stored = self._store.get(kind, metadata.get("namespace", ""), metadata["name"])
        return replaced(obj, ("metadata", "resourceVersion"), stored["metadata"]["resourceVersion"])

    def _create(self, action: Create) -> None:
        namespace = action.obj["metadata"].get("namespace", "")
        self._record_creation(action, self._store.create(action.kind, namespace, action.obj))

    def _record_creation(self, action: Create, created: JsonObject) -> None:
        """Record an event on the owner, if there is one."""
        if action.owner is None:
            return
        name, owner = created["metadata"]["name"], action.owner["metadata"]["name"]
        text = f"Created {created['kind'].lower()}: {name}"
        if self._kind is STATEFUL_SET:
            noun = "Claim" if action.kind is PERSISTENT_VOLUME_CLAIM else "Pod"
            text = f"create {noun} {name} in StatefulSet {owner} successful"
        self._recorder.record(Emit(action.owner, "SuccessfulCreate", text))

    def _delete(self, action: Delete) -> None:
        metadata = action.obj["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        self._store.delete(action.kind, namespace, name, uid=uid(action.obj))
        if action.owner is None:
            return
        text = f"Deleted {action.kind.singular}: {name}"
        if self._kind is STATEFUL_SET:
            text = f"delete Pod {name} in StatefulSet {action.owner['metadata']['name']} successful"
        self._recorder.record(Emit(action.owner, "SuccessfulDelete", text))

    def _record_refusal(self, action: Action, refused: StatusError) -> None:
        """Record on the owner why its pod could not be created."""
        if not isinstance(action, Create):
            return
        if action.owner is not None:
            text = f"Error creating: {refused.message}"
            self._recorder.record(Emit(action.owner, "FailedCreate", text, "Warning"))

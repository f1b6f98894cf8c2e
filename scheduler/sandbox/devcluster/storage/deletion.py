"""
Deletes objects: grace, finalizers, the dependents of a deleted owner, and the content of a deleted namespace.

Upstream leaves the last two to controllers that act a moment later. Here they happen within the deletion, so that tests
need not wait. Differences: a deletion in the foreground is one in the background; an owner that was never there counts.

Source: apiserver pkg/registry/generic/registry/store.go, Delete; pkg/controller/garbagecollector;
pkg/controller/namespace (kubernetes 1.36).
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from scheduler.sandbox.devcluster.admission.pods import grace_period_s
from scheduler.sandbox.devcluster.kinds import (
    CUSTOM_RESOURCE_DEFINITION,
    NAMESPACE,
    POD,
    JsonObject,
    Kind,
    ServedKinds,
)
from scheduler.sandbox.devcluster.parts import rfc3339
from scheduler.sandbox.devcluster.storage.history import History, ObjectChange


class Deletion(NamedTuple):
    """The result of a deletion: the object's last state, and whether it is gone or only marked."""

    obj: JsonObject
    gone: bool


class Deleter:
    """Deletes objects of one history, and everything that depends on them."""

    def __init__(self, history: History, kinds: ServedKinds) -> None:
        self._history = history
        self._kinds = kinds
        #: Owner uid -> its dependents by kind, namespace and name.
        self._dependents: dict[str, dict[tuple[Kind, str, str], JsonObject]] = defaultdict(dict)
        history.listeners.append(self._on_change)

    def _on_change(self, kind: Kind, change: ObjectChange) -> None:
        metadata = change.revision.obj["metadata"]
        key = kind, metadata.get("namespace", ""), metadata["name"]
        for uid in _owner_uids(change.previous.obj) if change.previous is not None else ():
            self._dependents[uid].pop(key, None)
            if not self._dependents[uid]:
                del self._dependents[uid]
        for uid in _owner_uids(change.revision.obj) if change.type != "DELETED" else ():
            self._dependents[uid][key] = change.revision.obj

    def dependents(self, uid: str) -> list[tuple[Kind, JsonObject]]:
        """Return the objects that have an owner with this uid, with their kinds. Cost: O(objects returned)."""
        return [(key[0], obj) for key, obj in self._dependents.get(uid, {}).items()]

    def is_finished(self, obj: JsonObject) -> bool:
        """Return True if a terminating object has no grace and no finalizer left."""
        metadata = obj["metadata"]
        held = metadata.get("finalizers") or (obj.get("spec") or {}).get("finalizers")
        is_terminating = bool(metadata.get("deletionTimestamp"))
        return is_terminating and not held and not metadata["deletionGracePeriodSeconds"]

    def delete(
        self, kind: Kind, old: JsonObject, asked_s: int | None = None, propagation: str | None = None
    ) -> Deletion:
        """Mark an object, or remove it if nothing holds it; `propagation` is the deletion policy of its dependents."""
        if propagation == "Orphan":
            self._release(old["metadata"]["uid"], ends=False)
        if kind is NAMESPACE:
            return self._delete_namespace(old)
        marked = _marked(old, grace_period_s(old, asked_s) if kind is POD else 0)
        is_finished = self.is_finished(marked)
        # Pods know of grace: even one that goes at once is marked first, and watches see both.
        if marked is not old and (kind is POD or not is_finished):
            marked = self._history.put(kind, marked).obj
        return Deletion(
            self.remove(kind, marked if kind is POD else old) if is_finished else marked, is_finished
        )

    def remove(self, kind: Kind, obj: JsonObject) -> JsonObject:
        """Remove an object, dependents without another owner, and a terminating namespace that is now empty."""
        metadata = obj["metadata"]
        for custom in self._kinds.defined_by(metadata["name"]) if kind is CUSTOM_RESOURCE_DEFINITION else ():
            # Whatever finalizers they have: their kind is gone.
            for revision in self._history.snapshot(custom):
                self.remove(custom, revision.obj)
        gone = self._history.remove(kind, obj).as_kind(kind)
        self._release(metadata["uid"])
        if kind.namespaced:
            self._end_namespace_if_empty(metadata["namespace"])
        return gone

    def _newest(self, kind: Kind, obj: JsonObject) -> JsonObject | None:
        """Return the newest state of an object; None if an earlier deletion took it along."""
        metadata = obj["metadata"]
        found = self._history.find(kind, metadata.get("namespace", ""), metadata["name"])
        return None if found is None else found.obj

    def _release(self, uid: str, *, ends: bool = True) -> None:
        """Remove the owner from the references of its dependents; with `ends` delete those without another one."""
        for kind, dependent in self.dependents(uid):
            if (obj := self._newest(kind, dependent)) is None:
                continue
            owners = [one for one in obj["metadata"]["ownerReferences"] if one["uid"] != uid]
            if owners or not ends:
                self._history.put(kind, {**obj, "metadata": {**obj["metadata"], "ownerReferences": owners}})
            else:
                self.delete(kind, obj)

    def _stored_kinds(self) -> list[Kind]:
        """Return one kind for each storage of namespaced objects."""
        return list({kind.storage: kind for kind in self._kinds.all() if kind.namespaced}.values())

    def _delete_namespace(self, old: JsonObject) -> Deletion:
        """Mark the namespace as Terminating and delete its content; it ends with the last object in it."""
        name = old["metadata"]["name"]
        marked = _marked(old, 0)
        marked = {**marked, "status": {**(marked.get("status") or {}), "phase": "Terminating"}}
        stored = old if marked == old else self._history.put(NAMESPACE, marked).obj
        for kind in self._stored_kinds():
            for revision in self._history.snapshot(kind, name):
                if (newest := self._newest(kind, revision.obj)) is not None:
                    self.delete(kind, newest)
        self._end_namespace_if_empty(name)
        return Deletion(stored, gone=self._history.find(NAMESPACE, "", name) is None)

    def _end_namespace_if_empty(self, name: str) -> None:
        found = self._history.find(NAMESPACE, "", name)
        if found is None or not found.obj["metadata"].get("deletionTimestamp"):
            return
        if any(self._history.snapshot(kind, name) for kind in self._stored_kinds()):
            return
        emptied = {**found.obj, "spec": {**(found.obj.get("spec") or {}), "finalizers": []}}
        if self.is_finished(emptied):
            self._history.remove(NAMESPACE, emptied)


def _marked(old: JsonObject, grace_s: int) -> JsonObject:
    """Return the object marked as terminating; a second deletion can only shorten its grace."""
    metadata = dict(old["metadata"])
    if "deletionTimestamp" in metadata and metadata.get("deletionGracePeriodSeconds", 0) <= grace_s:
        return old
    metadata["deletionTimestamp"] = rfc3339(time.time() + grace_s)
    metadata["deletionGracePeriodSeconds"] = grace_s
    if metadata.get("generation") and "deletionTimestamp" not in old["metadata"]:
        metadata["generation"] += 1
    return {**old, "metadata": metadata}


def _owner_uids(obj: JsonObject) -> Iterator[str]:
    owners = obj["metadata"].get("ownerReferences")
    # Tests inject malformed objects.
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, dict) and "uid" in owner:
            yield owner["uid"]

"""
How objects end: grace, finalizers, dependents of a deleted owner, and the content of a deleted namespace.

Upstream leaves the last two to controllers that act a moment later; here they happen within the deletion, in
the same order, so tests need no waiting.
Source: apiserver pkg/registry/generic/registry/store.go, Delete; pkg/controller/garbagecollector;
pkg/controller/namespace (kubernetes 1.36).
"""

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from scheduler.devcluster.kinds import KINDS, NAMESPACE, POD, JsonObject, Kind
from scheduler.devcluster.storage.history import Change

if TYPE_CHECKING:
    from scheduler.devcluster.storage.store import Store

_FOREGROUND: Final = "foregroundDeletion"


class Deletion(NamedTuple):
    """What a deletion did: the object's last state, and whether it is gone or only marked."""

    obj: JsonObject
    gone: bool


class Garbage:
    """Ends objects of one store, and what hangs on them."""

    def __init__(self, store: "Store") -> None:
        self._store = store
        #: Owner uid -> dependents as (kind, namespace, name), for every stored object that names an owner.
        self._dependents: dict[str, set[tuple[Kind, str, str]]] = defaultdict(set)
        store.history.listeners.append(self._index)

    def _index(self, kind: Kind, change: Change) -> None:
        """The owner index follows every write."""
        if change.previous is not None:
            for uid, entry in _owner_entries(kind, change.previous.obj):
                self._dependents[uid].discard(entry)
                if not self._dependents[uid]:
                    del self._dependents[uid]
        if change.type != "DELETED":
            for uid, entry in _owner_entries(kind, change.revision.obj):
                self._dependents[uid].add(entry)

    def ends(self, obj: JsonObject) -> bool:
        """Whether a terminating object has nothing left that keeps it."""
        metadata = obj["metadata"]
        held = metadata.get("finalizers") or (obj.get("spec") or {}).get("finalizers")
        return (
            bool(metadata.get("deletionTimestamp"))
            and not held
            and not metadata["deletionGracePeriodSeconds"]
        )

    def delete(self, kind: Kind, old: JsonObject, grace_s: int, propagation: str | None) -> Deletion:
        """The object is marked, or gone where nothing keeps it; its dependents follow as `propagation` says."""
        if propagation == "Orphan":
            self._orphan(old["metadata"]["uid"])
        if kind is NAMESPACE:
            return self._delete_namespace(old)
        marked = self._marked(old, grace_s, foreground=propagation == "Foreground")
        if self.ends(marked):
            if kind is not POD:
                return Deletion(self.remove(kind, old), gone=True)
            # Pods know of grace, so even those that go at once are marked first, which watches see.
            last = marked if marked == old else self._store.history.put(kind, marked).obj
            return Deletion(self.remove(kind, last), gone=True)
        if marked == old:
            return Deletion(old, gone=False)
        stored = self._store.history.put(kind, marked).obj
        if propagation == "Foreground":
            self._delete_dependents(old["metadata"]["uid"])
            self._release_owner(kind, old["metadata"].get("namespace", ""), old["metadata"]["name"])
        return Deletion(stored, gone=False)

    def remove(self, kind: Kind, obj: JsonObject) -> JsonObject:
        """The object is gone; dependents without another owner follow, and an emptied namespace ends."""
        metadata = obj["metadata"]
        gone = self._store.history.remove(kind, obj).as_kind(kind)
        self._delete_dependents(metadata["uid"])
        self._release_foreground_owners(metadata.get("ownerReferences") or [], metadata.get("namespace", ""))
        if kind.namespaced:
            self._end_namespace_if_empty(metadata["namespace"])
        return gone

    def _marked(self, old: JsonObject, grace_s: int, *, foreground: bool) -> JsonObject:
        """The object with its deletion written in; a second deletion can only shorten the grace."""
        metadata = dict(old["metadata"])
        finalizers = list(metadata.get("finalizers") or [])
        if foreground and _FOREGROUND not in finalizers and metadata["uid"] in self._dependents:
            finalizers.append(_FOREGROUND)
            metadata["finalizers"] = finalizers
        if "deletionTimestamp" in metadata and metadata.get("deletionGracePeriodSeconds", 0) <= grace_s:
            return {**old, "metadata": metadata} if metadata != old["metadata"] else old
        ends_at = self._store.moment() + timedelta(seconds=grace_s)
        metadata["deletionTimestamp"] = ends_at.strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata["deletionGracePeriodSeconds"] = grace_s
        if metadata.get("generation") and "deletionTimestamp" not in old["metadata"]:
            metadata["generation"] += 1
        return {**old, "metadata": metadata}

    # -- dependents ------------------------------------------------------------------------------------------

    def _delete_dependents(self, uid: str) -> None:
        for kind, namespace, name in sorted(self._dependents.get(uid, ()), key=lambda entry: entry[1:]):
            dependent = self._store.history.find(kind, namespace, name)
            if dependent is not None and not self._has_other_owner(dependent.obj, uid):
                self._store.delete(kind, namespace, name)

    def _has_other_owner(self, obj: JsonObject, uid: str) -> bool:
        """Whether an owner beside `uid` lives on."""
        namespace = obj["metadata"].get("namespace", "")
        others = (one for one in obj["metadata"].get("ownerReferences") or [] if one["uid"] != uid)
        return any(self._find_owner(owner, namespace) is not None for owner in others)

    def _find_owner(self, reference: JsonObject, namespace: str) -> tuple[Kind, JsonObject] | None:
        for kind in KINDS:
            if (kind.api_version, kind.kind) == (reference.get("apiVersion"), reference.get("kind")):
                found = self._store.find(kind, namespace if kind.namespaced else "", reference["name"])
                if found is not None and found["metadata"]["uid"] == reference["uid"]:
                    return kind, found
        return None

    def _orphan(self, uid: str) -> None:
        """No object names the owner any more."""
        for kind, namespace, name in list(self._dependents.get(uid, ())):
            obj = self._store.revision(kind, namespace, name).obj
            owners = [one for one in obj["metadata"]["ownerReferences"] if one["uid"] != uid]
            metadata = {**obj["metadata"], "ownerReferences": owners}
            self._store.history.put(kind, {**obj, "metadata": metadata})

    def _release_foreground_owners(self, references: list[JsonObject], namespace: str) -> None:
        for reference in references:
            owner = self._find_owner(reference, namespace)
            if owner is not None:
                kind, obj = owner
                self._release_owner(kind, namespace if kind.namespaced else "", obj["metadata"]["name"])

    def _release_owner(self, kind: Kind, namespace: str, name: str) -> None:
        """An owner deleted in the foreground ends with its last dependent."""
        found = self._store.history.find(kind, namespace, name)
        if found is None or found.obj["metadata"]["uid"] in self._dependents:
            return
        metadata = found.obj["metadata"]
        finalizers = metadata.get("finalizers") or []
        if _FOREGROUND not in finalizers:
            return
        left = [one for one in finalizers if one != _FOREGROUND]
        released = {**found.obj, "metadata": {**metadata, "finalizers": left}}
        if self.ends(released):
            self.remove(kind, released)
        else:
            self._store.history.put(kind, released)

    # -- namespaces ------------------------------------------------------------------------------------------

    def _delete_namespace(self, old: JsonObject) -> Deletion:
        """The namespace is Terminating and its content deleted; it ends with the last object in it."""
        name = old["metadata"]["name"]
        marked = self._marked(old, 0, foreground=False)
        marked = {**marked, "status": {**(marked.get("status") or {}), "phase": "Terminating"}}
        stored = old if marked == old else self._store.history.put(NAMESPACE, marked).obj
        for kind in _stored_kinds():
            for revision in self._store.history.snapshot(kind, name).revisions:
                if self._store.history.find(kind, name, revision.obj["metadata"]["name"]):
                    self._store.delete(kind, name, revision.obj["metadata"]["name"])
        self._end_namespace_if_empty(name)
        gone = self._store.history.find(NAMESPACE, "", name) is None
        return Deletion(stored, gone=gone)

    def _end_namespace_if_empty(self, name: str) -> None:
        found = self._store.history.find(NAMESPACE, "", name)
        if found is None or not found.obj["metadata"].get("deletionTimestamp"):
            return
        if any(self._store.history.snapshot(kind, name).revisions for kind in _stored_kinds()):
            return
        spec = {**(found.obj.get("spec") or {}), "finalizers": []}
        emptied = {**found.obj, "spec": spec}
        if self.ends(emptied):
            self._store.history.remove(NAMESPACE, emptied)


def _owner_entries(kind: Kind, obj: JsonObject) -> list[tuple[str, tuple[Kind, str, str]]]:
    metadata = obj["metadata"]
    entry = (kind, metadata.get("namespace", ""), metadata["name"])
    owners = metadata.get("ownerReferences")
    if not isinstance(owners, list):
        return []
    return [(owner["uid"], entry) for owner in owners if isinstance(owner, dict) and "uid" in owner]


def _stored_kinds() -> list[Kind]:
    """Each storage of namespaced objects once."""
    by_storage = {kind.storage: kind for kind in KINDS if kind.namespaced and "list" in kind.verbs}
    return list(by_storage.values())

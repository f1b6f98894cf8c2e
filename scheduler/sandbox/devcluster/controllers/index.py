"""
Owners and their dependents, kept up to date by every write to the store.

Cost per write: O(1) for owned objects; O(owners in the namespace) for an orphan with new labels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, Protocol

from scheduler.sandbox.devcluster.controllers.ownership import controller_uid, key_of, owner_selects, uid
from scheduler.sandbox.devcluster.kinds import (
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    POD_DISRUPTION_BUDGET,
    REPLICA_SET,
    STATEFUL_SET,
    JsonObject,
    Kind,
)
from scheduler.sandbox.devcluster.storage.history import Change
from scheduler.sandbox.devcluster.storage.store import Store

#: Kind -> the kinds that may adopt its orphans.
OWNER_KINDS: Final = {
    POD: (REPLICA_SET, STATEFUL_SET, DAEMON_SET, JOB),
    REPLICA_SET: (DEPLOYMENT,),
}
#: Kind that is planned whenever it changes -> the name under which its controller records events.
COMPONENTS: Final = {
    DEPLOYMENT: "deployment-controller",
    REPLICA_SET: "replicaset-controller",
    STATEFUL_SET: "statefulset-controller",
    POD_DISRUPTION_BUDGET: "controllermanager",
    PERSISTENT_VOLUME_CLAIM: "persistentvolume-controller",
    PERSISTENT_VOLUME: "persistentvolume-controller",
    DAEMON_SET: "daemonset-controller",
    JOB: "job-controller",
}

Objects = dict[tuple[str, str], JsonObject]


class OnDirty(Protocol):
    """Called for an owner that changed, or whose dependents changed."""

    def __call__(self, kind: Kind, obj: JsonObject, *, with_orphans: bool) -> None:
        """Plan `obj` again; `with_orphans` if it may adopt orphans that it has not seen."""


class OwnerIndex:
    """Owners and their dependents. The objects are the store's: shared, never changed."""

    def __init__(self, store: Store, on_dirty: OnDirty) -> None:
        self._store = store
        self._on_dirty = on_dirty
        #: Kind of dependent -> owner uid, or "/" + namespace for orphans -> dependents.
        self._dependents: dict[Kind, defaultdict[str, Objects]] = {
            kind: defaultdict(dict) for kind in OWNER_KINDS
        }
        #: Kind -> namespace -> the objects that are planned.
        self._owners: dict[Kind, defaultdict[str, Objects]] = {kind: defaultdict(dict) for kind in COMPONENTS}
        self._owner_by_uid: dict[str, tuple[Kind, JsonObject]] = {}
        #: Stop following the store.
        self.close: Final = store.history.follow((*COMPONENTS, POD), self._follow)

    def owned(self, kind: Kind, owner: JsonObject) -> Iterable[JsonObject]:
        """Return the objects of `kind` that `owner` controls."""
        return list(self._dependents[kind].get(uid(owner), {}).values())

    def orphans(self, kind: Kind, owner: JsonObject) -> Iterable[JsonObject]:
        """Return the objects of `kind` in the owner's namespace that nothing controls. Cost: O(orphans there)."""
        return list(self._dependents[kind].get(_orphan_key(owner), {}).values())

    def owner(self, owner_uid: str | None) -> JsonObject | None:
        """Return the deployment, replica set or stateful set with this uid."""
        found = self._owner_by_uid.get(owner_uid or "")
        return found[1] if found else None

    def scaler(self, pod: JsonObject) -> JsonObject | None:
        """Return the workload whose `spec.replicas` says how many pods like this there should be."""
        owner = self.owner(controller_uid(pod))
        return (self.owner(controller_uid(owner)) or owner) if owner else None

    def _follow(self, kind: Kind, change: Change) -> None:
        """Apply a change of the store, and call `on_dirty` for every owner that it concerns."""
        if kind in self._owners:
            self._follow_owner(kind, change)
        if kind in self._dependents:
            self._follow_dependent(kind, change)
        if kind is NODE:
            self._notify_daemon_sets(change)

    def _follow_owner(self, kind: Kind, change: Change) -> None:
        obj, previous = change.revision.obj, change.previous
        owners = self._owners[kind][obj["metadata"].get("namespace", "")]
        if change.type == "DELETED":
            owners.pop(key_of(obj), None)
            self._owner_by_uid.pop(uid(obj), None)
            self._on_dirty(kind, obj, with_orphans=False)
            return
        owners[key_of(obj)] = obj
        self._owner_by_uid[uid(obj)] = kind, obj
        is_new = previous is None or previous.obj.get("spec") != obj.get("spec")
        self._on_dirty(kind, obj, with_orphans=is_new)

    def _follow_dependent(self, kind: Kind, change: Change) -> None:
        obj, previous = change.revision.obj, change.previous
        places = {_owner_key(obj)}
        if previous is not None:
            places.add(_owner_key(previous.obj))
            self._remove_dependent(kind, previous.obj)
        if change.type != "DELETED":
            self._dependents[kind][_owner_key(obj)][key_of(obj)] = obj
        for place in places:
            if owner := self._owner_by_uid.get(place):
                self._on_dirty(*owner, with_orphans=False)
        if change.type != "DELETED" and controller_uid(obj) is None:
            self._notify_adopters(kind, obj, previous.obj if previous else None)
        if kind is POD:
            self._notify_budgets([obj] if previous is None else [obj, previous.obj])

    def _notify_budgets(self, pods: list[JsonObject]) -> None:
        namespace = pods[0]["metadata"].get("namespace", "")
        for budget in self._owners[POD_DISRUPTION_BUDGET].get(namespace, {}).values():
            if any(owner_selects(budget, pod) for pod in pods):
                self._on_dirty(POD_DISRUPTION_BUDGET, budget, with_orphans=False)

    def _notify_daemon_sets(self, change: Change) -> None:
        previous = change.previous
        if change.type == "MODIFIED" and previous and _place(change.revision.obj) == _place(previous.obj):
            return
        for in_namespace in self._owners[DAEMON_SET].values():
            for daemon_set in list(in_namespace.values()):
                self._on_dirty(DAEMON_SET, daemon_set, with_orphans=False)

    def _remove_dependent(self, kind: Kind, obj: JsonObject) -> None:
        objects = self._dependents[kind].get(_owner_key(obj))
        if objects is not None:
            objects.pop(key_of(obj), None)
            if not objects:
                del self._dependents[kind][_owner_key(obj)]

    def _notify_adopters(self, kind: Kind, orphan: JsonObject, previous: JsonObject | None) -> None:
        labels = orphan["metadata"].get("labels") or {}
        is_known = previous is not None and controller_uid(previous) is None
        if is_known and previous is not None and (previous["metadata"].get("labels") or {}) == labels:
            return
        for owner_kind in OWNER_KINDS[kind]:
            for owner in self._owners[owner_kind].get(orphan["metadata"].get("namespace", ""), {}).values():
                if owner_selects(owner, orphan):
                    self._on_dirty(owner_kind, owner, with_orphans=True)


def _place(node: JsonObject) -> tuple[object, object]:
    """Return what of a node decides which daemons it takes."""
    return node["metadata"].get("labels"), (node.get("spec") or {}).get("taints")


def _orphan_key(obj: JsonObject) -> str:
    """Return the key of a namespace's orphans; no uid has a slash."""
    return f"/{obj['metadata'].get('namespace', '')}"


def _owner_key(obj: JsonObject) -> str:
    return controller_uid(obj) or _orphan_key(obj)

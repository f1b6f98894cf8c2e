"""
Which claims, volumes and pods concern each other, kept up to date by every write to the store.

Cost per write: O(claims of a pod) for pods; O(unbound claims of the class) for a new volume or class.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final, TypeVar

from scheduler.sandbox.devcluster.admission.volumes import class_name
from scheduler.sandbox.devcluster.controllers.claims import is_bound
from scheduler.sandbox.devcluster.controllers.index import OnDirty
from scheduler.sandbox.devcluster.controllers.ownership import key_of
from scheduler.sandbox.devcluster.controllers.pods import claim_names, is_terminal, node_name
from scheduler.sandbox.devcluster.kinds import (
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STORAGE_CLASS,
    JsonObject,
    Kind,
)
from scheduler.sandbox.devcluster.storage.history import Change
from scheduler.sandbox.devcluster.storage.store import Store

_FOLLOWED: Final = (STORAGE_CLASS, POD, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM)

#: Namespace and name.
Key = tuple[str, str]
Objects = dict[Key, JsonObject]
_Place = TypeVar("_Place", str, Key)


class VolumeIndex:
    """Claims, volumes, pools and the pods with volumes. The objects are the store's: shared, never changed."""

    def __init__(self, store: Store, on_dirty: OnDirty) -> None:
        self._store = store
        self._on_dirty = on_dirty
        #: Claim -> the pods that use it.
        self._pods: defaultdict[Key, Objects] = defaultdict(dict)
        #: Class -> its claims whose binding is not completed.
        self._unbound: defaultdict[str, Objects] = defaultdict(dict)
        #: Class -> its volumes without a claim.
        self._free: defaultdict[str, Objects] = defaultdict(dict)
        #: Claim -> the volumes that refer to it.
        self._promised: defaultdict[Key, Objects] = defaultdict(dict)
        self._followers = {
            POD: self._follow_pod,
            PERSISTENT_VOLUME: self._follow_volume,
            PERSISTENT_VOLUME_CLAIM: self._follow_claim,
            STORAGE_CLASS: self._follow_class,
        }
        #: Stop following the store.
        self.close: Final = store.history.follow(_FOLLOWED, self._follow)

    def pods(self, claim: JsonObject) -> list[JsonObject]:
        """Return the pods that use the claim."""
        return list(self._pods.get(key_of(claim), {}).values())

    def promised(self, claim: JsonObject) -> list[JsonObject]:
        """Return the volumes that refer to the claim."""
        return list(self._promised.get(key_of(claim), {}).values())

    def free(self, of_class: str) -> list[JsonObject]:
        """Return the volumes of a class without a claim. Cost: O(volumes returned)."""
        return list(self._free.get(of_class, {}).values())

    def _follow(self, kind: Kind, change: Change) -> None:
        """Apply a change of the store, and call `on_dirty` for everything that it concerns."""
        if kind in self._followers:
            self._followers[kind](change)

    def _follow_pod(self, change: Change) -> None:
        pod, previous = change.revision.obj, change.previous
        names = claim_names(pod)
        if not names:
            return
        key = key_of(pod)
        is_news = change.type != "MODIFIED" or previous is None or _use(pod) != _use(previous.obj)
        for name in names:
            claim = (key[0], name)
            if change.type == "DELETED":
                _discard(self._pods, claim, key)
            else:
                self._pods[claim][key] = pod
            if is_news:
                self._mark(PERSISTENT_VOLUME_CLAIM, *claim)

    def _follow_volume(self, change: Change) -> None:
        volume, previous = change.revision.obj, change.previous
        key = key_of(volume)
        if previous is not None:
            _discard(self._free, class_name(previous.obj), key)
            _discard(self._promised, _claim_key(previous.obj), key)
        claim = _claim_key(volume)
        if change.type != "DELETED":
            if volume["spec"].get("claimRef"):
                self._promised[claim][key] = volume
            else:
                self._free[class_name(volume)][key] = volume
                if (volume.get("status") or {}).get("phase") == "Available":
                    self._offer(class_name(volume))
        self._mark(PERSISTENT_VOLUME_CLAIM, *claim)

    def _follow_claim(self, change: Change) -> None:
        claim, previous = change.revision.obj, change.previous
        if previous is not None:
            _discard(self._unbound, class_name(previous.obj), key_of(claim))
        if change.type != "DELETED" and not is_bound(claim):
            self._unbound[class_name(claim)][key_of(claim)] = claim
        for _, name in self._promised.get(key_of(claim), ()):
            self._mark(PERSISTENT_VOLUME, "", name)

    def _follow_class(self, change: Change) -> None:
        self._mark_unbound(change.revision.obj["metadata"]["name"])

    def _offer(self, of_class: str) -> None:
        """Plan the claims that may take a free volume of this class; for delayed ones the scheduler chooses."""
        found = self._store.find(STORAGE_CLASS, "", of_class) or {}
        if found.get("volumeBindingMode") != "WaitForFirstConsumer":
            self._mark_unbound(of_class)

    def _mark_unbound(self, of_class: str) -> None:
        for claim in list(self._unbound.get(of_class, {}).values()):
            self._on_dirty(PERSISTENT_VOLUME_CLAIM, claim, with_orphans=False)

    def _mark(self, kind: Kind, namespace: str, name: str) -> None:
        found = self._store.find(kind, namespace, name)
        if found is not None:
            self._on_dirty(kind, found, with_orphans=False)


def _claim_key(volume: JsonObject) -> Key:
    reference = volume["spec"].get("claimRef") or {}
    return reference.get("namespace", ""), reference.get("name", "")


def _use(pod: JsonObject) -> tuple[bool, bool]:
    """Return what of a pod decides whether it uses its claims."""
    return bool(node_name(pod)), is_terminal(pod)


def _discard(index: defaultdict[_Place, Objects], place: _Place, key: Key) -> None:
    objects = index.get(place)
    if objects is not None:
        objects.pop(key, None)
        if not objects:
            del index[place]

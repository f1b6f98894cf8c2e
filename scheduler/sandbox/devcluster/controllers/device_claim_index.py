"""
Which pods use which device claims, kept up to date by every write to the store.

Cost per write: O(claims of a pod) for pods; O(pods of the namespace that name it) for a new template.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from scheduler.sandbox.devcluster.controllers.device_claims import extended_claim, pod_claims
from scheduler.sandbox.devcluster.controllers.index import OnDirty
from scheduler.sandbox.devcluster.controllers.ownership import controller_uid, key_of
from scheduler.sandbox.devcluster.kinds import POD, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, JsonObject, Kind
from scheduler.sandbox.devcluster.storage.history import Change
from scheduler.sandbox.devcluster.storage.store import Store

#: Namespace and name.
Key = tuple[str, str]
Objects = dict[Key, JsonObject]


class DeviceClaimIndex:
    """Pods with device claims, and the claims that pods own. The objects are the store's: shared, never changed."""

    def __init__(self, store: Store, on_dirty: OnDirty) -> None:
        self._store = store
        self._on_dirty = on_dirty
        #: Namespace -> its pods with claims.
        self._pods: defaultdict[str, Objects] = defaultdict(dict)
        #: Claim -> the pods of `_pods` that name it.
        self._users: defaultdict[Key, Objects] = defaultdict(dict)
        #: Uid of a pod -> the claims that it controls.
        self._owned: defaultdict[str, Objects] = defaultdict(dict)
        #: Stop following the store.
        self.close: Final = store.history.follow((POD, RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE), self._follow)

    def owned(self, pod_uid: str) -> list[JsonObject]:
        """Return the claims that a pod controls."""
        return list(self._owned.get(pod_uid, {}).values())

    def _follow(self, kind: Kind, change: Change) -> None:
        """Apply a change of the store, and call `on_dirty` for every pod and claim that it concerns."""
        if kind is POD:
            self._follow_pod(change)
        elif kind is RESOURCE_CLAIM:
            self._follow_claim(change)
        elif kind is RESOURCE_CLAIM_TEMPLATE:
            namespace, name = key_of(change.revision.obj)
            for pod in list(self._pods.get(namespace, {}).values()):
                if any(
                    one.get("resourceClaimTemplateName") == name
                    for one in pod["spec"].get("resourceClaims") or ()
                ):
                    self._on_dirty(POD, pod, with_orphans=False)

    def _follow_pod(self, change: Change) -> None:
        pod, previous = change.revision.obj, change.previous
        if not _names(pod) and not (pod.get("spec") or {}).get("resourceClaims"):
            return
        key = key_of(pod)
        for name in _names(previous.obj) if previous is not None else ():
            self._users[key[0], name].pop(key, None)
        if change.type == "DELETED":
            self._pods[key[0]].pop(key, None)
        else:
            self._pods[key[0]][key] = pod
            for name in _names(pod):
                self._users[key[0], name][key] = pod
            if pod["spec"].get("resourceClaims"):
                self._on_dirty(POD, pod, with_orphans=False)
        for name in _names(pod):
            if not self._users[key[0], name]:
                del self._users[key[0], name]
            claim = self._store.find(RESOURCE_CLAIM, key[0], name)
            if claim is not None:
                self._on_dirty(RESOURCE_CLAIM, claim, with_orphans=False)

    def _follow_claim(self, change: Change) -> None:
        claim, key = change.revision.obj, key_of(change.revision.obj)
        owner = controller_uid(claim)
        pods = list(self._users.get(key, {}).values())
        if owner is not None:
            if change.type == "DELETED":
                self._owned[owner].pop(key, None)
                if not self._owned[owner]:
                    del self._owned[owner]
            else:
                self._owned[owner][key] = claim
            owning = claim["metadata"]["ownerReferences"][0].get("name", "")
            pods += [pod for pod in [self._pods[key[0]].get((key[0], owning))] if pod is not None]
        if change.type != "DELETED":
            self._on_dirty(RESOURCE_CLAIM, claim, with_orphans=False)
        for pod in pods:
            self._on_dirty(POD, pod, with_orphans=False)


def _names(pod: JsonObject) -> set[str]:
    """Return the claims that a pod names, the one for its extended resources included."""
    return {name for name in (*pod_claims(pod).values(), extended_claim(pod)) if name}

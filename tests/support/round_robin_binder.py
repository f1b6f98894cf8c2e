"""The simplest scheduler: it binds pods to the nodes in turn, once their claims are bound."""

import asyncio
import contextlib
import time
from typing import Any

from scheduler.sandbox.devcluster.kinds import (
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STORAGE_CLASS,
    JsonObject,
    Kind,
)
from scheduler.sandbox.devcluster.storage.binding import bind
from scheduler.sandbox.devcluster.storage.history import ObjectChange
from scheduler.sandbox.devcluster.storage.store import ObjectStore

N_NODES = 3
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
#: Seconds until another node is selected after a provisioner gave one up.
_BACKOFF_S = 0.1
_FOLLOWED = (POD, PERSISTENT_VOLUME_CLAIM, PERSISTENT_VOLUME, STORAGE_CLASS, NODE)


async def bind_in_turn(store: ObjectStore) -> None:
    """Bind every new pod to node-0001, node-0002, node-0003 in turn, until cancelled."""
    binder, woken = _Binder(store), asyncio.Event()

    def follow(kind: Kind, change: ObjectChange) -> None:
        if kind is POD:
            binder.note(change)
        if kind in _FOLLOWED:
            woken.set()

    end = store.history.follow((POD,), follow)
    try:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BACKOFF_S if binder.waits else None):
                    await woken.wait()
            woken.clear()
            binder.bind_pending()
    finally:
        end()


class _Binder:
    """Pods that wait for a node, in the order in which they came."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._turn = 0
        self._pending: dict[tuple[str, str], JsonObject] = {}
        #: Uid of a claim -> when a node was selected for it last.
        self._selected_at_s: dict[str, float] = {}
        #: A claim lost its selected node and waits for another one.
        self.waits = False

    def note(self, change: ObjectChange) -> None:
        """Add a pod that waits for a node; drop one that is gated, bound or deleted."""
        pod = change.revision.obj
        key = pod["metadata"]["namespace"], pod["metadata"]["name"]
        is_done = pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp")
        if change.type == "DELETED" or is_done or pod["spec"].get("schedulingGates"):
            self._pending.pop(key, None)
        else:
            self._pending[key] = pod

    def bind_pending(self) -> None:
        """Bind every pod whose claims are bound, and select a node for the claims of the others."""
        self.waits = False
        for (namespace, name), pod in list(self._pending.items()):
            claims = self._claims(pod)
            if claims is None:
                continue
            node = self._node(pod, claims)
            if node is None:
                continue
            unbound = [one for one in claims if _BIND_COMPLETED not in _annotations(one)]
            if unbound:
                self._select(unbound, node)
                continue
            self._turn += 1
            target = {"kind": "Node", "name": node}
            bind(self._store, namespace, name, {"metadata": {"name": name}, "target": target})

    def _claims(self, pod: JsonObject) -> list[JsonObject] | None:
        """Return the pod's claims; None if one does not exist."""
        claims: list[JsonObject] = []
        for volume in pod["spec"].get("volumes") or ():
            if "persistentVolumeClaim" not in volume:
                continue
            name = volume["persistentVolumeClaim"]["claimName"]
            claim = self._store.find(PERSISTENT_VOLUME_CLAIM, pod["metadata"]["namespace"], name)
            if claim is None:
                return None
            claims.append(claim)
        return claims

    def _node(self, pod: JsonObject, claims: list[JsonObject]) -> str | None:
        """Return the next node that the pod's daemon set, its volumes and its claims allow; None if there is none."""
        affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
        selectors = [affinity.get("requiredDuringSchedulingIgnoredDuringExecution")]
        for claim in claims:
            volume = self._store.find(PERSISTENT_VOLUME, "", claim["spec"].get("volumeName", ""))
            selectors.append((((volume or {}).get("spec") or {}).get("nodeAffinity") or {}).get("required"))
        selected = {name for one in claims if (name := _annotations(one).get(_SELECTED_NODE))}
        for step in range(1, N_NODES + 1):
            name = f"node-{(self._turn + step - 1) % N_NODES + 1:04d}"
            node = self._store.find(NODE, "", name) or {"metadata": {"name": name}}
            if selected <= {name} and all(_selects(one, node) for one in selectors):
                return name
        return None

    def _select(self, claims: list[JsonObject], node: str) -> None:
        for claim in claims:
            storage_class = self._store.find(STORAGE_CLASS, "", claim["spec"].get("storageClassName", ""))
            waits = (storage_class or {}).get("volumeBindingMode") == "WaitForFirstConsumer"
            if waits and _SELECTED_NODE not in _annotations(claim):
                uid, now_s = claim["metadata"]["uid"], time.monotonic()
                if now_s < self._selected_at_s.get(uid, 0.0) + _BACKOFF_S:
                    self.waits = True
                    continue
                # The node that the provisioner gave up is not tried at once again.
                self._turn += uid in self._selected_at_s
                self._selected_at_s[uid] = now_s
                annotations = {**_annotations(claim), _SELECTED_NODE: node}
                metadata = {**claim["metadata"], "annotations": annotations}
                self._store.update(PERSISTENT_VOLUME_CLAIM, {**claim, "metadata": metadata})


def _annotations(obj: JsonObject) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def _selects(selector: JsonObject | None, node: JsonObject) -> bool:
    """Return whether a NodeSelector, whose operators are all In, selects the node; None selects all."""
    if selector is None:
        return True
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}

    def holds(conditions: list[dict[str, Any]] | None, values: dict[str, str]) -> bool:
        return all(values.get(one["key"]) in one["values"] for one in conditions or ())

    return any(
        holds(term.get("matchExpressions"), labels) and holds(term.get("matchFields"), fields)
        for term in selector["nodeSelectorTerms"]
    )

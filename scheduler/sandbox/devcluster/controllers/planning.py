"""What each plan reads of the store beside its object, and which objects a change concerns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final

from scheduler.sandbox.devcluster.admission.volumes import class_name
from scheduler.sandbox.devcluster.controllers import (
    claims,
    daemonsets,
    deployments,
    device_claims,
    disruption,
    jobs,
    replicasets,
    statefulsets,
    volumes,
)
from scheduler.sandbox.devcluster.controllers.actions import Action
from scheduler.sandbox.devcluster.controllers.ownership import (
    controller_of,
    controller_uid,
    key_of,
    owner_selects,
    uid,
)
from scheduler.sandbox.devcluster.controllers.pods import claim_names
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
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    STATEFUL_SET,
    STORAGE_CLASS,
    JsonObject,
    Kind,
)
from scheduler.sandbox.devcluster.storage.history import ObjectChange
from scheduler.sandbox.devcluster.storage.store import ObjectStore

#: Kinds that are planned.
_PLANNED: Final = (
    DEPLOYMENT, REPLICA_SET, STATEFUL_SET, DAEMON_SET, JOB, POD_DISRUPTION_BUDGET, PERSISTENT_VOLUME_CLAIM,
    PERSISTENT_VOLUME, POD, RESOURCE_CLAIM,
)  # fmt: skip
#: Kind -> the kinds that control such objects.
_OWNERS: Final = {POD: (REPLICA_SET, STATEFUL_SET, DAEMON_SET, JOB), REPLICA_SET: (DEPLOYMENT,)}
_FOLLOWED: Final = (*_PLANNED, NODE, STORAGE_CLASS, RESOURCE_CLAIM_TEMPLATE)

#: Kind, namespace and name.
Place = tuple[Kind, str, str]


class Index:
    """
    Objects by what they refer to: their kind, the kind of reference, and its target. Every write updates the index.

    Cost per write: O(references of the object).
    """

    def __init__(self) -> None:
        self._found: defaultdict[Hashable, dict[tuple[str, str], JsonObject]] = defaultdict(dict)

    def get(self, kind: Kind, reference: str, *target: str) -> list[JsonObject]:
        """Return the objects of a kind that have such a reference to the target."""
        return list(self._found.get((kind, reference, target), {}).values())

    def apply(self, kind: Kind, change: ObjectChange) -> None:
        """Apply a change of the store."""
        obj = change.revision.obj
        if change.previous is not None:
            for reference in _references(kind, change.previous.obj):
                found = self._found[kind, *reference]
                found.pop(key_of(obj), None)
                if not found:
                    del self._found[kind, *reference]
        if change.type != "DELETED":
            for reference in _references(kind, obj):
                self._found[kind, *reference][key_of(obj)] = obj


def _references(kind: Kind, obj: JsonObject) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the kind and the target of each reference of an object."""
    namespace = obj["metadata"].get("namespace", "")
    if (owner := controller_uid(obj)) is not None:
        yield "owner", (owner,)
    if kind is POD:
        yield from (("claim", (namespace, name)) for name in claim_names(obj))
        yield from (("device claim", (namespace, name)) for name in device_claims.claim_names(obj))
        for claim in (obj.get("spec") or {}).get("resourceClaims") or ():
            yield "template", (namespace, claim.get("resourceClaimTemplateName") or "")
    elif kind is PERSISTENT_VOLUME:
        yield ("claim", _claim_key(obj)) if obj["spec"].get("claimRef") else ("class", (class_name(obj),))
    elif kind is PERSISTENT_VOLUME_CLAIM and not claims.is_bound(obj):
        yield "class", (class_name(obj),)
        yield "volume", ((obj.get("spec") or {}).get("volumeName") or "",)
    elif kind is POD_DISRUPTION_BUDGET:
        yield "namespace", (namespace,)


def _claim_key(volume: JsonObject) -> tuple[str, str]:
    reference = volume["spec"].get("claimRef") or {}
    return reference.get("namespace", ""), reference.get("name", "")


class Planner:
    """Plans objects from the present state of the store; calls `on_dirty` with the places of objects to plan again."""

    def __init__(
        self, store: ObjectStore, on_dirty: Callable[[Place], None], now_s: Callable[[], float]
    ) -> None:
        self._store, self._on_dirty, self._now_s = store, on_dirty, now_s
        self._index = Index()
        #: Uid of a claim -> (the node selected for it, since when it is to be provisioned there).
        self._provisioning: dict[str, tuple[str, float]] = {}
        self._plans: Final[dict[Kind, Callable[[JsonObject], Sequence[Action]]]] = {
            DEPLOYMENT: self._deployment,
            REPLICA_SET: self._replica_set,
            STATEFUL_SET: self._stateful_set,
            DAEMON_SET: self._daemon_set,
            JOB: lambda job: jobs.plan(job, self._owned(POD, job), store.now_s()),
            POD_DISRUPTION_BUDGET: self._budget,
            PERSISTENT_VOLUME_CLAIM: self._claim,
            PERSISTENT_VOLUME: lambda volume: volumes.plan(
                volume, store.find(PERSISTENT_VOLUME_CLAIM, *_claim_key(volume))
            ),
            POD: self._pod,
            RESOURCE_CLAIM: lambda claim: device_claims.plan_claim(claim, self._finder(POD, claim)),
        }
        #: Stop following the store.
        self.close: Final = store.history.follow(_FOLLOWED, self._follow)

    def plan(self, kind: Kind, obj: JsonObject) -> Sequence[Action]:
        """Return the next step of an object."""
        return self._plans[kind](obj)

    # -- what a change concerns ------------------------------------------------------------------------------

    def _follow(self, kind: Kind, change: ObjectChange) -> None:
        if kind not in _FOLLOWED:
            return
        self._index.apply(kind, change)
        obj, previous = change.revision.obj, change.previous.obj if change.previous else None
        places = dict.fromkeys(self._concerned(kind, obj, previous))
        if previous is not None:
            places |= dict.fromkeys(self._concerned(kind, previous, obj))
        for place in places:
            self._on_dirty(place)

    def _concerned(self, kind: Kind, obj: JsonObject, other: JsonObject | None) -> Iterator[Place]:
        """Yield what a state of an object concerns; `other` is the state before or after it, if there is one."""
        namespace, name = key_of(obj)
        if kind in _PLANNED and (kind is not POD or (obj.get("spec") or {}).get("resourceClaims")):
            yield kind, namespace, name
        if (reference := controller_of(obj)) is not None:
            for owning in _OWNERS.get(kind, ()):
                if reference.get("kind") == owning.kind:
                    yield owning, namespace, reference.get("name", "")
        if kind is POD:
            budgets = self._index.get(POD_DISRUPTION_BUDGET, "namespace", namespace)
            yield from _places(POD_DISRUPTION_BUDGET, (one for one in budgets if owner_selects(one, obj)))
            yield from ((PERSISTENT_VOLUME_CLAIM, namespace, claim) for claim in claim_names(obj))
            yield from ((RESOURCE_CLAIM, namespace, claim) for claim in device_claims.claim_names(obj))
        elif kind is NODE and (other is None or _taken_by(obj) != _taken_by(other)):
            yield from _places(DAEMON_SET, self._store.list(DAEMON_SET)[0])
        elif kind is STORAGE_CLASS:
            yield from _places(
                PERSISTENT_VOLUME_CLAIM, self._index.get(PERSISTENT_VOLUME_CLAIM, "class", name)
            )
        elif kind is PERSISTENT_VOLUME:
            yield (PERSISTENT_VOLUME_CLAIM, *_claim_key(obj))
            naming = self._index.get(PERSISTENT_VOLUME_CLAIM, "volume", name)
            yield from _places(PERSISTENT_VOLUME_CLAIM, naming)
            of_class = class_name(obj)
            is_delayed = volumes.is_delayed(self._store.find(STORAGE_CLASS, "", of_class))
            # For delayed claims the scheduler chooses.
            if not is_delayed and not obj["spec"].get("claimRef"):
                takers = self._index.get(PERSISTENT_VOLUME_CLAIM, "class", of_class)
                yield from _places(PERSISTENT_VOLUME_CLAIM, takers)
        elif kind is PERSISTENT_VOLUME_CLAIM:
            yield from _places(
                PERSISTENT_VOLUME, self._index.get(PERSISTENT_VOLUME, "claim", namespace, name)
            )
        elif kind is RESOURCE_CLAIM:
            yield from _places(POD, self._index.get(POD, "device claim", namespace, name))
            if (owner := controller_of(obj)) is not None and owner.get("kind") == POD.kind:
                yield POD, namespace, owner.get("name", "")
        elif kind is RESOURCE_CLAIM_TEMPLATE:
            yield from _places(POD, self._index.get(POD, "template", namespace, name))

    # -- what a plan reads -----------------------------------------------------------------------------------

    def _deployment(self, deployment: JsonObject) -> Sequence[Action]:
        sets = self._owned(REPLICA_SET, deployment)
        # Lazily, because Recreate alone reads them.
        pods = (pod for one in sets for pod in self._owned(POD, one))
        return deployments.plan(deployment, sets, pods, self._store.now_s())

    def _replica_set(self, replica_set: JsonObject) -> Sequence[Action]:
        owner = controller_uid(replica_set)
        siblings = [replica_set] if owner is None else self._index.get(REPLICA_SET, "owner", owner)
        # Lazily, because only deletions read them.
        related = (pod for one in siblings for pod in self._owned(POD, one))
        pods = self._owned(POD, replica_set)
        return replicasets.plan(replica_set, pods, related)

    def _stateful_set(self, stateful_set: JsonObject) -> Sequence[Action]:
        find_claim = self._finder(PERSISTENT_VOLUME_CLAIM, stateful_set)
        pods = self._owned(POD, stateful_set)
        return statefulsets.plan(stateful_set, pods, find_claim)

    def _daemon_set(self, daemon_set: JsonObject) -> Sequence[Action]:
        nodes, pods = self._store.list(NODE)[0], self._owned(POD, daemon_set)
        return daemonsets.plan(daemon_set, pods, nodes)

    def _budget(self, budget: JsonObject) -> Sequence[Action]:
        in_namespace = self._store.list(POD, budget["metadata"]["namespace"])[0]
        pods = [pod for pod in in_namespace if owner_selects(budget, pod)]
        return disruption.plan(budget, pods, self._store.now_s())

    def _claim(self, claim: JsonObject) -> Sequence[Action]:
        find, named = self._store.find, (claim.get("spec") or {}).get("volumeName")
        selected = volumes.annotation(claim, claims.SELECTED_NODE)
        storage_class = find(STORAGE_CLASS, "", class_name(claim))
        view = claims.ClaimView(
            volume=find(PERSISTENT_VOLUME, "", named) if named else None,
            promised=self._index.get(PERSISTENT_VOLUME, "claim", *key_of(claim)),
            list_free=lambda: self._index.get(PERSISTENT_VOLUME, "class", class_name(claim)),
            storage_class=storage_class,
            pods=self._index.get(POD, "claim", *key_of(claim)),
            node=find(NODE, "", selected) if selected else None,
            list_nodes=lambda: self._store.list(NODE)[0],
            waited_s=self._waited_s(claim, storage_class),
        )
        return claims.plan(claim, view)

    def _waited_s(self, claim: JsonObject, storage_class: JsonObject | None) -> float:
        """Return how long the claim has been waiting for a volume on its selected node."""
        key, node = uid(claim), volumes.annotation(claim, claims.SELECTED_NODE)
        if not claims.is_awaiting_volume(claim, storage_class) or claim["metadata"].get("deletionTimestamp"):
            self._provisioning.pop(key, None)
            return 0.0
        now_s = self._now_s()
        if key not in self._provisioning or self._provisioning[key][0] != node:
            self._provisioning[key] = node, now_s
        return now_s - self._provisioning[key][1]

    def _pod(self, pod: JsonObject) -> Sequence[Action]:
        find_template, find_claim = (
            self._finder(RESOURCE_CLAIM_TEMPLATE, pod),
            self._finder(RESOURCE_CLAIM, pod),
        )
        return device_claims.plan_pod(pod, find_template, find_claim, self._owned(RESOURCE_CLAIM, pod))

    def _owned(self, kind: Kind, owner: JsonObject) -> list[JsonObject]:
        """Return the objects of a kind that `owner` controls."""
        return self._index.get(kind, "owner", uid(owner))

    def _finder(self, kind: Kind, beside: JsonObject) -> Callable[[str], JsonObject | None]:
        """Return what finds an object by name in the namespace of another one."""
        namespace = beside["metadata"].get("namespace", "")
        return lambda name: self._store.find(kind, namespace, name)


def _places(kind: Kind, objects: Iterable[JsonObject]) -> Iterator[Place]:
    return ((kind, *key_of(one)) for one in objects)


def _taken_by(node: JsonObject) -> tuple[object, object]:
    """Return what of a node decides which daemons it takes."""
    return node["metadata"].get("labels"), (node.get("spec") or {}).get("taints")

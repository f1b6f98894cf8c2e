"""The plan of each kind, and which objects a change concerns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from scheduler.sandbox.devcluster.controllers import (
    deployments,
    device_claims,
    disruption,
    kubelet,
    volumes,
    workloads,
)
from scheduler.sandbox.devcluster.controllers.actions import Action
from scheduler.sandbox.devcluster.controllers.objects import (
    claim_names,
    controller_of,
    is_terminating,
    key_of,
    node_name,
)
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
from scheduler.sandbox.devcluster.storage.store import ObjectStore

#: Kind, namespace and name.
Place = tuple[Kind, str, str]
#: Return the next step of an object. It reads the store and writes nothing.
Plan = Callable[[JsonObject, ObjectStore], Sequence[Action]]

#: The plans but those of claims of volumes, which also need the time.
PLANS: Final[Mapping[Kind, Plan]] = {
    DEPLOYMENT: deployments.plan,
    REPLICA_SET: workloads.plan_replica_set,
    STATEFUL_SET: workloads.plan_stateful_set,
    DAEMON_SET: workloads.plan_daemon_set,
    JOB: workloads.plan_job,
    POD_DISRUPTION_BUDGET: disruption.plan,
    PERSISTENT_VOLUME: volumes.plan_volume,
    # Both write the status of a pod, so they take turns.
    POD: lambda pod, store: device_claims.plan_pod(pod, store) or kubelet.plan(pod, store),
    RESOURCE_CLAIM: device_claims.plan_claim,
}
#: Kinds whose changes are looked at.
FOLLOWED: Final = (*PLANS, PERSISTENT_VOLUME_CLAIM, NODE, STORAGE_CLASS, RESOURCE_CLAIM_TEMPLATE)
_CONTROLLERS: Final = {
    kind.kind: kind for kind in (DEPLOYMENT, REPLICA_SET, STATEFUL_SET, DAEMON_SET, JOB, POD)
}


def concerned(store: ObjectStore, kind: Kind, obj: JsonObject, other: JsonObject | None) -> Iterator[Place]:
    """Yield what a state of an object concerns; `other` is the state before or after it, if there is one."""
    namespace, name = key_of(obj)
    owner = controller_of(obj)
    if owner.get("kind") in _CONTROLLERS:
        yield _CONTROLLERS[owner["kind"]], namespace, owner["name"]
    if kind is POD:
        if _is_news(obj, other):
            yield POD, namespace, name
        budgets = store.list(POD_DISRUPTION_BUDGET, namespace)[0]
        yield from _places(POD_DISRUPTION_BUDGET, (one for one in budgets if disruption.guards(one, obj)))
        yield from ((PERSISTENT_VOLUME_CLAIM, namespace, claim) for claim in claim_names(obj))
        yield from ((RESOURCE_CLAIM, namespace, claim) for claim in device_claims.claim_names(obj))
    elif kind is NODE:
        if other is None or _taken_by(obj) != _taken_by(other):
            yield from _places(DAEMON_SET, store.list(DAEMON_SET)[0])
    elif kind is RESOURCE_CLAIM_TEMPLATE:
        pods = store.list(POD, namespace)[0]
        yield from _places(POD, (pod for pod in pods if (pod.get("spec") or {}).get("resourceClaims")))
    elif kind is not STORAGE_CLASS:
        yield kind, namespace, name
    if kind is PERSISTENT_VOLUME and obj["spec"].get("claimRef"):
        yield PERSISTENT_VOLUME_CLAIM, *volumes.claim_of(obj)
    elif kind in (PERSISTENT_VOLUME, STORAGE_CLASS):
        claims = store.list(PERSISTENT_VOLUME_CLAIM)[0]
        yield from _places(PERSISTENT_VOLUME_CLAIM, (one for one in claims if not volumes.is_bound(one)))
    elif kind is PERSISTENT_VOLUME_CLAIM:
        promised = (one for one in store.list(PERSISTENT_VOLUME)[0] if volumes.claim_of(one) == key_of(obj))
        yield from _places(PERSISTENT_VOLUME, promised)


def _places(kind: Kind, objects: Iterable[JsonObject]) -> Iterator[Place]:
    return ((kind, *key_of(one)) for one in objects)


def _is_news(pod: JsonObject, other: JsonObject | None) -> bool:
    """Return whether a pod has a plan now: it waits for claims of devices, or came to a node, or is to leave it."""
    if not node_name(pod):
        return bool((pod.get("spec") or {}).get("resourceClaims"))
    return other is None or not node_name(other) or is_terminating(pod) != is_terminating(other)


def _taken_by(node: JsonObject) -> tuple[object, object]:
    """Return what of a node decides which daemons it takes."""
    return node["metadata"].get("labels"), (node.get("spec") or {}).get("taints")

"""
The Deployment controller: which replica sets there should be, how large, and the status.

Level-triggered: every plan is one step from the present state; the changes that it orders cause the next plan.

Source: pkg/controller/deployment: rolling.go, recreate.go, sync.go, util/deployment_util.go (kubernetes 1.36).
Differences: scaling amid a rollout continues the rollout instead of keeping proportions; a replica set's name that is
taken is not replaced by another one; no rollout fails at a deadline or is paused, so there is no condition
Progressing; replica sets have no revisions, and empty old ones go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.sandbox.devcluster.controllers.actions import (
    Action,
    Create,
    Delete,
    Update,
    positive,
    replaced,
    status_written,
)
from scheduler.sandbox.devcluster.controllers.objects import (
    HASH_LABEL,
    controller_ref,
    generation,
    is_terminating,
    label,
    replicas,
    scaled,
    status_count,
    template_hash,
    uid,
)
from scheduler.sandbox.devcluster.kinds import DEPLOYMENT, REPLICA_SET, JsonObject
from scheduler.sandbox.devcluster.parts import with_condition
from scheduler.sandbox.devcluster.storage.store import ObjectStore

_NAME_LENGTH: Final = 253


def plan(deployment: JsonObject, store: ObjectStore) -> list[Action]:
    """Return the next step: another size of some replica sets, a new one, the end of empty ones, and the status."""
    ordered = sorted(store.owned(REPLICA_SET, uid(deployment)), key=_age_order)
    mark = template_hash(deployment["spec"]["template"])
    new = next((one for one in ordered if label(one, HASH_LABEL) == mark), None)
    old = [one for one in ordered if one is not new]
    actions: list[Action] = []
    if not is_terminating(deployment):
        sizes = _sizes(deployment, new, old)
        if new is None and "" in sizes:
            actions.append(Create(REPLICA_SET, _new_replica_set(deployment, mark, sizes[""])))
        actions += [
            Update(REPLICA_SET, replaced(one, ("spec", "replicas"), sizes[uid(one)]))
            for one in ordered
            if sizes.get(uid(one), replicas(one)) != replicas(one)
        ]
        actions += [Delete(REPLICA_SET, one) for one in old if _is_empty(one)]
    return [*actions, *status_written(DEPLOYMENT, deployment, _status(deployment, ordered, new, store.now()))]


def _age_order(obj: JsonObject) -> tuple[str, str]:
    return str(obj["metadata"].get("creationTimestamp") or ""), str(obj["metadata"]["name"])


def _is_empty(replica_set: JsonObject) -> bool:
    """Return whether the replica set wants no pods and has none left, terminating ones included."""
    counts = (status_count(replica_set, name) for name in ("replicas", "terminatingReplicas"))
    return not replicas(replica_set) and not any(counts)


def fenceposts(deployment: JsonObject) -> tuple[int, int]:
    """
    Return (maxSurge, maxUnavailable) as counts of pods; (0, 0) if the deployment does not roll.

    Surge rounds up, unavailability down; if both come to 0, one pod may be unavailable, or nothing would move.
    """
    if not _is_rolling(deployment):
        return 0, 0
    total = replicas(deployment)
    limits = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    surge = scaled(limits.get("maxSurge", "25%"), total, round_up=True)
    unavailable = scaled(limits.get("maxUnavailable", "25%"), total, round_up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, total)


def _is_rolling(deployment: JsonObject) -> bool:
    return bool((deployment["spec"].get("strategy") or {}).get("type", "RollingUpdate") == "RollingUpdate")


def _sizes(deployment: JsonObject, new: JsonObject | None, old: Sequence[JsonObject]) -> dict[str, int]:
    """Return the sizes after one step by uid, "" for a new replica set: up if there is room, else down."""
    new_uid = uid(new) if new else ""
    if not _is_rolling(deployment):
        sizes = {uid(one): 0 for one in old}
        return sizes | ({new_uid: replicas(deployment)} if all(map(_is_empty, old)) else {})
    surge, max_unavailable = fenceposts(deployment)
    size = replicas(new) if new else 0
    total = sum(map(replicas, old)) + size
    room = replicas(deployment) + surge - total
    wanted = min(size + max(min(room, replicas(deployment) - size), 0), replicas(deployment))
    sizes = {new_uid: wanted}
    if new is not None and wanted != size:
        return sizes
    available_new = status_count(new, "availableReplicas") if new else 0
    available = sum(status_count(one, "availableReplicas") for one in old) + available_new
    floor = replicas(deployment) - max_unavailable
    left = total - size + available_new - floor
    # Unavailable pods first, then as availability allows; oldest replica sets first.
    unavailable = {uid(one): replicas(one) - status_count(one, "availableReplicas") for one in old}
    for budget, spare in ((left, unavailable), (available - floor, None)) if left > 0 else ():
        for one in old:
            now = sizes.get(uid(one), replicas(one))
            step = min(budget, now if spare is None else spare[uid(one)], now)
            if step > 0:
                sizes[uid(one)] = now - step
                budget -= step
    return sizes


def _new_replica_set(deployment: JsonObject, mark: str, size: int) -> JsonObject:
    """Return a replica set for the deployment's template, named and labelled by the template's hash."""
    spec, metadata = deployment["spec"], deployment["metadata"]
    labels = {**((spec["template"].get("metadata") or {}).get("labels") or {}), HASH_LABEL: mark}
    own: JsonObject = {
        "replicas": size,
        "selector": replaced(spec["selector"], ("matchLabels", HASH_LABEL), mark),
        "template": replaced(spec["template"], ("metadata", "labels"), labels),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{metadata['name'][: _NAME_LENGTH - 1 - len(mark)]}-{mark}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [controller_ref(deployment)],
        },
        "spec": own,
    }


def _status(
    deployment: JsonObject, replica_sets: Sequence[JsonObject], new: JsonObject | None, now: str
) -> JsonObject:
    """Return counts, and the condition Available."""

    def total(name: str) -> int:
        return sum(status_count(one, name) for one in replica_sets)

    available = total("availableReplicas")
    counts = {
        "observedGeneration": generation(deployment),
        "replicas": total("replicas"),
        "updatedReplicas": status_count(new, "replicas") if new else 0,
        "readyReplicas": total("readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(sum(map(replicas, replica_sets)) - available, 0),
    }
    enough = available >= replicas(deployment) - fenceposts(deployment)[1]
    state, word, has = ("True", "Available", "has") if enough else ("False", "Unavailable", "does not have")
    available_now = {
        "type": "Available",
        "status": state,
        "lastTransitionTime": now,
        "reason": f"MinimumReplicas{word}",
        "message": f"Deployment {has} minimum availability.",
    }
    conditions = with_condition((deployment.get("status") or {}).get("conditions") or (), available_now)
    terminating = total("terminatingReplicas")
    return {**positive(counts), "terminatingReplicas": terminating, "conditions": conditions}

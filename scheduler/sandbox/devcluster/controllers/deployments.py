"""
The Deployment controller: which replica sets there should be, how large, and the status.

Level-triggered: every plan is one step from the present state; the changes that it orders cause the next plan.

Source: pkg/controller/deployment: rolling.go, recreate.go, sync.go, util/deployment_util.go (kubernetes 1.36).
Differences: scaling amid a rollout continues the rollout instead of keeping proportions; a replica set's name that is
taken is not replaced by another one; no rollout fails at a deadline or is paused, so there is no condition
Progressing; replica sets have no revisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from scheduler.sandbox.devcluster.conditions import with_condition
from scheduler.sandbox.devcluster.controllers.actions import (
    Action,
    Create,
    Delete,
    Update,
    positive,
    replaced,
    status_written,
)
from scheduler.sandbox.devcluster.controllers.ownership import (
    HASH_LABEL,
    canonical,
    controller_ref,
    controller_uid,
    generation,
    replicas,
    scaled,
    status_count,
    template_hash,
    uid,
)
from scheduler.sandbox.devcluster.controllers.pods import is_terminal
from scheduler.sandbox.devcluster.kinds import DEPLOYMENT, REPLICA_SET, JsonObject
from scheduler.sandbox.devcluster.timestamps import rfc3339

_NAME_LENGTH: Final = 253


def plan(
    deployment: JsonObject, replica_sets: Iterable[JsonObject], pods: Iterable[JsonObject], now_s: float
) -> list[Action]:
    """
    Return the next step towards `deployment`.

    Args:
        deployment: as stored.
        replica_sets: under its control.
        pods: under the control of its replica sets; only the Recreate strategy reads them.
        now_s: seconds since 1970.
    """
    ordered = sorted(replica_sets, key=_age_order)
    template = canonical(deployment["spec"].get("template"))
    new = next((one for one in ordered if canonical(one["spec"].get("template")) == template), None)
    old = [one for one in ordered if one is not new]
    actions: list[Action] = []
    if not deployment["metadata"].get("deletionTimestamp"):
        actions += _rolled(deployment, new, old, pods)
    if is_complete(deployment):
        actions += _dropped_history(deployment, old)
    return [*actions, *status_written(DEPLOYMENT, deployment, _status(deployment, ordered, new, now_s))]


def is_rolling(deployment: JsonObject) -> bool:
    """Return True if the strategy is RollingUpdate, which is also the default."""
    return bool((deployment["spec"].get("strategy") or {}).get("type", "RollingUpdate") == "RollingUpdate")


def is_complete(deployment: JsonObject) -> bool:
    """Return True if all wanted pods are of the newest template and available, and no old ones are left."""
    counts = ("updatedReplicas", "replicas", "availableReplicas")
    is_seen = status_count(deployment, "observedGeneration") >= generation(deployment)
    return is_seen and all(status_count(deployment, name) == replicas(deployment) for name in counts)


# -- sizes ---------------------------------------------------------------------------------------------------


def fenceposts(deployment: JsonObject) -> tuple[int, int]:
    """
    Return (maxSurge, maxUnavailable) as counts of pods; (0, 0) if the deployment does not roll.

    Surge rounds up, unavailability down; if both come to 0, one pod may be unavailable, or nothing would move.
    """
    if not is_rolling(deployment):
        return 0, 0
    total = replicas(deployment)
    limits = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    surge = scaled(limits.get("maxSurge", "25%"), total, round_up=True)
    unavailable = scaled(limits.get("maxUnavailable", "25%"), total, round_up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, total)


def _rolled(
    deployment: JsonObject, new: JsonObject | None, old: Sequence[JsonObject], pods: Iterable[JsonObject]
) -> list[Action]:
    """Return the writes of one step: another size of some replica sets, or a new one."""
    if is_rolling(deployment):
        sizes = _rolling_sizes(deployment, new, old)
    else:
        sizes = {uid(one): 0 for one in old}
        if not _is_any_left(old, new, pods):
            sizes[uid(new) if new else ""] = replicas(deployment)
    actions: list[Action] = []
    if new is None and "" in sizes:
        made = _new_replica_set(deployment, sizes[""])
        actions.append(Create(REPLICA_SET, made))
    resized = ((one, sizes.get(uid(one), replicas(one))) for one in [*old, *([new] if new else ())])
    actions += [
        Update(REPLICA_SET, replaced(one, ("spec", "replicas"), size))
        for one, size in resized
        if size != replicas(one)
    ]
    return actions


def _rolling_sizes(
    deployment: JsonObject, new: JsonObject | None, old: Sequence[JsonObject]
) -> dict[str, int]:
    """Return the sizes after one step of RollingUpdate by uid, "" for a new one: up if there is room, else down."""
    surge, max_unavailable = fenceposts(deployment)
    size = replicas(new) if new else 0
    total = sum(map(replicas, old)) + size
    room = replicas(deployment) + surge - total
    wanted = min(size + max(min(room, replicas(deployment) - size), 0), replicas(deployment))
    sizes = {uid(new) if new else "": wanted}
    if new is not None and wanted != size:
        return sizes
    available_new = status_count(new, "availableReplicas") if new else 0
    available = sum(status_count(one, "availableReplicas") for one in old) + available_new
    floor = replicas(deployment) - max_unavailable
    left = total - size + available_new - floor
    if left <= 0:
        return sizes
    # Unavailable pods first, then as availability allows; oldest replica sets first.
    unavailable = {uid(one): replicas(one) - status_count(one, "availableReplicas") for one in old}
    for budget, spare in ((left, unavailable), (available - floor, None)):
        for one in old:
            now = sizes.get(uid(one), replicas(one))
            step = min(budget, now if spare is None else spare[uid(one)], now)
            if step > 0:
                sizes[uid(one)] = now - step
                budget -= step
    return sizes


def _is_any_left(old: Sequence[JsonObject], new: JsonObject | None, pods: Iterable[JsonObject]) -> bool:
    """Return whether an old pod is still there, which Recreate waits for."""
    new_uid = uid(new) if new else None
    if any(replicas(one) or status_count(one, "replicas") for one in old):
        return True
    return any(controller_uid(pod) != new_uid and not is_terminal(pod) for pod in pods)


# -- replica sets --------------------------------------------------------------------------------------------


def _age_order(obj: JsonObject) -> tuple[str, str]:
    return str(obj["metadata"].get("creationTimestamp") or ""), str(obj["metadata"]["name"])


def _new_replica_set(deployment: JsonObject, size: int) -> JsonObject:
    """Return a replica set for the deployment's template, named and labelled by the template's hash."""
    spec, metadata = deployment["spec"], deployment["metadata"]
    mark = template_hash(spec["template"])
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


def _dropped_history(deployment: JsonObject, old: Sequence[JsonObject]) -> list[Action]:
    """Return the deletion of the oldest empty replica sets beyond `revisionHistoryLimit`."""
    limit = deployment["spec"].get("revisionHistoryLimit", 10)
    empty = [one for one in old if not replicas(one) and not status_count(one, "replicas")]
    empty = [one for one in empty if not one["metadata"].get("deletionTimestamp")]
    return [Delete(REPLICA_SET, one) for one in empty[: max(len(empty) - limit, 0)]]


# -- status --------------------------------------------------------------------------------------------------


def _status(
    deployment: JsonObject, replica_sets: Sequence[JsonObject], new: JsonObject | None, now_s: float
) -> JsonObject:
    """Return counts, and the condition Available."""
    available = sum(status_count(one, "availableReplicas") for one in replica_sets)
    counts = {
        "observedGeneration": generation(deployment),
        "replicas": sum(status_count(one, "replicas") for one in replica_sets),
        "updatedReplicas": status_count(new, "replicas") if new else 0,
        "readyReplicas": sum(status_count(one, "readyReplicas") for one in replica_sets),
        "availableReplicas": available,
        "unavailableReplicas": max(sum(map(replicas, replica_sets)) - available, 0),
    }
    status = positive(counts)
    status["terminatingReplicas"] = sum(status_count(one, "terminatingReplicas") for one in replica_sets)
    enough = available >= replicas(deployment) - fenceposts(deployment)[1]
    state, word, has = ("True", "Available", "has") if enough else ("False", "Unavailable", "does not have")
    text = f"Deployment {has} minimum availability."
    available_now = {
        "type": "Available",
        "status": state,
        "lastTransitionTime": rfc3339(now_s),
        "reason": f"MinimumReplicas{word}",
        "message": text,
    }
    conditions = (deployment.get("status") or {}).get("conditions") or ()
    return {**status, "conditions": with_condition(conditions, available_now)}

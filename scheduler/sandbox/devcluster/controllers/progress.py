"""
The status of a deployment: counts, and the conditions Available and Progressing for `kubectl rollout status`.

Source: pkg/controller/deployment/progress.go, sync.go calculateStatus (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.sandbox.devcluster.conditions import (
    Conditions,
    condition,
    condition_of,
    with_condition,
    without_condition,
)
from scheduler.sandbox.devcluster.controllers.rollout import fenceposts, replicas, status_count, wanted_total
from scheduler.sandbox.devcluster.kinds import JsonObject
from scheduler.sandbox.devcluster.timestamps import epoch_s

_NO_DEADLINE: Final = 2**31 - 1


def deadline_s(deployment: JsonObject) -> int | None:
    """Return `spec.progressDeadlineSeconds`; None if a stalled rollout is never reported."""
    seconds = deployment["spec"].get("progressDeadlineSeconds")
    return None if seconds is None or seconds == _NO_DEADLINE else int(seconds)


def counted_status(
    deployment: JsonObject, replica_sets: Sequence[JsonObject], new: JsonObject | None, *, now_s: float
) -> JsonObject:
    """Return counts and the Available condition; other conditions are those of `deployment`."""
    available = sum(status_count(one, "availableReplicas") for one in replica_sets)
    counts = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": sum(status_count(one, "replicas") for one in replica_sets),
        "updatedReplicas": status_count(new, "replicas") if new else 0,
        "readyReplicas": sum(status_count(one, "readyReplicas") for one in replica_sets),
        "availableReplicas": available,
        "unavailableReplicas": max(wanted_total(replica_sets) - available, 0),
    }
    status: JsonObject = {name: count for name, count in counts.items() if count}
    old = deployment.get("status") or {}
    terminating = [(one.get("status") or {}).get("terminatingReplicas") for one in replica_sets]
    status["terminatingReplicas"] = sum(count or 0 for count in terminating)
    _, max_unavailable = fenceposts(deployment)
    if available >= replicas(deployment) - max_unavailable:
        state, reason, text = "True", "MinimumReplicasAvailable", "Deployment has minimum availability."
    else:
        state, reason, text = (
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    added = condition("Available", state, reason, text, now_s=now_s)
    return {**status, "conditions": with_condition(list(old.get("conditions") or ()), added)}


def is_complete(deployment: JsonObject, status: JsonObject) -> bool:
    """Return True if all wanted pods are of the newest template and available, and no old ones are left."""
    wanted = replicas(deployment)
    counts = (status.get(name, 0) for name in ("updatedReplicas", "replicas", "availableReplicas"))
    return all(count == wanted for count in counts) and status.get("observedGeneration", 0) >= deployment[
        "metadata"
    ].get("generation", 0)


def rollout_status(
    deployment: JsonObject, replica_sets: Sequence[JsonObject], new: JsonObject | None, *, now_s: float
) -> JsonObject:
    """Return the whole status during or after a rollout: counts, Available, Progressing, ReplicaFailure."""
    status = counted_status(deployment, replica_sets, new, now_s=now_s)
    conditions = _progressing(deployment, status, new, now_s=now_s)
    failure = _failure(replica_sets, new)
    conditions = (
        with_condition(conditions, failure) if failure else without_condition(conditions, "ReplicaFailure")
    )
    return {**status, "conditions": conditions}


def revisit_after_s(deployment: JsonObject, status: JsonObject, *, now_s: float) -> float | None:
    """Return the seconds until a stalled rollout is planned again; None if nothing is awaited."""
    limit_s = deadline_s(deployment)
    current = condition_of(status.get("conditions") or (), "Progressing")
    if limit_s is None or current is None or current["reason"] == "ProgressDeadlineExceeded":
        return None
    if is_complete(deployment, status):
        return None
    updated_s = epoch_s(current.get("lastUpdateTime")) or now_s
    # One second more, because timestamps are cut to whole seconds.
    return max(updated_s + limit_s - now_s, 0.0) + 1.0


def _progressing(
    deployment: JsonObject, status: JsonObject, new: JsonObject | None, *, now_s: float
) -> Conditions:
    conditions: Conditions = status["conditions"]
    limit_s = deadline_s(deployment)
    if limit_s is None:
        return without_condition(conditions, "Progressing")
    old_status = deployment.get("status") or {}
    current = condition_of(old_status.get("conditions") or (), "Progressing")
    has_all_updated = status.get("replicas", 0) == status.get("updatedReplicas", 0)
    if has_all_updated and current is not None and current["reason"] == "NewReplicaSetAvailable":
        return conditions
    subject = (
        f'ReplicaSet "{new["metadata"]["name"]}"' if new else f'Deployment "{deployment["metadata"]["name"]}"'
    )
    if is_complete(deployment, status):
        text = f"{subject} has successfully progressed."
        added = condition("Progressing", "True", "NewReplicaSetAvailable", text, now_s=now_s)
        return with_condition(conditions, added)
    if _has_advanced(old_status, status):
        text = f"{subject} is progressing."
        added = condition("Progressing", "True", "ReplicaSetUpdated", text, now_s=now_s)
        return with_condition(conditions, added, refresh=True)
    if _has_timed_out(conditions, limit_s, now_s):
        text = f"{subject} has timed out progressing."
        added = condition("Progressing", "False", "ProgressDeadlineExceeded", text, now_s=now_s)
        return with_condition(conditions, added)
    return conditions


def _has_advanced(before: JsonObject, after: JsonObject) -> bool:
    def left(status: JsonObject) -> int:
        return int(status.get("replicas", 0) - status.get("updatedReplicas", 0))

    grew = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return left(after) < left(before) or any(after.get(name, 0) > before.get(name, 0) for name in grew)


def _has_timed_out(conditions: Conditions, limit_s: int, now_s: float) -> bool:
    current = condition_of(conditions, "Progressing")
    if current is None or current["reason"] == "NewReplicaSetAvailable":
        return False
    if current["reason"] == "ProgressDeadlineExceeded":
        return True
    return (epoch_s(current.get("lastUpdateTime")) or now_s) + limit_s < now_s


def _failure(replica_sets: Sequence[JsonObject], new: JsonObject | None) -> JsonObject | None:
    """Return the failure of a replica set as the deployment's own, the newest set's first."""
    for replica_set in [*([new] if new else ()), *replica_sets]:
        found = condition_of((replica_set.get("status") or {}).get("conditions") or (), "ReplicaFailure")
        if found is not None:
            return {**found, "lastUpdateTime": found["lastTransitionTime"]}
    return None

"""
Conditions in the status of an object: lists in which each type occurs once.

Source: pkg/controller/deployment/util/deployment_util.go, SetDeploymentCondition (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.sandbox.devcluster.kinds import JsonObject
from scheduler.sandbox.devcluster.timestamps import rfc3339

Conditions = list[JsonObject]


def condition_of(conditions: Iterable[JsonObject], condition_type: str) -> JsonObject | None:
    """Return the condition of this type; None if there is none."""
    return next((one for one in conditions if one.get("type") == condition_type), None)


def without_condition(conditions: Iterable[JsonObject], condition_type: str) -> Conditions:
    """Return `conditions` without the one of this type."""
    return [one for one in conditions if one.get("type") != condition_type]


def condition(condition_type: str, status: str, reason: str, message: str, *, now_s: float) -> JsonObject:
    """Return a condition of a deployment that begins at `now_s`."""
    now = rfc3339(now_s)
    return {
        "type": condition_type,
        "status": status,
        "lastUpdateTime": now,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }


def with_condition(conditions: Conditions, new: JsonObject, *, refresh: bool = False) -> Conditions:
    """
    Return `conditions` with `new` in place of the one of its type.

    Same status and reason leave the old one, unless `refresh`; same status keeps its transition time.
    """
    current = condition_of(conditions, new["type"])
    if current is not None and current.get("status") == new["status"]:
        if current.get("reason") == new["reason"] and not refresh:
            return conditions
        new = {**new, "lastTransitionTime": current.get("lastTransitionTime", new["lastTransitionTime"])}
    return [*without_condition(conditions, new["type"]), new]

"""Conditions in the status of an object: lists in which each type occurs once."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.sandbox.devcluster.kinds import JsonObject


def condition_of(conditions: Iterable[JsonObject], condition_type: str) -> JsonObject | None:
    """Return the condition of this type; None if there is none."""
    return next((one for one in conditions if one.get("type") == condition_type), None)


def with_condition(conditions: Iterable[JsonObject], new: JsonObject) -> list[JsonObject]:
    """Return `conditions` with `new` in place of the one of its type; equal status keeps its transition time."""
    current = condition_of(conditions, new["type"])
    if current is not None and current.get("status") == new["status"]:
        new = {**new, "lastTransitionTime": current.get("lastTransitionTime", new["lastTransitionTime"])}
    return [*(one for one in conditions if one.get("type") != new["type"]), new]

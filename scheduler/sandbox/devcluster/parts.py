"""
Parts that objects of many kinds have: times, conditions, label selectors.

Source: apimachinery pkg/apis/meta/v1 (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from scheduler.engine.syntax.selectors import Requirement
from scheduler.sandbox.devcluster.kinds import JsonObject


def epoch_s(timestamp: object) -> float | None:
    """Return the seconds since 1970 of an RFC 3339 timestamp; None if it is absent or no timestamp."""
    if not isinstance(timestamp, str) or not timestamp:
        return None
    try:
        parsed = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def rfc3339(at_s: float) -> str:
    """Return `at_s` (seconds since 1970) as the API writes times, in whole seconds."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition_of(conditions: Iterable[JsonObject], condition_type: str) -> JsonObject | None:
    """Return the condition of this type; None if there is none."""
    return next((one for one in conditions if one.get("type") == condition_type), None)


def with_condition(conditions: Iterable[JsonObject], new: JsonObject) -> list[JsonObject]:
    """Return `conditions` with `new` in place of the one of its type; equal status keeps its transition time."""
    current = condition_of(conditions, new["type"])
    if current is not None and current.get("status") == new["status"]:
        new = {**new, "lastTransitionTime": current.get("lastTransitionTime", new["lastTransitionTime"])}
    return [*(one for one in conditions if one.get("type") != new["type"]), new]


def selects(selector: JsonObject | None, labels: Mapping[str, str]) -> bool:
    """Return True if a LabelSelector selects `labels`; an absent selector selects nothing."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(requirement_of(one).matches(labels) for one in selector.get("matchExpressions") or ())


def requirement_of(expression: JsonObject) -> Requirement:
    """Return the requirement that an expression of a label selector, or of a node selector, states."""
    values = tuple(sorted(expression.get("values") or ()))
    return Requirement(expression["key"], expression["operator"], values)

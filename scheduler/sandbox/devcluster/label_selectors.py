"""
LabelSelector objects: matching, and their text in kubectl.

Source: apimachinery pkg/apis/meta/v1/helpers.go (kubernetes 1.36).
"""

from collections.abc import Mapping

from scheduler.engine.syntax.selectors import Requirement
from scheduler.sandbox.devcluster.kinds import JsonObject


def selects(selector: JsonObject | None, labels: Mapping[str, str]) -> bool:
    """Return True if a LabelSelector selects `labels`; an absent selector selects nothing."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(
        Requirement(one["key"], one["operator"], tuple(sorted(one.get("values") or ()))).matches(labels)
        for one in selector.get("matchExpressions") or ()
    )


def selector_text(selector: JsonObject | None) -> str:
    """Return a LabelSelector as `a=1,b in (x,y),!c`; empty if it selects everything or nothing."""
    selector = selector or {}
    parts = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for one in selector.get("matchExpressions") or ():
        key, values = one.get("key", ""), ",".join(sorted(one.get("values") or ()))
        texts = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
        parts.append((key, texts.get(one.get("operator", ""), key)))
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))

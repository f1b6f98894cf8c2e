"""Every query of the dashboard and the alerts, and its parts."""

import json
import re
from typing import Any, NamedTuple

from tests.support.manifest_files import MANIFESTS, documents

FOLDER = MANIFESTS / "monitoring"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
(RULES,) = documents(FOLDER / "rules.yaml")
ALERTS: list[dict[str, Any]] = [rule for group in RULES["spec"]["groups"] for rule in group["rules"]]

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_RANGE = re.compile(r"\[[^\]]*\]")
_NAME = re.compile(r"\b([a-zA-Z_:][\w:]*)\b(?!\s*\()")
_KEYWORDS = {"and", "or", "unless", "bool", "offset", "sum", "max", "min", "count", "by", "on"}


class Query(NamedTuple):
    """An expression, and where it is used."""

    where: str
    expression: str


class Selection(NamedTuple):
    """The name of a series and the labels that are matched."""

    metric: str
    labels: frozenset[str]


def panels() -> list[dict[str, Any]]:
    """Return the panels that have queries."""
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def of_dashboard() -> list[Query]:
    """Return every query of a panel."""
    return [
        Query(f"{panel['title']} {target['refId']}", target["expr"])
        for panel in panels()
        for target in panel["targets"]
    ]


def of_alerts() -> list[Query]:
    """Return every alert's expression."""
    return [Query(rule["alert"], rule["expr"]) for rule in ALERTS]


def selections(expression: str) -> list[Selection]:
    """Return the selections of an expression, by the part of PromQL's grammar that ours use."""
    # String literals can contain anything, so they are removed first.
    bare = _STRING.sub('""', expression)
    found = [
        Selection(name, frozenset(re.split("[=!]", part)[0].strip() for part in inner.split(",") if part))
        for name, inner in _SELECTOR.findall(bare)
    ]
    rest = _RANGE.sub("", _GROUPING.sub("", _SELECTOR.sub("", bare)))
    rest = re.sub(r"\boffset\s+\w+", "", rest)
    return [*found, *(Selection(name, frozenset()) for name in _NAME.findall(rest) if name not in _KEYWORDS)]


def groupings(expression: str) -> set[str]:
    """Return the labels by which an expression groups and matches."""
    found = _GROUPING.findall(_STRING.sub('""', expression))
    return {label.strip() for labels in found for label in labels.split(",")}

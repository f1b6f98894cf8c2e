"""
Comparison of two answers: entries in, mismatches out.

Every field of a recorded entry is compared. Where one of the two answers has no `preemption`, it is not compared, and
`message` only up to the part on it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.support.messages import NO_CLAIMS

Json = Mapping[str, Any]

_PREEMPTION_PART = " preemption:"
_ABSENT = "nothing"


class Mismatch(NamedTuple):
    """One difference between the answers; `plugin` and `node` are "-" if it concerns none."""

    field: str
    plugin: str
    node: str
    expected: object
    got: object

    def __str__(self) -> str:
        return f"{self.field} {self.plugin} {self.node}: expected {self.expected}, got {self.got}"


def decision_mismatches(expected: Json, got: Json) -> list[Mismatch]:
    """
    Return the differences between a decision and the recorded one.

    Traces were recorded without DRAExtendedResource, and without what DynamicResources says of pods without claims.
    """
    if (message := got.get("message")) and NO_CLAIMS not in (expected.get("message") or ""):
        got = {**got, "message": message.replace(NO_CLAIMS, "")}
    found = _whole("error", expected.get("error"), got.get("error"))
    found += _by_plugin("prefilter", expected, got)
    found += _whole(
        "prefilterNodes", _sorted(expected.get("prefilterNodes")), _sorted(got.get("prefilterNodes"))
    )
    found += _by_plugin_and_node("filter", expected, got)
    found += _whole("feasible", _sorted(expected.get("feasible")), _sorted(got.get("feasible")))
    found += _by_plugin_and_node("score", expected, got)
    found += [
        Mismatch("total", "-", node, one, other)
        for node, one, other in _differing(expected.get("total") or {}, got.get("total") or {})
    ]
    if "preemption" not in got or "preemption" not in expected:
        return found + _whole("message", _before_preemption(expected), _before_preemption(got))
    found += _whole("message", expected.get("message"), got.get("message"))
    return found + _preemption(expected["preemption"], got["preemption"])


def _preemption(expected: Json, got: Json) -> list[Mismatch]:
    """Return the mismatches; of several winners that tie, any is right."""
    found = _whole("eligible", expected["eligible"], got["eligible"])
    found += [
        Mismatch("candidate", "-", node, one, other)
        for node, one, other in _differing(expected["candidates"] or {}, got["candidates"])
    ]
    winners = expected["winners"] or []
    theirs, ours = set(winners), set(got["winners"])
    is_one_of = (ours <= theirs or theirs <= ours) and bool(ours) == bool(theirs)
    return found if is_one_of else [*found, *_whole("winner", winners, got["winners"])]


def _by_plugin(field: str, expected: Json, got: Json) -> list[Mismatch]:
    return [
        Mismatch(field, plugin, "-", one, other)
        for plugin, one, other in _differing(expected.get(field) or {}, got.get(field) or {})
    ]


def _by_plugin_and_node(field: str, expected: Json, got: Json) -> list[Mismatch]:
    theirs, ours = expected.get(field) or {}, got.get(field) or {}
    found = []
    for plugin in sorted({*theirs, *ours}):
        if plugin not in theirs or plugin not in ours:
            # A plugin that answered in only one of them: one line, not one for each node.
            found.append(Mismatch(field, plugin, "-", theirs.get(plugin, _ABSENT), ours.get(plugin, _ABSENT)))
            continue
        found += [
            Mismatch(field, plugin, node, one, other)
            for node, one, other in _differing(theirs[plugin], ours[plugin])
            if not _same_refusal(one, other)
        ]
    return found


def _same_refusal(one: object, other: object) -> bool:
    """Return whether two statuses are equal except for the order of reasons, which upstream does not define."""
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return False
    return one["code"] == other["code"] and sorted(one["reasons"]) == sorted(other["reasons"])


def _differing(expected: Json, got: Json) -> list[tuple[str, object, object]]:
    return [
        (key, expected.get(key, _ABSENT), got.get(key, _ABSENT))
        for key in sorted({*expected, *got})
        if key not in expected or key not in got or expected[key] != got[key]
    ]


def _whole(field: str, expected: object, got: object) -> list[Mismatch]:
    return [] if expected == got else [Mismatch(field, "-", "-", expected, got)]


def _sorted(names: list[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)


def _before_preemption(entry: Json) -> str | None:
    message: str | None = entry.get("message")
    return None if message is None else message.split(_PREEMPTION_PART)[0].rstrip()

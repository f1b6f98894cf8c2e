"""
Label and field selectors of requests: parsed once, then applied to each object.

Source: apimachinery pkg/labels/selector.go, pkg/fields/selector.go and the field label conversions of
pkg/apis/*/v1/conversion.go (kubernetes 1.36). Difference: labels cannot be compared with `<` and `>`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.devcluster.kinds import JsonObject, Kind
from scheduler.devcluster.status import bad_request
from scheduler.syntax.names import label_key_faults, label_value_faults
from scheduler.syntax.selectors import Requirement

#: Return whether a request selects an object.
Matches = Callable[[JsonObject], bool]

_TOKEN: Final = re.compile(r"\s*(==|!=|[(),=!<>]|[^\s(),=!<>]+)\s*")
_PUNCTUATION: Final = frozenset({",", "(", ")", "=", "==", "!=", "<", ">"})
_COMPARISONS: Final = frozenset({"=", "==", "!="})


def parse_label_selector(text: str) -> list[Requirement]:
    """
    Return the requirements of a `labelSelector` parameter, all of which must hold.

    Raises: StatusError 400 if the text or a key or value in it breaks the grammar.
    """
    tokens = _tokens(text)
    requirements: list[Requirement] = []
    position = 0
    if tokens and tokens[0] in _PUNCTUATION:
        raise bad_request(f"found '{tokens[0]}', expected: !, identifier, or 'end of string'")
    while position < len(tokens):
        requirement, position = _requirement(tokens, position)
        requirements.append(requirement)
        if position == len(tokens):
            break
        if tokens[position] != ",":
            raise bad_request(f"found '{tokens[position]}', expected: ',' or 'end of string'")
        position += 1
        following = tokens[position] if position < len(tokens) else ""
        if following in ("", *_PUNCTUATION):
            raise bad_request(f"found '{following}', expected: identifier after ','")
    return requirements


def _tokens(text: str) -> list[str]:
    return [match.group(1) for match in _TOKEN.finditer(text)]


def _unparsable(why: str) -> Exception:
    return bad_request(f"unable to parse requirement: {why}")


def _requirement(tokens: Sequence[str], position: int) -> tuple[Requirement, int]:
    """Return the requirement that starts at `position`, and the position after it."""
    if tokens[position] == "!":
        if position + 1 == len(tokens) or tokens[position + 1] in _PUNCTUATION:
            found = tokens[position + 1] if position + 1 < len(tokens) else ""
            raise _unparsable(f"found '{found}', expected: identifier")
        key = _checked_key(tokens[position + 1])
        return Requirement(key, "DoesNotExist"), position + 2
    key = _checked_key(tokens[position])
    following = tokens[position + 1] if position + 1 < len(tokens) else ","
    if following == ",":
        return Requirement(key, "Exists"), position + 1
    if following in ("in", "notin"):
        values, end = _values_in_parentheses(tokens, position + 2)
        return _checked(Requirement(key, "In" if following == "in" else "NotIn", values)), end
    if following not in _COMPARISONS:
        raise _unparsable(f"found '{following}', expected: in, notin, =, ==, !=, gt, lt")
    value = tokens[position + 2] if position + 2 < len(tokens) else ","
    end = position + 2 if value == "," else position + 3
    value = "" if value == "," else value
    return _checked(Requirement(key, "NotIn" if following == "!=" else "In", (value,))), end


def _values_in_parentheses(tokens: Sequence[str], position: int) -> tuple[tuple[str, ...], int]:
    """Return the values of `in (a,b)`, empty ones included, and the position after the parenthesis."""
    if position >= len(tokens) or tokens[position] != "(":
        found = tokens[position] if position < len(tokens) else ""
        raise _unparsable(f"found '{found}' expected: '('")
    values: set[str] = set()
    expects_value = True
    for index in range(position + 1, len(tokens)):
        word = tokens[index]
        if word in (",", ")"):
            if expects_value:
                values.add("")
            if word == ")":
                return tuple(sorted(values)), index + 1
            expects_value = True
        else:
            values.add(word)
            expects_value = False
    raise _unparsable("found '', expected: ',' or ')'")


def _checked_key(key: str) -> str:
    faults = label_key_faults(key)
    if faults:
        raise bad_request(f'unable to parse requirement: <nil>: Invalid value: "{key}": {"; ".join(faults)}')
    return key


def _checked(requirement: Requirement) -> Requirement:
    for value in requirement.values:
        faults = label_value_faults(value)
        if faults:
            where = f"values[0][{requirement.key}]"
            raise bad_request(
                f'unable to parse requirement: {where}: Invalid value: "{value}": {"; ".join(faults)}'
            )
    return requirement


#: Fields of a stored object that requests may select by, beside metadata.name and metadata.namespace.
_EVENT_REFERENCE: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_FIELD_PATHS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "pods": {
        name: tuple(name.split("."))
        for name in (
            "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
            "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName",
        )
    },
    "nodes": {"spec.unschedulable": ("spec", "unschedulable")},
    "namespaces": {"status.phase": ("status", "phase"), "name": ("metadata", "name")},
    "services": {"spec.clusterIP": ("spec", "clusterIP"), "spec.type": ("spec", "type")},
    "replicationcontrollers": {"status.replicas": ("status", "replicas")},
    "events": {
        **{f"involvedObject.{name}": ("involvedObject", name) for name in _EVENT_REFERENCE},
        "reason": ("reason",),
        "type": ("type",),
        "reportingComponent": ("reportingComponent",),
        "source": ("source", "component"),
    },
    "events.events.k8s.io": {
        **{f"regarding.{name}": ("involvedObject", name) for name in _EVENT_REFERENCE},
        "reason": ("reason",),
        "type": ("type",),
        "reportingController": ("reportingComponent",),
    },
}  # fmt: skip
_BOOLEANS: Final = frozenset({"spec.unschedulable", "spec.hostNetwork"})
_NUMBERS: Final = frozenset({"status.replicas"})


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """One condition `field = value` or, if `negated`, `field != value`."""

    field: str
    path: tuple[str, ...]
    value: str
    negated: bool

    def matches(self, obj: JsonObject) -> bool:
        """Return True if a stored object meets the condition; an absent field reads as its empty value."""
        found: object = obj
        for step in self.path:
            found = found.get(step) if isinstance(found, dict) else None
        return (_field_text(self.field, found) == self.value) != self.negated


def _field_text(field: str, value: object) -> str:
    """Return a field's value as the text that selectors compare."""
    if field in _BOOLEANS:
        return "true" if value else "false"
    if field in _NUMBERS:
        return str(value or 0)
    return "" if value is None else str(value)


def parse_field_selector(text: str, kind: Kind) -> list[FieldRequirement]:
    """
    Return the requirements of a `fieldSelector` parameter on objects of `kind`, all of which must hold.

    Raises: StatusError 400 if the text breaks the grammar, or `kind` cannot be selected by a field in it.
    """
    return [_field_requirement(term, kind) for term in _split_unescaped(text) if term not in ("", "=", "==")]


def _split_unescaped(text: str) -> list[str]:
    """Return the comma-separated terms; a backslash escapes the character after it."""
    return re.split(r"(?<!\\),", text)


def _field_requirement(term: str, kind: Kind) -> FieldRequirement:
    parts = re.match(r"((?:[^=!\\]|\\.)*)(==|!=|=)(.*)", term, re.DOTALL)
    if parts is None:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    field, operator, value = parts.groups()
    if "=" in re.sub(r"\\.", "", value):
        raise bad_request(f"invalid field selector: unescaped character in value: {ord('=')}")
    value = re.sub(r"\\([\\,=])", r"\1", value)
    return FieldRequirement(field, _field_path(field, kind), value, operator == "!=")


def _field_path(field: str, kind: Kind) -> tuple[str, ...]:
    if field in ("metadata.name", "metadata.namespace"):
        return tuple(field.split("."))
    known = _FIELD_PATHS.get(kind.qualified)
    if known is None:
        only = 'only "metadata.name", "metadata.namespace"'
        raise bad_request(f'"{field}" is not a known field selector: {only}')
    if field not in known:
        raise bad_request(f"field label not supported: {field}")
    return known[field]


def matcher(kind: Kind, label_selector: str | None, field_selector: str | None) -> Matches | None:
    """
    Return the test for a request's two selectors together, or None if everything matches.

    Raises: StatusError 400 as the two parsers do.
    """
    labels = parse_label_selector(label_selector) if label_selector else []
    fields = parse_field_selector(field_selector, kind) if field_selector else []
    if not labels and not fields:
        return None

    def matches(obj: JsonObject) -> bool:
        if not all(requirement.matches(obj) for requirement in fields):
            return False
        return all(one.matches(obj["metadata"].get("labels") or {}) for one in labels)

    return matches

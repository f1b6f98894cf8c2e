"""
Label and field selectors of requests: parsed once, then applied to each object.

Source: apimachinery pkg/labels/selector.go, pkg/fields/selector.go and the field label conversions of
pkg/apis/*/v1/conversion.go (kubernetes 1.36). Differences: labels cannot be compared with `<` and
`>`, keys and values of labels are not checked, and a field's value has no commas and equals signs.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from scheduler.engine.syntax.selectors import Operator, Requirement
from scheduler.sandbox.devcluster.kinds import JsonObject, Kind
from scheduler.sandbox.devcluster.status import StatusError, bad_request

#: Return whether a request selects an object.
Matches = Callable[[JsonObject], bool]

_WORD: Final = r"[^\s(),=!<>]+"
#: One requirement: `!key`, `key`, `key in (a, b)`, or `key = value` with any of the three signs.
_REQUIREMENT: Final = re.compile(
    rf"\s*(?:!\s*(?P<absent>{_WORD})"
    rf"|(?P<key>{_WORD})(?:\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\)|\s*(?P<sign>==|!=|=)\s*(?P<value>{_WORD})?)?)\s*"
)
#: A comma that is not within parentheses.
_COMMA: Final = re.compile(r",(?![^()]*\))")


def _label_requirement(text: str) -> Requirement:
    """Return one requirement of a `labelSelector` parameter. Raises: StatusError 400 if it breaks the grammar."""
    parts = _REQUIREMENT.fullmatch(text)
    if parts is None:
        raise bad_request(
            f"unable to parse requirement: found '{text}', expected: key, !key, in, notin, =, ==, !="
        )
    if parts["absent"]:
        return Requirement(parts["absent"], "DoesNotExist")
    if parts["set"]:
        values = tuple(sorted({value.strip() for value in parts["values"].split(",")}))
        return Requirement(parts["key"], "In" if parts["set"] == "in" else "NotIn", values)
    if parts["sign"]:
        operator: Operator = "NotIn" if parts["sign"] == "!=" else "In"
        return Requirement(parts["key"], operator, (parts["value"] or "",))
    return Requirement(parts["key"], "Exists")


_REFERENCE: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
#: Kind -> fields that requests may select by, beside metadata.name and metadata.namespace; with the path in the stored
#: object, if that is another one.
_FIELDS: Final[Mapping[str, str]] = {
    "pods": "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork status.phase "
    "status.podIP status.nominatedNodeName",
    "nodes": "spec.unschedulable",
    "namespaces": "status.phase name=metadata.name",
    "resourceslices.resource.k8s.io": "spec.nodeName spec.driver",
    "events": "reason type reportingComponent source=source.component "
    + " ".join(f"involvedObject.{name}" for name in _REFERENCE),
    "events.events.k8s.io": "reason type reportingController=reportingComponent "
    + " ".join(f"regarding.{name}=involvedObject.{name}" for name in _REFERENCE),
}
_BOOLEANS: Final = frozenset({"spec.unschedulable", "spec.hostNetwork"})


class _FieldRequirement(NamedTuple):
    """One condition `field = value` or, if `negated`, `field != value`; `path` is where the field is stored."""

    field: str
    path: str
    value: str
    negated: bool

    def matches(self, obj: JsonObject) -> bool:
        """Return True if a stored object meets the condition; an absent field reads as its empty value."""
        found: object = obj
        for step in self.path.split("."):
            found = found.get(step) if isinstance(found, dict) else None
        text = str(bool(found)).lower() if self.field in _BOOLEANS else str(found or "")
        return (text == self.value) != self.negated


def _field_requirements(text: str, kind: Kind) -> list[_FieldRequirement]:
    """
    Return the requirements of a `fieldSelector` parameter on objects of `kind`, all of which must hold.

    Raises: StatusError 400 if the text breaks the grammar, or `kind` cannot be selected by a field in it.
    """
    words = f"metadata.name metadata.namespace {_FIELDS.get(kind.qualified, '')}".split()
    path_by_field = {field: path or field for field, _, path in (word.partition("=") for word in words)}
    found: list[_FieldRequirement] = []
    for term in filter(None, text.split(",")):
        parts = re.fullmatch(r"([^=!]*)(==|!=|=)([^=]*)", term)
        if parts is None:
            raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
        field, operator, value = parts.groups()
        if field not in path_by_field:
            raise bad_request(f"field label not supported: {field}")
        found.append(_FieldRequirement(field, path_by_field[field], value, operator == "!="))
    return found


def selected_name(field_selector: str, kind: Kind) -> str:
    """Return the one name that the `fieldSelector` admits; "" if it admits others, or cannot be parsed."""
    try:
        fields = _field_requirements(field_selector, kind)
    except StatusError:
        return ""
    return next((each.value for each in fields if each.field == "metadata.name" and not each.negated), "")


def matcher(kind: Kind, label_selector: str | None, field_selector: str | None) -> Matches | None:
    """
    Return the test for a request's two selectors together, or None if everything matches.

    Raises: StatusError 400 as the two parsers do.
    """
    labels = [_label_requirement(part) for part in _COMMA.split(label_selector)] if label_selector else []
    fields = _field_requirements(field_selector, kind) if field_selector else []
    if not labels and not fields:
        return None

    def matches(obj: JsonObject) -> bool:
        if not all(requirement.matches(obj) for requirement in fields):
            return False
        return all(one.matches(obj["metadata"].get("labels") or {}) for one in labels)

    return matches

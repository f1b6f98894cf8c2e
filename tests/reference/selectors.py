"""
Label selectors.

Source: apimachinery/pkg/labels/selector.go and pkg/apis/meta/v1/helpers.go (kubernetes 1.36).
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)

Labels = Mapping[str, str]


class SelectorError(ValueError):
    """A selector that does not parse."""


class Requirement(NamedTuple):
    """One condition on one label."""

    key: str
    operator: str
    values: tuple[str, ...]

    def matches(self, labels: Labels) -> bool:
        """Return whether a set of labels meets the requirement; an absent key meets NotIn."""
        if self.operator == "In":
            return self.key in labels and labels[self.key] in self.values
        if self.operator == "NotIn":
            return self.key not in labels or labels[self.key] not in self.values
        return (self.key in labels) == (self.operator == "Exists")


class Selector(NamedTuple):
    """
    The conjunction of requirements.

    An absent LabelSelector selects nothing at all; one without requirements selects everything.
    """

    requirements: tuple[Requirement, ...]
    nothing: bool = False

    @property
    def everything(self) -> bool:
        """Return whether the selector has no requirement (upstream: Empty)."""
        return not self.nothing and not self.requirements

    def matches(self, labels: Labels) -> bool:
        """Return whether a set of labels meets every requirement."""
        return not self.nothing and all(requirement.matches(labels) for requirement in self.requirements)


NOTHING = Selector((), nothing=True)


def parse(selector: Mapping[str, Any] | None) -> Selector:
    """
    Return the parsed LabelSelector.

    Raises: SelectorError for a bad key, a bad value, an unknown operator or a wrong number of values.
    """
    if selector is None:
        return NOTHING
    equal = [
        _requirement(key, "In", (value,))
        for key, value in sorted((selector.get("matchLabels") or {}).items())
    ]
    expressed = [
        _requirement(e["key"], e["operator"], tuple(e.get("values") or ()))
        for e in selector.get("matchExpressions") or []
    ]
    return Selector((*equal, *expressed))


def from_map(labels: Labels) -> Selector:
    """Return every given label present with its value; syntax is taken as checked."""
    return Selector(tuple(Requirement(key, "In", (value,)) for key, value in sorted(labels.items())))


def is_label_value(text: str) -> bool:
    """Return whether the text may be a label's value; an empty one may."""
    return len(text) <= 63 and (text == "" or _NAME.fullmatch(text) is not None)


def is_qualified_name(text: str) -> bool:
    """Return whether the text may be a label's key: `[prefix/]name`."""
    prefix, slash, name = text.rpartition("/")
    if slash and (len(prefix) > 253 or _SUBDOMAIN.fullmatch(prefix) is None):
        return False
    return len(name) <= 63 and _NAME.fullmatch(name) is not None


def _requirement(key: str, operator: str, values: tuple[str, ...]) -> Requirement:
    if not is_qualified_name(key):
        raise SelectorError(f"bad label key {key!r}")
    if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
        raise SelectorError(f"{operator!r} is not a valid label selector operator")
    if operator in ("In", "NotIn") and not values:
        raise SelectorError(f"{operator} of {key!r} needs values")
    if operator in ("Exists", "DoesNotExist") and values:
        raise SelectorError(f"{operator} of {key!r} takes no values")
    for value in values:
        if not is_label_value(value):
            raise SelectorError(f"bad label value {value!r} of {key!r}")
    return Requirement(key, operator, values)

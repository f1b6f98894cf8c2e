"""
Label selectors as frozen, comparable values.

Two selectors that state the same requirements are equal however they were written, so an index keeps one entry for
all of them.

Source: apimachinery/pkg/labels/selector.go, pkg/apis/meta/v1/helpers.go (kubernetes 1.36). Difference: of several bad
matchLabels the one with the smallest key is reported; upstream reports any.
"""

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from scheduler.engine.syntax.names import label_key_faults, label_value_faults

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]

#: The operators, each as the one text that all requirements share.
_OPERATORS: Final[Mapping[str, Operator]] = {
    "In": "In", "NotIn": "NotIn", "Exists": "Exists", "DoesNotExist": "DoesNotExist",
}  # fmt: skip
#: Up to this many values a linear scan is faster than a binary search.
_LINEAR_SCAN_LIMIT: Final = 16
#: Requirements of at most so many characters are kept for the next selector: 2 MiB for the 4,096 used last.
_SHARED_CHARACTERS: Final = 128


class SelectorError(ValueError):
    """A selector that does not parse. The message is one line in upstream's words."""


class Requirement(NamedTuple):
    """One condition on a label set. `values` are sorted, and empty for Exists and DoesNotExist."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """
        Return whether `labels` satisfy it; a missing key satisfies NotIn and DoesNotExist. O(log(len(values))).

        Source: labels/selector.go, Requirement.Matches (kubernetes 1.36).
        """
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return _contains(self.values, value)
            case "NotIn":
                return not _contains(self.values, value)
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None


def _contains(values: tuple[str, ...], value: str | None) -> bool:
    if len(values) <= _LINEAR_SCAN_LIMIT:
        return value in values
    if value is None:
        return False
    index = bisect_left(values, value)
    return index < len(values) and values[index] == value


@dataclass(frozen=True, slots=True)
class Selector:
    """
    The AND of requirements, or NOTHING. Hashable; equal when the requirements are the same.

    `requirements` and their values are sorted, and each occurs once, whatever the constructor was given.
    """

    requirements: tuple[Requirement, ...] = ()
    #: The selector of a nil LabelSelector: matches no label set, and stays so whatever is added.
    is_nothing: bool = False

    def __post_init__(self) -> None:
        unique = {
            r if len(r.values) <= 1 else Requirement(r.key, r.operator, tuple(sorted(set(r.values))))
            for r in self.requirements
        }
        object.__setattr__(self, "requirements", () if self.is_nothing else tuple(sorted(unique)))

    @property
    def is_empty(self) -> bool:
        """Return whether it restricts nothing: true for EVERYTHING, false for NOTHING (upstream's Empty)."""
        return not self.requirements and not self.is_nothing

    @property
    def required_keys(self) -> tuple[str, ...]:
        """Return the keys that every matching label set has, by In or Exists; sorted, each once."""
        return tuple(sorted({r.key for r in self.requirements if r.operator in ("In", "Exists")}))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether `labels` satisfy every requirement. Each costs O(log(its values))."""
        if self.is_nothing:
            return False
        for requirement in self.requirements:  # noqa: SIM110  (a generator would cost more than the checks)
            if not requirement.matches(labels):
                return False
        return True

    def anchor(self) -> tuple[str, tuple[str, ...]] | None:
        """Return the key and values of the In requirement with the fewest values; each match has one of these."""
        fewest: Requirement | None = None
        for one in self.requirements:
            if one.operator == "In" and (fewest is None or len(one.values) < len(fewest.values)):
                fewest = one
        return None if fewest is None else (fewest.key, fewest.values)


NOTHING: Final = Selector(is_nothing=True)
EVERYTHING: Final = Selector()


def parse_selector(
    match_labels: Mapping[str, str] | None,
    match_expressions: Sequence[tuple[str, str, tuple[str, ...]]] | None,
) -> Selector:
    """
    Return the selector of a LabelSelector that is not nil (nil is NOTHING); `{}` gives EVERYTHING.

    `match_expressions`: (key, operator, values) each. Raises SelectorError.

    Source: meta/v1/helpers.go, LabelSelectorAsSelector; labels.NewRequirement (kubernetes 1.36).
    """
    requirements = [_requirement(key, "In", (value,)) for key, value in sorted((match_labels or {}).items())]
    for key, named, values in match_expressions or ():
        operator = _OPERATORS.get(named)
        if operator is None:
            raise SelectorError(f"{_quoted(named)} is not a valid label selector operator")
        requirements.append(_requirement(key, operator, values))
    return Selector(tuple(requirements)) if requirements else EVERYTHING


def with_requirements(selector: Selector, extra: Mapping[str, str]) -> Selector:
    """Return `selector` AND every key=value of `extra`. NOTHING stays NOTHING."""
    if selector.is_nothing or not extra:
        return selector
    added = tuple(Requirement(key, "In", (value,)) for key, value in extra.items())
    return Selector(selector.requirements + added)


def merge_requirements(first: Selector, second: Selector) -> Selector:
    """Return the selector of the label sets that both match; NOTHING if either is NOTHING."""
    if first.is_nothing or second.is_empty:
        return first
    if second.is_nothing or first.is_empty:
        return second
    return Selector(first.requirements + second.requirements)


def _requirement(key: str, operator: Operator, values: tuple[str, ...]) -> Requirement:
    """Return the requirement; raise SelectorError. Equal ones of a few characters are shared by the selectors."""
    is_short = len(values) <= 1 and len(key) + len("".join(values)) <= _SHARED_CHARACTERS
    return _shared_requirement(key, operator, values) if is_short else _checked(key, operator, values)


def _checked(key: str, operator: Operator, values: tuple[str, ...]) -> Requirement:
    problems = []
    if key_faults := label_key_faults(key):
        problems.append(f"key: Invalid value: {_quoted(key)}: {'; '.join(key_faults)}")
    if operator in ("In", "NotIn") and not values:
        problems.append("values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty")
    if operator in ("Exists", "DoesNotExist") and values:
        listed = json.dumps(values, separators=(",", ":"))
        problems.append(
            f"values: Invalid value: {listed}: values set must be empty for exists and does not exist"
        )
    for index, value in enumerate(values):
        if value_faults := label_value_faults(value):
            where = f"values[{index}][{escaped(key)}]"
            problems.append(f"{where}: Invalid value: {_quoted(value)}: {'; '.join(value_faults)}")
    if problems:
        raise SelectorError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
    return Requirement(key, operator, values)


_shared_requirement: Final = lru_cache(maxsize=4096)(_checked)


def _quoted(text: str) -> str:
    """Return `text` in quotes, on one line, as Go's %q writes it except for rare escapes."""
    return '"' + escaped(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def escaped(text: str) -> str:
    """Return `text` on one line, with control characters escaped."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)

"""
Label selectors as frozen, comparable values, and the syntax of label keys and values.

Two selectors that state the same requirements are equal however they were written, so an index can keep one
entry for all of them.

Source: apimachinery/pkg/labels/selector.go, pkg/apis/meta/v1/helpers.go, pkg/api/validate/content/kube.go
(kubernetes 1.36). Difference: of several bad matchLabels the one with the smallest key is reported, upstream
takes any.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeGuard

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]

_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_MAX_NAME_BYTES: Final = 63
_MAX_PREFIX_BYTES: Final = 253
#: Up to so many a walk is faster than a search.
_FEW_VALUES: Final = 16

_NAME_FORMAT: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE_FORMAT: Final = f"({_NAME_FORMAT})?"
_PREFIX_FORMAT: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME: Final = re.compile(_NAME_FORMAT)
_VALUE: Final = re.compile(_VALUE_FORMAT)
_PREFIX: Final = re.compile(_PREFIX_FORMAT)

_CHARACTERS: Final = (
    "consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)
_NAME_RULE: Final = (
    f"must {_CHARACTERS} (e.g. 'MyName',  or 'my.name',  or '123-abc', "
    f"regex used for validation is '{_NAME_FORMAT}')"
)
_VALUE_RULE: Final = (
    f"a valid label must be an empty string or {_CHARACTERS} (e.g. 'MyValue',  or 'my_value',  or '12345', "
    f"regex used for validation is '{_VALUE_FORMAT}')"
)
_PREFIX_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character "
    f"(e.g. 'example.com', regex used for validation is '{_PREFIX_FORMAT}')"
)


class SelectorError(ValueError):
    """A selector that does not parse. The message is one line in upstream's words."""


class Requirement(NamedTuple):
    """One condition on a label set; `values` is empty for Exists and DoesNotExist."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """
        Whether `labels` satisfy it; a missing key satisfies NotIn and DoesNotExist. O(log(len(values))).

        `values` are sorted, as a Selector's are.

        Source: labels/selector.go, Requirement.Matches (kubernetes 1.36).
        """
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return _holds(self.values, value)
            case "NotIn":
                return not _holds(self.values, value)
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None


def _holds(values: tuple[str, ...], value: str | None) -> bool:
    if len(values) <= _FEW_VALUES:
        return value in values
    if value is None:
        return False
    place = bisect_left(values, value)
    return place < len(values) and values[place] == value


@dataclass(frozen=True, slots=True)
class Selector:
    """
    The AND of requirements, or NOTHING. Hashable; equal when the requirements are the same.

    Whatever is passed, `requirements` are sorted and free of repetitions afterwards, and so are their values.
    """

    requirements: tuple[Requirement, ...] = ()
    #: The selector of a nil LabelSelector: matches no label set, and stays so whatever is added.
    is_nothing: bool = False

    def __post_init__(self) -> None:
        unique = {Requirement(r.key, r.operator, tuple(sorted(set(r.values)))) for r in self.requirements}
        object.__setattr__(self, "requirements", () if self.is_nothing else tuple(sorted(unique)))

    @property
    def is_empty(self) -> bool:
        """Whether it restricts nothing: true for EVERYTHING, false for NOTHING (upstream's Empty)."""
        return not self.requirements and not self.is_nothing

    @property
    def required_keys(self) -> tuple[str, ...]:
        """Keys that every matching label set has, by In or Exists; sorted, each once."""
        return tuple(sorted({r.key for r in self.requirements if r.operator in ("In", "Exists")}))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether `labels` satisfy every requirement. O(requirements), at the logarithm of their values each."""
        if self.is_nothing:
            return False
        for requirement in self.requirements:  # noqa: SIM110  (a generator would cost more than the checks)
            if not requirement.matches(labels):
                return False
        return True

    def anchor(self) -> tuple[str, tuple[str, ...]] | None:
        """
        The key and values of the In requirement with the fewest values, None if there is no In requirement.

        Every label set that matches holds one of these values at this key, so an index needs to look at the
        selector only in those buckets.
        """
        listed = [(r.key, r.values) for r in self.requirements if r.operator == "In"]
        return min(listed, key=lambda pair: len(pair[1]), default=None)


NOTHING: Final = Selector(is_nothing=True)
EVERYTHING: Final = Selector()


def parse_selector(
    match_labels: Mapping[str, str] | None,
    match_expressions: Sequence[tuple[str, str, tuple[str, ...]]] | None,
) -> Selector:
    """
    The selector of a LabelSelector that is there (one that is nil is NOTHING); `{}` gives EVERYTHING.

    Args:
        match_labels: each pair must be present.
        match_expressions: (key, operator, values) each.

    Raises:
        SelectorError: bad key or value syntax, unknown operator, or values where there must be none or some.

    Source: meta/v1/helpers.go, LabelSelectorAsSelector; labels.NewRequirement (kubernetes 1.36).
    """
    requirements = [_requirement(key, "In", (value,)) for key, value in sorted((match_labels or {}).items())]
    for key, operator, values in match_expressions or ():
        if not _is_operator(operator):
            raise SelectorError(f"{_quoted(operator)} is not a valid label selector operator")
        requirements.append(_requirement(key, operator, values))
    return Selector(tuple(requirements)) if requirements else EVERYTHING


def with_requirements(selector: Selector, extra: Mapping[str, str]) -> Selector:
    """`selector` AND every key=value of `extra`. NOTHING stays NOTHING."""
    if selector.is_nothing or not extra:
        return selector
    added = tuple(Requirement(key, "In", (value,)) for key, value in extra.items())
    return Selector(selector.requirements + added)


def merge_requirements(first: Selector, second: Selector) -> Selector:
    """What matches both. NOTHING if either is."""
    if first.is_nothing or second.is_empty:
        return first
    if second.is_nothing or first.is_empty:
        return second
    return Selector(first.requirements + second.requirements)


def qualified_name_problem(name: str) -> str | None:
    """
    Why `name` is no label key, taint key or resource name, in upstream's words; None if it is one.

    Source: content/kube.go, IsLabelKey (kubernetes 1.36).
    """
    prefix, slash, base = name.rpartition("/")
    if "/" in prefix:
        example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return f"a valid label key {_NAME_RULE} {example}"
    problems = []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash:
        problems += [f"prefix part {problem}" for problem in _prefix_problems(prefix)]
    if not base:
        problems.append("name part must be non-empty")
    elif _n_bytes(base) > _MAX_NAME_BYTES:
        problems.append(f"name part must be no more than {_MAX_NAME_BYTES} bytes")
    if not _NAME.fullmatch(base):
        problems.append(f"name part {_NAME_RULE}")
    return "; ".join(problems) or None


def label_value_problem(value: str) -> str | None:
    """
    Why `value` is no label value, in upstream's words; None if it is one. The empty text is one.

    Source: content/kube.go, IsLabelValue (kubernetes 1.36).
    """
    problems = []
    if _n_bytes(value) > _MAX_NAME_BYTES:
        problems.append(f"must be no more than {_MAX_NAME_BYTES} bytes")
    if not _VALUE.fullmatch(value):
        problems.append(_VALUE_RULE)
    return "; ".join(problems) or None


def _prefix_problems(prefix: str) -> Iterable[str]:
    if _n_bytes(prefix) > _MAX_PREFIX_BYTES:
        yield f"must be no more than {_MAX_PREFIX_BYTES} bytes"
    if not _PREFIX.fullmatch(prefix):
        yield _PREFIX_RULE


def _requirement(key: str, operator: Operator, values: tuple[str, ...]) -> Requirement:
    problems = []
    if key_problem := qualified_name_problem(key):
        problems.append(f"key: Invalid value: {_quoted(key)}: {key_problem}")
    if operator in ("In", "NotIn") and not values:
        problems.append("values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty")
    if operator in ("Exists", "DoesNotExist") and values:
        listed = json.dumps(values, separators=(",", ":"))
        problems.append(
            f"values: Invalid value: {listed}: values set must be empty for exists and does not exist"
        )
    for index, value in enumerate(values):
        if value_problem := label_value_problem(value):
            problems.append(
                f"values[{index}][{escaped(key)}]: Invalid value: {_quoted(value)}: {value_problem}"
            )
    if problems:
        raise SelectorError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
    return Requirement(key, operator, values)


def _is_operator(text: str) -> TypeGuard[Operator]:
    return text in _OPERATORS


def _n_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _quoted(text: str) -> str:
    """`text` between quotes as Go's %q writes it, but for its rarer escapes; always one line."""
    return '"' + escaped(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def escaped(text: str) -> str:
    """`text` on one line, without characters that a terminal would act on."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)

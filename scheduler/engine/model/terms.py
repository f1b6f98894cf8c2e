"""
Affinity terms, spread constraints, tolerations and node selectors, parsed once.

A list that does not parse is a `Problem`: an incoming pod is refused with upstream's message, and on a running pod the
list counts as empty (interpodaffinity, kubernetes 1.36).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from msgspec import field

from scheduler.engine.model.wire import Wire
from scheduler.engine.syntax.names import label_key_faults, label_value_faults
from scheduler.engine.syntax.selectors import Selector

HOSTNAME_KEY: Final = "kubernetes.io/hostname"
ZONE_KEY: Final = "topology.kubernetes.io/zone"
#: The key of the taint that the node controller sets on a cordoned node.
CORDON_TAINT_KEY: Final = "node.kubernetes.io/unschedulable"

#: Source: apimachinery/pkg/api/validate/content/decimal_int.go (kubernetes 1.36).
_DECIMAL: Final = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
_INT64_LIMIT: Final = 1 << 63
_INT64_DIGITS: Final = 19


@dataclass(frozen=True, slots=True)
class Problem:
    """The reason why a part of an object did not parse: one line, worded as upstream words it."""

    cause: str


@dataclass(frozen=True, slots=True)
class Shares:
    """
    The share of the pods that an anti-affinity term selects that a domain may have; only by annotation.

    Attributes:
        percent: of every domain; 0 if there are weights.
        weights: by domain, sorted. A domain's share is its weight among those of all domains that have a node.
        least_whole: the number of pods that is divided if fewer are selected: the minimum of the pod's group.
    """

    percent: int = 0
    weights: tuple[tuple[str, int], ...] = ()
    least_whole: int = 0


#: The most selected pods of a domain, the declaring pod included, as a number or as a share.
DomainLimit = int | Shares


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """
    One (anti-)affinity term as declared by a pod.

    The term covers the union of `namespaces` and `namespace_selector`.

    Attributes:
        namespaces: the listed namespaces; the declaring pod's own if neither a list nor a selector is given.
        namespace_selector: NOTHING if absent.
        weight: 0 for required terms.
        max_pods: matching pods that a required anti-affinity term allows per domain, the declaring pod included; other
            than 1 only by annotation. Weights of a preferred anti-affinity term are here, too.
        enforced: whether the rule has to hold while the pod runs; only by annotation.
        crosses_by_annotation: whether an annotation declares it and it is not about the pod's own namespace alone. It
            counts only if an administrator lets the namespace declare such terms: quotas do not see annotations.
        by_annotation: whether an annotation declares it, so that autoscalers do not see it.
        yields: whether this required anti-affinity gives way to a pod that has relaxed an equal term; see `fallback`.
        percent_of_minimum: `max_pods` as a percentage of the minimum of the pod's group; 0 if it is no percentage.
    """

    selector: Selector
    namespaces: frozenset[str]
    namespace_selector: Selector
    topology_key: str
    weight: int = 0
    max_pods: DomainLimit = 1
    enforced: bool = False
    crosses_by_annotation: bool = False
    by_annotation: bool = False
    yields: bool = False
    percent_of_minimum: int = 0

    @property
    def is_limiting(self) -> bool:
        """Whether it is about a number or a share of pods, and not about any pod."""
        return self.max_pods != 1


#: A parsed list of terms, or why it did not parse: the first bad term makes the whole list a problem.
TermList = tuple[AffinityTerm, ...] | Problem


@dataclass(frozen=True, slots=True)
class PodAffinity:
    """The four term lists of a pod; each parses or fails on its own."""

    required: TermList = ()
    required_anti: TermList = ()
    preferred: TermList = ()
    preferred_anti: TermList = ()

    def usable_terms(self) -> Iterator[AffinityTerm]:
        """Yield the terms of all lists that parse."""
        for terms in (self.required, self.required_anti, self.preferred, self.preferred_anti):
            yield from usable(terms)

    def crosses_by_annotation(self) -> bool:
        """Return whether a term crosses namespaces by annotation. O(terms)."""
        return any(term.crosses_by_annotation for term in self.usable_terms())

    def problem(self) -> str | None:
        """
        Return the problem of the first list that does not parse, with upstream's name of the list; None if all parse.

        Source: pkg/scheduler/framework/types.go, NewPodInfo (kubernetes 1.36).
        """
        for name, terms in (
            ("requiredAffinityTerms", self.required),
            ("requiredAntiAffinityTerms", self.required_anti),
            ("preferredAffinityTerms", self.preferred),
            ("preferredAntiAffinityTerms", self.preferred_anti),
        ):
            if isinstance(terms, Problem):
                return f"{name}: {terms.cause}"
        return None


def usable(terms: TermList) -> tuple[AffinityTerm, ...]:
    """Return the terms of a list; none if it does not parse, as upstream treats lists of running pods."""
    return () if isinstance(terms, Problem) else terms


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """One topology spread constraint; the plugin merges `match_label_keys` into `selector` for each pod."""

    max_skew: int
    topology_key: str
    hard: bool
    selector: Selector | Problem
    min_domains: int = 1
    honor_node_affinity: bool = True
    honor_node_taints: bool = False
    match_label_keys: tuple[str, ...] = ()


class Taint(Wire, frozen=True):
    """A taint of a node or a device."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Toleration(Wire, frozen=True):
    """A toleration of a pod."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """
        Return whether this toleration covers the taint.

        Source: staging/src/k8s.io/api/core/v1/toleration.go, ToleratesTaint (kubernetes 1.36).
        """
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        match self.operator:
            case "" | "Equal":
                return self.value == taint.value
            case "Exists":
                return True
            case "Lt" | "Gt":
                own, other = _decimal(self.value), _decimal(taint.value)
                if own is None or other is None:
                    return False
                return other < own if self.operator == "Lt" else other > own
            case _:
                return False


def _decimal(text: str) -> int | None:
    """Return a decimal integer of 64 bits without leading zeros or plus sign, None for any other text."""
    return parse_int64(text) if _DECIMAL.fullmatch(text) else None


class NodeRequirement(Wire, frozen=True, omit_defaults=True):
    """One expression of a node selector term; `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeTerm(Wire, frozen=True, omit_defaults=True, cache_hash=True):
    """
    One node selector term: a node has to satisfy all label expressions and all name requirements.

    An empty term and a term with a `problem` match no node; other terms of the selector still count. The hash is kept:
    every decision looks its terms up, and to hash 992 requirements takes 0.5 ms.
    """

    expressions: tuple[NodeRequirement, ...] = field(name="matchExpressions", default=())
    names: tuple[NodeRequirement, ...] = field(name="matchFields", default=())

    @property
    def problem(self) -> str | None:
        """Return why upstream would not parse the first requirement that it would not; None if it parses all."""
        return _problem_of(self)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the path of each requirement that upstream would not parse, and why."""
        for index, each in enumerate(self.expressions):
            if (problem := _expression_problem(each)) is not None:
                yield f"matchExpressions[{index}]", problem
        for index, each in enumerate(self.names):
            if (problem := _field_problem(each)) is not None:
                yield f"matchFields[{index}]", problem

    @property
    def is_empty(self) -> bool:
        """Return whether both lists are empty; such a term matches no node."""
        return not self.expressions and not self.names


@lru_cache(maxsize=4096)
def _problem_of(term: NodeTerm) -> str | None:
    return next((problem for _, problem in term.problems()), None)


def _expression_problem(expression: NodeRequirement) -> str | None:
    values = expression.values
    if key_faults := label_key_faults(expression.key):
        return f'key: Invalid value: "{expression.key}": {"; ".join(key_faults)}'
    match expression.operator:
        case "In" | "NotIn":
            if not values:
                return "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
        case "Exists" | "DoesNotExist":
            if values:
                return "values: Invalid value: values set must be empty for exists and does not exist"
        case "Gt" | "Lt":
            if len(values) != 1:
                return "values: Invalid value: for 'Gt', 'Lt' operators, exactly one value is required"
            if parse_int64(values[0]) is None:
                return "values[0]: Invalid value: for 'Gt', 'Lt' operators, the value must be an integer"
        case other:
            return f'operator: Unsupported value: "{other}"'
    for index, value in enumerate(values):
        if value_faults := label_value_faults(value):
            return f'values[{index}][{expression.key}]: Invalid value: "{value}": {"; ".join(value_faults)}'
    return None


def _field_problem(name: NodeRequirement) -> str | None:
    if name.operator not in ("In", "NotIn"):
        return f'operator: Unsupported value: "{name.operator}"'
    if len(name.values) != 1:
        return "values: Invalid value: must have one element"
    return None if name.key == "metadata.name" else f'key: Unsupported value: "{name.key}"'


def parse_int64(text: str) -> int | None:
    """Return the integer that Go's ParseInt(text, 10, 64) reads; None if it returns an error."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or not digits.isdigit() or len(digits.lstrip("0")) > _INT64_DIGITS:
        return None
    value = int(text[: -len(digits)] + (digits.lstrip("0") or "0"))
    return value if -_INT64_LIMIT <= value < _INT64_LIMIT else None


def satisfies(value: str | None, requirement: NodeRequirement) -> bool:
    """Return whether a label of the value, None for none, or a node of that name satisfies the requirement."""
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    number = None if value is None else parse_int64(value)
    bound = parse_int64(requirement.values[0])
    if number is None or bound is None:
        return False
    return number > bound if requirement.operator == "Gt" else number < bound


class PreferredNodeTerm(Wire, frozen=True):
    """A node term that adds `weight` to the score of every node it matches."""

    weight: int = 0
    term: NodeTerm = field(name="preference", default=NodeTerm())


@dataclass(frozen=True, slots=True)
class RequiredNodeAffinity:
    """
    The nodeSelector and the required node affinity of a pod; a node has to satisfy both.

    Attributes:
        node_selector: label pairs; None if the pod has no nodeSelector, which PreFilter tells from an empty one.
        terms: a node has to satisfy one of them; None if the pod has no required node affinity.

    Source: component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go, RequiredNodeAffinity (kubernetes 1.36).
    """

    node_selector: tuple[tuple[str, str], ...] | None
    terms: tuple[NodeTerm, ...] | None

    @property
    def matches_all_nodes(self) -> bool:
        """Return whether every node satisfies the rule."""
        return not self.node_selector and self.terms is None

    def label_keys(self) -> set[str]:
        """Return the keys of the node labels that the rule reads."""
        pairs = self.node_selector or ()
        expressions = (each for term in self.terms or () for each in term.expressions)
        return {*(key for key, _ in pairs), *(each.key for each in expressions)}


ANY_NODE: Final = RequiredNodeAffinity(node_selector=None, terms=None)

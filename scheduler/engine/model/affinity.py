"""
Parsing of affinity and spread fields. A list with a bad term is a `Problem`; the other lists still count.

Source: pkg/scheduler/framework/types.go (GetAffinityTerms, newAffinityTerm),
component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from sys import intern
from typing import Final, TypeVar

from scheduler.engine.model import pod_wire, wire
from scheduler.engine.model.terms import (
    ANY_NODE,
    AffinityTerm,
    PodAffinity,
    Problem,
    RequiredNodeAffinity,
    SpreadConstraint,
    TermList,
)
from scheduler.engine.syntax.selectors import NOTHING, Selector, SelectorError, parse_selector

_W = TypeVar("_W")
#: Shared: an empty frozenset takes 216 bytes, as much as everything else of a term.
_NO_NAMESPACES: Final[frozenset[str]] = frozenset()


def label_selector(raw: wire.LabelSelector | None) -> Selector:
    """Return the selector of an API LabelSelector: null selects nothing, `{}` everything; raise SelectorError."""
    if raw is None:
        return NOTHING
    return parse_selector(
        raw.match_labels, [(e.key, e.operator, e.values or ()) for e in raw.match_expressions or ()]
    )


def parse_affinity(namespace: str, raw: pod_wire.WireAffinity | None) -> PodAffinity:
    """Return the four term lists of a pod in `namespace`; a list with a bad term is a Problem."""
    if raw is None:
        return PodAffinity()

    def weighted(preferred: pod_wire.WireWeightedTerm) -> AffinityTerm:
        return _term(namespace, preferred.pod_affinity_term, preferred.weight)

    def required(term: pod_wire.WireAffinityTerm) -> AffinityTerm:
        return _term(namespace, term, 0)

    return PodAffinity(
        required=_terms(raw.pod_affinity.required, required),
        required_anti=_terms(raw.pod_anti_affinity.required, required),
        preferred=_terms(raw.pod_affinity.preferred, weighted),
        preferred_anti=_terms(raw.pod_anti_affinity.preferred, weighted),
    )


def _terms(raw: Iterable[_W], parse: Callable[[_W], AffinityTerm]) -> TermList:
    try:
        return tuple(parse(term) for term in raw)
    except SelectorError as error:
        return Problem(str(error))


def _term(namespace: str, raw: pod_wire.WireAffinityTerm, weight: int) -> AffinityTerm:
    if raw.namespaces:
        namespaces = frozenset(raw.namespaces)
    else:
        namespaces = _only(namespace) if raw.namespace_selector is None else _NO_NAMESPACES
    return AffinityTerm(
        selector=label_selector(raw.label_selector),
        namespaces=namespaces,
        namespace_selector=label_selector(raw.namespace_selector),
        topology_key=intern(raw.topology_key),
        weight=weight,
    )


@lru_cache(maxsize=1024)
def _only(namespace: str) -> frozenset[str]:
    """Return the set of this namespace alone, which most terms share."""
    return frozenset((namespace,))


def parse_spread(raw: pod_wire.WireSpreadConstraint) -> SpreadConstraint:
    """Return a spread constraint with its defaults: minDomains 1, node affinity honoured, taints ignored."""
    selector: Selector | Problem
    try:
        selector = label_selector(raw.label_selector)
    except SelectorError as error:
        selector = Problem(str(error))
    return SpreadConstraint(
        max_skew=raw.max_skew,
        topology_key=raw.topology_key,
        hard=raw.when_unsatisfiable == "DoNotSchedule",
        selector=selector,
        min_domains=1 if raw.min_domains is None else raw.min_domains,
        honor_node_affinity=raw.node_affinity_policy != "Ignore",
        honor_node_taints=raw.node_taints_policy == "Honor",
        match_label_keys=raw.match_label_keys or (),
    )


def parse_required_node_affinity(
    node_selector: Mapping[str, str] | None, affinity: pod_wire.WireAffinity | None
) -> RequiredNodeAffinity:
    """Return nodeSelector and required node affinity of a pod."""
    required = None if affinity is None else affinity.node_affinity.required
    if node_selector is None and required is None:
        return ANY_NODE
    return RequiredNodeAffinity(
        node_selector=None if node_selector is None else tuple(sorted(node_selector.items())),
        terms=None if required is None else required.terms,
    )

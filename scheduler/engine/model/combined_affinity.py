"""The affinity of a pod's spec and the affinity of its annotation as one."""

from __future__ import annotations

from typing import Final, NamedTuple

from scheduler.engine.model.annotations import AFFINITY, AnnotatedAffinity
from scheduler.engine.model.terms import (
    ANY_NODE,
    NodeTerm,
    PodAffinity,
    PreferredNodeTerm,
    Problem,
    RequiredNodeAffinity,
    TermList,
)

#: Node selector terms of both: each term of the spec with each of the annotation.
_LIMIT_NODE_TERMS: Final = 64


class DeclaredAffinity(NamedTuple):
    """The affinity that a pod declares; `preferred_nodes` is None without such a list."""

    pod_affinity: PodAffinity
    required_nodes: RequiredNodeAffinity
    preferred_nodes: tuple[PreferredNodeTerm, ...] | None


def combined(spec: DeclaredAffinity, annotated: AnnotatedAffinity) -> DeclaredAffinity | Problem:
    """Return the affinity of both, or only that of the annotation if it replaces the spec's."""
    required_nodes = _combined_required_nodes(spec.required_nodes, annotated)
    if isinstance(required_nodes, Problem):
        return required_nodes
    of_spec = None if annotated.replaces else spec.preferred_nodes
    return DeclaredAffinity(
        _combined_pod_affinity(spec.pod_affinity, annotated),
        required_nodes,
        (*(of_spec or ()), *annotated.preferred_nodes) or of_spec,
    )


def _combined_pod_affinity(spec: PodAffinity, annotated: AnnotatedAffinity) -> PodAffinity:
    """Return the terms of spec and annotation; a list of the spec that does not parse stays a problem."""
    added = annotated.pod_affinity
    if annotated.replaces:
        return added
    return PodAffinity(
        required=_joined(spec.required, added.required),
        required_anti=_joined(spec.required_anti, added.required_anti),
        preferred=_joined(spec.preferred, added.preferred),
        preferred_anti=_joined(spec.preferred_anti, added.preferred_anti),
    )


def _joined(first: TermList, second: TermList) -> TermList:
    if isinstance(first, Problem):
        return first
    return first if isinstance(second, Problem) else (*first, *second)


def _combined_required_nodes(
    spec: RequiredNodeAffinity, annotated: AnnotatedAffinity
) -> RequiredNodeAffinity | Problem:
    """
    Return the required node affinity of both: their terms are combined pairwise.

    nodeSelector is never replaced.
    """
    terms = annotated.required_node_affinity.terms
    if annotated.replaces or terms is None or spec.terms is None:
        only = terms if annotated.replaces or spec.terms is None else spec.terms
        if spec.node_selector is None and only is None:
            return ANY_NODE
        return RequiredNodeAffinity(spec.node_selector, only)
    if len(spec.terms) * len(terms) > _LIMIT_NODE_TERMS:
        return Problem(
            f"annotation {AFFINITY}: $.nodeAffinity: more than {_LIMIT_NODE_TERMS} alternatives with the spec's"
        )
    return RequiredNodeAffinity(
        spec.node_selector, tuple(_both(first, second) for first in spec.terms for second in terms)
    )


def _both(first: NodeTerm, second: NodeTerm) -> NodeTerm:
    """Return the term that matches a node if both match it: no node if one of the terms is empty."""
    if first.is_empty or second.is_empty:
        return NodeTerm((), ())
    return NodeTerm((*first.expressions, *second.expressions), (*first.names, *second.names))

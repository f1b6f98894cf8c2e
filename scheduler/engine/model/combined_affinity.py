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
    usable,
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
    own, added = spec.pod_affinity, annotated.pod_affinity
    if annotated.replaces:
        return DeclaredAffinity(added, required_nodes, annotated.preferred_nodes or None)
    pod_affinity = PodAffinity(
        required=_joined(own.required, added.required),
        required_anti=_joined(own.required_anti, added.required_anti),
        preferred=_joined(own.preferred, added.preferred),
        preferred_anti=_joined(own.preferred_anti, added.preferred_anti),
    )
    preferred_nodes = (*(spec.preferred_nodes or ()), *annotated.preferred_nodes) or spec.preferred_nodes
    return DeclaredAffinity(pod_affinity, required_nodes, preferred_nodes)


def _joined(of_spec: TermList, annotated: TermList) -> TermList:
    """Return the terms of both; a list of the spec that does not parse stays a problem."""
    return of_spec if isinstance(of_spec, Problem) else (*of_spec, *usable(annotated))


def _combined_required_nodes(
    spec: RequiredNodeAffinity, annotated: AnnotatedAffinity
) -> RequiredNodeAffinity | Problem:
    """Return the required node affinity of both: their terms pairwise. nodeSelector is never replaced."""
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

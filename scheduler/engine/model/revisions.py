"""
Terms that are narrowed to the revision of their own pod, as `matchLabelKeys: [pod-template-hash]` does it.

Source: KEP-3243 and KEP-3633; the label is the Deployment controller's (pkg/controller/deployment/sync.go, 1.36).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from scheduler.engine.model.pods import Pod
from scheduler.engine.model.terms import AffinityTerm, SpreadConstraint, usable
from scheduler.engine.syntax.selectors import Selector, with_requirements

REVISION_KEY: Final = "pod-template-hash"


def deployment_of(pod: Pod) -> str:
    """Return the name of the pod's Deployment, as its ReplicaSet's name tells; empty for a pod of none."""
    revision = pod.labels.get(REVISION_KEY)
    if pod.owner is None or pod.owner.kind != "ReplicaSet" or not revision:
        return ""
    name = pod.owner.name.removesuffix(f"-{revision}")
    return name if name != pod.owner.name else ""


def is_other_revision(pod: Pod, other: Pod) -> bool:
    """Return whether the other pod is of another revision of the same Deployment."""
    deployment = deployment_of(pod)
    return (
        bool(deployment)
        and other.namespace == pod.namespace
        and other.labels.get(REVISION_KEY) != pod.labels[REVISION_KEY]
        and deployment_of(other) == deployment
    )


def spans_revisions(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Return whether the selector selects the pod with these labels, and does not look at its revision."""
    names_it = any(requirement.key == REVISION_KEY for requirement in selector.requirements)
    return REVISION_KEY in labels and not names_it and selector.matches(labels)


def declares_any(pod: Pod, terms: Collection[AffinityTerm]) -> bool:
    """Return whether the pod has a revision, and has one of these terms as required anti-affinity."""
    declared = usable(pod.spec.affinity.required_anti)
    return REVISION_KEY in pod.labels and any(term in terms for term in declared)


def keyed_anti_affinity(pod: Pod, terms: Iterable[AffinityTerm]) -> Pod:
    """Return the pod, in which these required anti-affinity terms are narrowed to its own revision."""
    narrowed = frozenset(terms)
    required_anti = tuple(
        replace(term, selector=_keyed(term.selector, pod)) if term in narrowed else term
        for term in usable(pod.spec.affinity.required_anti)
    )
    affinity = replace(pod.spec.affinity, required_anti=required_anti)
    return replace(pod, spec=replace(pod.spec, affinity=affinity))


def keyed_spread(pod: Pod, topology_key: str) -> Pod:
    """Return the pod with its hard spread constraints by the topology key narrowed to its own revision."""
    spread = tuple(
        replace(constraint, selector=_keyed(constraint.selector, pod))
        if topology_key == constraint.topology_key
        and spreads_revisions(constraint, pod)
        and isinstance(constraint.selector, Selector)
        else constraint
        for constraint in pod.spec.spread
    )
    return replace(pod, spec=replace(pod.spec, spread=spread))


def anti_affinity_across_revisions(pod: Pod) -> list[AffinityTerm]:
    """Return the pod's required anti-affinity terms that select the pods of its own workload, of any revision."""
    terms = usable(pod.spec.affinity.required_anti)
    return [
        term
        for term in terms
        if pod.namespace in term.namespaces and spans_revisions(term.selector, pod.labels)
    ]


def spreads_revisions(constraint: SpreadConstraint, pod: Pod) -> bool:
    """Return whether the constraint is hard and counts the pods of the pod's own workload, of any revision."""
    selector = constraint.selector
    if (
        not constraint.hard
        or not isinstance(selector, Selector)
        or REVISION_KEY in constraint.match_label_keys
    ):
        return False
    return spans_revisions(selector, pod.labels)


def _keyed(selector: Selector, pod: Pod) -> Selector:
    return with_requirements(selector, {REVISION_KEY: pod.labels[REVISION_KEY]})

"""
The Filter of InterPodAffinity: three rules, in this order, on every node.

  1. For every required affinity term, the node's domain has a pod that matches all of the incoming pod's terms. If no
     domain has such a pod, an incoming pod that matches its own terms may be the first. So may a pod of a group if a
     sibling that is placed later matches; the search for the group's places places one in the same domain.
  2. For no required anti-affinity term, the node's domain has a matching pod.
  3. No pod in one of the node's domains declares a required anti-affinity term that matches the incoming pod.

An annotation may raise the limit of an anti-affinity term to N pods per domain: rule 2 then allows N - 1 matching pods,
and rule 3 refuses a pod with which the domain would exceed the N of a declared term. N may be a share of all matching
pods, the incoming one included (`engine.state.domain_limits`). Anti-affinity neither applies to
pods of exempt namespaces nor counts them. A declared term that yields does not refuse a pod that has relaxed an equal
term. All three are not upstream; without them decisions are the same as upstream.

Source: plugins/interpodaffinity/filtering.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final

import numpy as np

from scheduler.engine.framework.interface import PodContext
from scheduler.engine.framework.status import Status, unresolvable, unschedulable
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.terms import Shares
from scheduler.engine.plugins.inter_pod_affinity.terms import IncomingTerms, PodLimit
from scheduler.engine.state.arrays import Mask
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.columns import ABSENT, PerDomain
from scheduler.engine.state.existing_terms import ExistingPodTerm

AFFINITY_NOT_MET: Final = unresolvable("node(s) didn't match pod affinity rules")
ANTI_AFFINITY_BROKEN: Final = unschedulable("node(s) didn't match pod anti-affinity rules")
EXISTING_ANTI_AFFINITY_BROKEN: Final = unschedulable(
    "node(s) didn't satisfy existing pods anti-affinity rules"
)

#: The mask of the nodes that satisfy a rule, and the status of the others.
Rule = tuple[Mask, Status]


def own_rules(context: PodContext, view: ClusterView, terms: IncomingTerms) -> Iterator[Rule]:
    """Yield rules 1 and 2, one mask per topology key or term."""
    for mask in affinity_masks(context.pod, view, terms, context.siblings):
        yield mask, AFFINITY_NOT_MET
    for limit in terms.anti:
        yield ~limit.pods(view).at_least(limit.capacity(view)), ANTI_AFFINITY_BROKEN


def affinity_masks(
    pod: Pod, view: ClusterView, terms: IncomingTerms, siblings: Sequence[Pod] = ()
) -> list[Mask]:
    """Return per key of `terms.required_keys` the rows whose domain has a pod that all required terms select."""
    matcher = terms.required
    if matcher is None:
        return []
    masks = [view.pods_by_domain(matcher, key).at_least(1) for key in terms.required_keys]
    if not any(mask.any() for mask in masks) and any(
        view.selects(matcher, member) for member in (pod, *siblings)
    ):
        # The first pod of a group: no pod matches in any domain of any key, but the pod itself or a later sibling does.
        return [view.eligible((key,)) for key in terms.required_keys]
    return masks


def existing_rule(refused: Sequence[Mask]) -> Rule:
    """Return rule 3 from at least one mask of refused rows, of `forbidden_domains` and `full_domains`."""
    return ~reduce(or_, refused), EXISTING_ANTI_AFFINITY_BROKEN


def forbidden_domains(context: PodContext, view: ClusterView) -> Iterator[Mask]:
    """Yield per topology key the rows in domains with a pod whose anti-affinity selects the incoming pod."""
    for per_domain in forbidding_sums(context, view).values():
        if per_domain.amounts.any():
            yield per_domain.at_least(1)


def full_domains(limiting: Iterable[ExistingPodTerm], view: ClusterView) -> Iterator[Mask]:
    """Yield per limiting term the rows in domains that have a declaring pod and as many selected pods as allowed."""
    for term in limiting:
        # Look only at declaring rows, not at all rows: a pod may declare thousands of such terms.
        limit = PodLimit.of_placed(term.key)
        pods, capacity = limit.pods(view), limit.capacity(view)
        domains = pods.ids[np.fromiter(term.pods_by_row, np.intp, len(term.pods_by_row))]
        of_each = capacity if isinstance(capacity, int) else capacity[domains]
        full = domains[(pods.amounts[domains] >= of_each) & (domains != ABSENT)]
        if len(full):
            is_full = np.zeros(len(pods.amounts), dtype=np.bool_)
            is_full[full] = True
            yield is_full.take(pods.ids)


def forbidding_sums(context: PodContext, view: ClusterView) -> Mapping[str, PerDomain]:
    """Return by topology key how many pods per domain declare anti-affinity that selects the incoming pod."""
    if context.pod.spec.ignores_annotations:
        return view.state.counts.term_sums("forbidding by spec", context.label_set, _forbids_by_spec).by_key
    sums = view.state.counts.term_sums("forbidding", context.label_set, _forbids).by_key
    if not context.pod.spec.relaxed_anti:
        return sums
    by_key = dict(sums)
    for term in yielding_terms(context, view):
        key = term.key.topology_key
        if term.is_forbidding and key in by_key:
            its = view.column(key).per_domain(view.state.counts.declaring(term))
            by_key[key] = PerDomain(by_key[key].amounts - its.amounts, by_key[key].ids)
    return by_key


def yielding_terms(context: PodContext, view: ClusterView) -> frozenset[ExistingPodTerm]:
    """Return the terms of placed pods that select the incoming pod, but yield to it."""
    return frozenset(
        term
        for term in view.state.terms.yielding_to(context.pod.spec)
        if view.selects(term.key.matcher, context.pod)
    )


def limiting_terms(context: PodContext, view: ClusterView) -> Iterator[ExistingPodTerm]:
    """Yield the limiting terms of placed pods that select the incoming pod."""
    if not view.state.terms.n_limiting or context.pod.spec.ignores_annotations:
        return
    found = view.state.counts.term_sums("limiting", context.label_set, _limits, limiting=True).weights
    yielding = yielding_terms(context, view) if context.pod.spec.relaxed_anti else ()
    for term, limits in found.items():
        if limits and term.pods_by_row and term not in yielding:
            yield term


def has_shares_of_others(limiting: Iterable[ExistingPodTerm], context: PodContext, view: ClusterView) -> bool:
    """Return whether a limiting term has shares that the pod does not declare itself. O(terms)."""
    shared = [term for term in limiting if isinstance(term.key.max_pods, Shares)]
    declared = set(view.state.terms.keys(context.label_set, context.pod.spec)) if shared else set()
    return any(term.key not in declared for term in shared)


def _forbids(term: ExistingPodTerm) -> int:
    return int(term.is_forbidding)


def _forbids_by_spec(term: ExistingPodTerm) -> int:
    return int(term.is_forbidding and not term.key.by_annotation)


def _limits(term: ExistingPodTerm) -> int:
    return int(term.is_limiting)

"""
The Filter of InterPodAffinity: three rules, in this order, on every node.

  1. Every required affinity term has, in the node's domain, a pod that matches all of the pod's terms; if no such pod
     is in any domain at all, a pod that matches its own terms may be the first.
  2. No required anti-affinity term has a matching pod in the node's domain.
  3. No pod in any of the node's domains declares a required anti-affinity term that matches this pod.

An annotation may raise the limit of an anti-affinity term from one pod per domain to N: rule 2 then counts up to N,
and rule 3 keeps out a pod that a term would count past its N. Pods of exempt namespaces neither keep out nor are kept
out by anti-affinity. Neither exists upstream; without them every decision is upstream's.

Source: plugins/interpodaffinity/filtering.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from scheduler.framework.interface import PodContext
from scheduler.framework.status import Status, unresolvable, unschedulable
from scheduler.model.pods import Pod
from scheduler.plugins.inter_pod_affinity.terms import IncomingTerms
from scheduler.state.arrays import Mask
from scheduler.state.columns import ABSENT
from scheduler.state.existing_terms import ExistingPodTerm
from scheduler.state.snapshot import Snapshot

AFFINITY_NOT_MET: Final = unresolvable("node(s) didn't match pod affinity rules")
ANTI_AFFINITY_BROKEN: Final = unschedulable("node(s) didn't match pod anti-affinity rules")
EXISTING_ANTI_AFFINITY_BROKEN: Final = unschedulable(
    "node(s) didn't satisfy existing pods anti-affinity rules"
)

#: The nodes that keep a rule, and the status of the others.
Rule = tuple[Mask, Status]


def own_rules(context: PodContext, snapshot: Snapshot, terms: IncomingTerms) -> Iterator[Rule]:
    """Yield rules 1 and 2, one mask per topology key or term. 10 µs each at 5,000 rows."""
    for near in near_masks(context.pod, snapshot, terms):
        yield near, AFFINITY_NOT_MET
    for matcher, key, max_pods in terms.anti:
        yield ~snapshot.pods_by_domain(matcher, key).at_least(max_pods), ANTI_AFFINITY_BROKEN


def near_masks(pod: Pod, snapshot: Snapshot, terms: IncomingTerms) -> list[Mask]:
    """Return per key of `terms.required_keys` the rows whose domain has a pod that all required terms select."""
    matcher = terms.required
    if matcher is None:
        return []
    near = [snapshot.pods_by_domain(matcher, key).at_least(1) for key in terms.required_keys]
    if not any(mask.any() for mask in near) and matcher.matches(
        pod.namespace, pod.labels, snapshot.namespace_labels(pod.namespace)
    ):
        # First pod of a group: no pod matches in any domain of any key, and this one would.
        return [snapshot.eligible((key,)) for key in terms.required_keys]
    return near


def existing_rule(closed: Sequence[Mask]) -> Rule:
    """Return rule 3, given the rows that it closes: `forbidden_domains` and `full_domains`, one mask at least."""
    return ~np.logical_or.reduce(closed), EXISTING_ANTI_AFFINITY_BROKEN


def forbidden_domains(context: PodContext, snapshot: Snapshot) -> Iterator[Mask]:
    """Yield per topology key the rows in domains with a pod whose anti-affinity selects this one. 8 µs each."""
    sums = snapshot.term_sums("forbidding", context.label_set, _forbids)
    for per_domain in sums.by_key.values():
        if per_domain.amounts.any():
            yield per_domain.at_least(1)


def full_domains(context: PodContext, snapshot: Snapshot) -> Iterator[Mask]:
    """Yield the rows in domains that hold as many pods as a term lets be there beside a pod that declares it."""
    for term, limits in snapshot.term_sums("limiting", context.label_set, _limits).weights.items():
        if not limits or not term.pods_by_row:
            continue
        # A pod may declare thousands of such terms: by declaring rows, not by all rows.
        pods = snapshot.pods_by_domain(term.key.matcher, term.key.topology_key)
        domains = pods.ids[np.fromiter(term.pods_by_row, np.intp, len(term.pods_by_row))]
        full = domains[(pods.amounts[domains] >= room(term)) & (domains != ABSENT)]
        if len(full):
            closed = np.zeros(len(pods.amounts), dtype=np.bool_)
            closed[full] = True
            yield closed.take(pods.ids)


def room(term: ExistingPodTerm) -> int:
    """Return how many selected pods fill a domain of a limiting term: a declaring pod does not count against itself."""
    return term.key.max_pods - 1 + int(term.key.selects_itself)


def _forbids(term: ExistingPodTerm) -> int:
    return int(term.is_forbidding)


def _limits(term: ExistingPodTerm) -> int:
    return int(term.is_limiting)

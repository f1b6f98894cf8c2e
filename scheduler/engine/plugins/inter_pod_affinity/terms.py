"""The affinity terms of a pod spec as matchers, computed once per spec."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from scheduler.engine.model.pods import Pod
from scheduler.engine.model.terms import DomainLimit, PodAffinity, Shares, usable
from scheduler.engine.state.arrays import Amounts
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.columns import PerDomain
from scheduler.engine.state.domain_limits import most_per_domain, n_divided
from scheduler.engine.state.existing_terms import TermKey
from scheduler.engine.state.matching import PodMatcher, incoming_matcher


class PodLimit(NamedTuple):
    """
    An anti-affinity term: a domain of the topology key may have a number of the selected pods, or a share of all.

    `selects_declaring`: whether the pods that declare the term are among them. The incoming pod counts for its own
    term, whether selected or not.
    """

    matcher: PodMatcher
    key: str
    limit: DomainLimit
    selects_declaring: bool = True

    @classmethod
    def of_placed(cls, term: TermKey) -> PodLimit:
        """Return the limit of a term of placed pods."""
        return cls(term.matcher, term.topology_key, term.max_pods, term.selects_itself)

    def pods(self, view: ClusterView) -> PerDomain:
        """Return the selected pods of each domain."""
        return view.pods_by_domain(self.matcher, self.key)

    def n_divided(self, view: ClusterView) -> int:
        """Return the number of placed pods that domains share."""
        return n_divided(view.selected(self.matcher).by_row, view.alive)

    def capacity(self, view: ClusterView, n_coming: int = 1) -> int | Amounts:
        """Return how many selected pods fill a domain, any or each, if `n_coming` pods come."""
        most: int | Amounts = (
            self.limit
            if isinstance(self.limit, int)
            else most_per_domain(self.limit, view.column(self.key), self.n_divided(view) + n_coming)
        )
        return most - (not self.selects_declaring)


@dataclass(frozen=True, slots=True)
class IncomingTerms:
    """
    The terms of an incoming pod's spec.

    `problem`: why they do not parse, None if they do. `required`: one matcher for all required affinity terms, since a
    pod must match all of them; None if there are none. `anti`: the limit of each anti-affinity term.
    `preferred`: matcher, topology key and signed weight; weights of equal terms are added.
    `shared`: preferred anti-affinity by weights of domains: matcher, topology key, weights, and the term's own weight.
    """

    problem: str | None
    required: PodMatcher | None
    required_keys: tuple[str, ...]
    anti: tuple[PodLimit, ...]
    preferred: tuple[tuple[PodMatcher, str, int], ...]
    shared: tuple[tuple[PodMatcher, str, Shares, int], ...] = ()
    crosses_by_annotation: bool = False


def incoming_terms(pod: Pod, exempt: frozenset[str]) -> IncomingTerms:
    """Return the terms of the pod's spec. Required anti-affinity ignores pods of `exempt` namespaces."""
    affinity = pod.spec.affinity
    anti = () if pod.namespace in exempt else usable(affinity.required_anti)
    required = usable(affinity.required)
    return IncomingTerms(
        problem=affinity.problem(),
        required=incoming_matcher(required) if required else None,
        required_keys=tuple(dict.fromkeys(term.topology_key for term in required)),
        anti=tuple(
            PodLimit(incoming_matcher((term,), exempt), term.topology_key, term.max_pods) for term in anti
        ),
        preferred=tuple((matcher, key, weight) for (matcher, key), weight in _preferred(affinity).items()),
        shared=tuple(
            (incoming_matcher((term,), exempt), term.topology_key, term.max_pods, term.weight)
            for term in usable(affinity.preferred_anti)
            if isinstance(term.max_pods, Shares)
        ),
        crosses_by_annotation=affinity.crosses_by_annotation(),
    )


def _preferred(affinity: PodAffinity) -> Counter[tuple[PodMatcher, str]]:
    """Return the signed weight by matcher and topology key, 0 if weights cancel out."""
    weights: Counter[tuple[PodMatcher, str]] = Counter()
    for sign, terms in ((1, usable(affinity.preferred)), (-1, usable(affinity.preferred_anti))):
        for term in terms:
            if not term.is_limiting:
                weights[incoming_matcher((term,)), term.topology_key] += sign * term.weight
    return weights

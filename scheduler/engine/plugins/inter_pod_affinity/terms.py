"""The affinity terms of a pod spec as matchers, computed once per spec."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from scheduler.engine.model.pods import Pod
from scheduler.engine.model.terms import AffinityTerm, DomainLimit, PodAffinity, Shares, usable
from scheduler.engine.state.matching import PodMatcher, incoming_rule


@dataclass(frozen=True, slots=True)
class IncomingTerms:
    """
    The terms of an incoming pod's spec.

    `problem`: why they do not parse, None if they do. `required`: one matcher for all required affinity terms, since a
    pod must match all of them; None if there are none. `anti`: matcher, topology key, and the most selected pods of a
    domain, this pod included. `preferred`: matcher, topology key and signed weight; weights of equal terms are added.
    `shared`: preferred anti-affinity by weights of domains: matcher, topology key, weights, and the term's own weight.
    """

    problem: str | None
    required: PodMatcher | None
    required_keys: tuple[str, ...]
    anti: tuple[tuple[PodMatcher, str, DomainLimit], ...]
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
        required=required_matcher(required),
        required_keys=tuple(dict.fromkeys(term.topology_key for term in required)),
        anti=tuple((term_matcher(term, exempt), term.topology_key, term.max_pods) for term in anti),
        preferred=tuple((matcher, key, weight) for (matcher, key), weight in _preferred(affinity).items()),
        shared=tuple(
            (term_matcher(term, exempt), term.topology_key, term.max_pods, term.weight)
            for term in usable(affinity.preferred_anti)
            if isinstance(term.max_pods, Shares)
        ),
        crosses_by_annotation=affinity.crosses_by_annotation(),
    )


def required_matcher(terms: tuple[AffinityTerm, ...]) -> PodMatcher | None:
    """Return the matcher of the pods that all required affinity terms select, None without terms."""
    return PodMatcher(tuple((incoming_rule(term), term.selector) for term in terms)) if terms else None


def term_matcher(term: AffinityTerm, exempt: frozenset[str] = frozenset()) -> PodMatcher:
    """Return the matcher of the pods that one term of an incoming pod selects."""
    return PodMatcher(((incoming_rule(term), term.selector),), exempt)


def _preferred(affinity: PodAffinity) -> Counter[tuple[PodMatcher, str]]:
    """Return the signed weight by matcher and topology key, 0 if weights cancel out."""
    weights: Counter[tuple[PodMatcher, str]] = Counter()
    for sign, terms in ((1, usable(affinity.preferred)), (-1, usable(affinity.preferred_anti))):
        for term in terms:
            if not term.is_limiting:
                weights[term_matcher(term), term.topology_key] += sign * term.weight
    return weights

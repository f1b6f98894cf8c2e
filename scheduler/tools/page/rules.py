"""The rules about pods per domain that pods declare or get by default: affinity, anti-affinity, spread constraints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Literal, NamedTuple

from scheduler.engine.model.pods import Pod, PodSpec
from scheduler.engine.model.terms import (
    AffinityTerm,
    PodAffinity,
    RequiredNodeAffinity,
    Shares,
    SpreadConstraint,
    TermList,
    Toleration,
)
from scheduler.engine.model.wording import namespaces_text, node_rule_text, selector_text
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.existing_terms import declared_matcher
from scheduler.engine.state.matching import PodMatcher, incoming_rule, spread_matcher, spread_selector

RuleKind = Literal[
    "requiredAffinity", "requiredAntiAffinity", "topologySpread", "preferredAffinity", "preferredAntiAffinity"
]
#: Default spread constraints by schedulerName; their selectors do not count.
Defaults = Mapping[str, tuple[SpreadConstraint, ...]]

_SEPARATOR: Final = "; and "
_PREFERRED: Final[tuple[tuple[RuleKind, Callable[[PodAffinity], TermList]], ...]] = (
    ("preferredAffinity", lambda affinity: affinity.preferred),
    ("preferredAntiAffinity", lambda affinity: affinity.preferred_anti),
)


class DeclaredRule(NamedTuple):
    """
    A rule as pods declare it; equal rules of several pods are one.

    `limit`: the most selected pods per domain of anti-affinity, maxSkew of a spread constraint, the weight of a
    preferred term, 0 for required affinity. `is_hard`: False for a preferred term and for ScheduleAnyway. `node_rule`,
    `tolerations`: the nodes that form the domains of a spread constraint; None for all nodes. `yields`: pods that have
    relaxed an equal rule do not count against this one. `shares`: of anti-affinity by shares, whose limit is 0 if it is
    required.
    """

    kind: RuleKind
    matcher: PodMatcher
    topology_key: str
    limit: int
    is_hard: bool = True
    min_domains: int = 1
    node_rule: RequiredNodeAffinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    yields: bool = False
    shares: Shares | None = None

    @property
    def selects(self) -> str:
        """The selectors, as text."""
        return _SEPARATOR.join(dict.fromkeys(selector_text(selector) for _, selector in self.matcher.parts))

    @property
    def namespaces(self) -> str:
        """The namespaces, as text."""
        texts = (namespaces_text(rule.names, rule.selector) for rule, _ in self.matcher.parts)
        return _SEPARATOR.join(dict.fromkeys(texts))

    @property
    def nodes(self) -> str:
        """The nodes that form the domains, as text; '' for all."""
        texts = [] if self.node_rule is None else [node_rule_text(self.node_rule)]
        return ", ".join(texts if self.tolerations is None else [*texts, "nodes whose taints it tolerates"])


def has_rules(pod: Pod, defaults: Defaults) -> bool:
    """Return whether the pod may declare a rule or get one by default. 0.2 µs."""
    spec, affinity = pod.spec, pod.spec.affinity
    return bool(
        spec.spread
        or pod.scheduler_name in defaults
        or affinity.required
        or affinity.required_anti
        or affinity.preferred
        or affinity.preferred_anti
        or spec.relaxed_anti
    )


def rules_of(
    pod: Pod, state: ClusterState, exempt_namespaces: frozenset[str], defaults: Defaults
) -> Iterator[DeclaredRule]:
    """Yield the rules of the pod; a list of terms that does not parse has none."""
    spec, terms = pod.spec, state.terms
    if required := terms.counting(spec.affinity.required, spec.namespace):
        yield from _affinity(required)
    if spec.namespace not in exempt_namespaces:
        required_anti = terms.counting(spec.affinity.required_anti, spec.namespace)
        yield from _anti_affinity(required_anti, exempt_namespaces)
    for kind, preferred in _PREFERRED:
        for term in terms.counting(preferred(spec.affinity), spec.namespace):
            matcher = PodMatcher(((incoming_rule(term), term.selector),))
            shares = _shares(term)
            yield DeclaredRule(kind, matcher, term.topology_key, term.weight, is_hard=False, shares=shares)
    for constraint in spec.spread or _default_spread(pod, state, defaults):
        if (rule := _spread(spec, pod.labels, constraint)) is not None:
            yield rule


def relaxed_rules_of(pod: Pod, exempt_namespaces: frozenset[str]) -> Iterator[DeclaredRule]:
    """Yield the required anti-affinity that the pod has relaxed: equal rules of other pods yield to it."""
    return _anti_affinity(pod.spec.relaxed_anti, exempt_namespaces)


def _anti_affinity(
    terms: Iterable[AffinityTerm], exempt_namespaces: frozenset[str]
) -> Iterator[DeclaredRule]:
    for term in terms:
        matcher = declared_matcher(term, exempt_namespaces)
        shares, limit = _shares(term), 0 if isinstance(term.max_pods, Shares) else term.max_pods
        yield DeclaredRule(
            "requiredAntiAffinity", matcher, term.topology_key, limit, yields=term.yields, shares=shares
        )


def _shares(term: AffinityTerm) -> Shares | None:
    return term.max_pods if isinstance(term.max_pods, Shares) else None


def _default_spread(pod: Pod, state: ClusterState, defaults: Defaults) -> Iterator[SpreadConstraint]:
    """Yield the default constraints of the pod with the selector of its workloads; none without one."""
    if constraints := defaults.get(pod.scheduler_name, ()):
        selector = state.workloads.default_selector(pod.namespace, pod.labels, pod.owner)
        if selector is not None:
            for constraint in constraints:
                yield replace(constraint, selector=selector)


def _affinity(required: tuple[AffinityTerm, ...]) -> Iterator[DeclaredRule]:
    """Yield one rule per topology key: a pod has to match all terms to count."""
    matcher = PodMatcher(tuple((incoming_rule(term), term.selector) for term in required))
    for key in dict.fromkeys(term.topology_key for term in required):
        yield DeclaredRule("requiredAffinity", matcher, key, 0)


def _spread(spec: PodSpec, labels: Mapping[str, str], constraint: SpreadConstraint) -> DeclaredRule | None:
    """Return the rule of the constraint; None if it counts no pod because its selector is empty."""
    matcher = spread_matcher(spread_selector(constraint, labels), spec.namespace)
    if matcher is None:
        return None
    node_rule = spec.required_node_affinity
    has_node_rule = constraint.honor_node_affinity and not node_rule.matches_all_nodes
    return DeclaredRule(
        kind="topologySpread",
        matcher=matcher,
        topology_key=constraint.topology_key,
        limit=constraint.max_skew,
        is_hard=constraint.hard,
        min_domains=constraint.min_domains,
        node_rule=node_rule if has_node_rule else None,
        tolerations=spec.tolerations if constraint.honor_node_taints else None,
    )

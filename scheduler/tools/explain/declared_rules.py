"""The rules about pods per domain that pods declare or get by default: affinity, anti-affinity, spread constraints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Literal, NamedTuple

import numpy as np

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
from scheduler.engine.model.wording import node_rule_text
from scheduler.engine.state.arrays import Amounts, Mask
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.columns import LabelColumn
from scheduler.engine.state.domain_limits import most_per_domain
from scheduler.engine.state.existing_terms import declared_matcher
from scheduler.engine.state.matching import PodMatcher, incoming_matcher, spread_matcher, spread_selector

RuleKind = Literal[
    "requiredAffinity", "requiredAntiAffinity", "topologySpread", "preferredAffinity", "preferredAntiAffinity"
]
#: Default spread constraints by schedulerName; their selectors do not count.
Defaults = Mapping[str, tuple[SpreadConstraint, ...]]

NO_DEFAULTS: Final[Defaults] = {}
_PREFERRED: Final[tuple[tuple[RuleKind, Callable[[PodAffinity], TermList]], ...]] = (
    ("preferredAffinity", lambda affinity: affinity.preferred),
    ("preferredAntiAffinity", lambda affinity: affinity.preferred_anti),
)


class DeclaredRule(NamedTuple):
    """
    A rule as pods declare it; equal rules of several pods are one.

    All required affinity terms together are one rule of all their `keys`, since scheduling needs one pod that matches
    them all; any other rule has one key. Kubernetes 1.36 reads a namespaceSelector in two ways. Affinity uses the wider
    one, of an incoming pod, and required anti-affinity the narrower one, of a running pod, so that no placement breaks
    a rule at once.

    `limit`: the most selected pods per domain of anti-affinity, maxSkew of a spread constraint, the weight of a
    preferred term, 0 for required affinity. `is_hard`: False for a preferred term and for ScheduleAnyway. `node_rule`,
    `tolerations`: the nodes that form the domains of a spread constraint; None for all nodes. `yields`: pods that have
    relaxed an equal rule do not count against this one. `shares`: of anti-affinity by shares, whose limit is 0 if it is
    required. `enforced`: whether pods are evicted for it; otherwise it only had to hold when the pod was
    scheduled. `enforced` and `by_annotation` are False in a plain rule.
    """

    kind: RuleKind
    matcher: PodMatcher
    keys: tuple[str, ...]
    limit: int
    is_hard: bool = True
    min_domains: int = 1
    node_rule: RequiredNodeAffinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    yields: bool = False
    shares: Shares | None = None
    enforced: bool = False
    by_annotation: bool = False

    @property
    def topology_key(self) -> str:
        """The first key, and the only one of all rules that `rules_of` yields."""
        return self.keys[0]

    @property
    def is_limiting(self) -> bool:
        """Whether it is anti-affinity of a number or a share of pods, and not of any pod."""
        return self.shares is not None or (self.kind == "requiredAntiAffinity" and self.limit > 1)

    @property
    def plain(self) -> DeclaredRule:
        """The same rule, whether enforced or not and wherever it is declared."""
        return self._replace(enforced=False, by_annotation=False)

    @property
    def nodes(self) -> str:
        """The nodes that form the domains, as text; '' for all."""
        texts = [] if self.node_rule is None else [node_rule_text(self.node_rule)]
        return ", ".join(texts if self.tolerations is None else [*texts, "nodes whose taints it tolerates"])

    def most_per_domain(self, column: LabelColumn, n_selected: int) -> Amounts:
        """Return the most selected pods of each domain, where `n_selected` are divided: int64 of shape (n_ids,)."""
        if self.shares is None:
            return np.full(column.n_ids, self.limit, dtype=np.int64)
        return most_per_domain(self.shares, column, n_selected)

    def is_broken(self, n_there: Amounts, most: Amounts | int = 0, *, is_own: bool) -> Mask:
        """
        Return whether the required rule fails where so many selected pods are.

        `most`: what `most_per_domain` returns, for anti-affinity. `is_own`: whether the rule selects its own pod.
        """
        return n_there <= is_own if self.kind == "requiredAffinity" else n_there - is_own >= most


def has_rules(pod: Pod, defaults: Defaults) -> bool:
    """Return whether the pod may declare a rule or get one by default."""
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
    """Yield the rules of the pod, all plain, required affinity by key; a list of terms that does not parse has none."""
    spec, terms = pod.spec, state.terms
    if required := terms.counting(spec.affinity.required, spec.namespace):
        affinity = affinity_rule(required)
        yield from (affinity.plain._replace(keys=(key,)) for key in affinity.keys)
    if spec.namespace not in exempt_namespaces:
        for term in terms.counting(spec.affinity.required_anti, spec.namespace):
            yield anti_affinity_rule(term, exempt_namespaces).plain
    for kind, preferred in _PREFERRED:
        for term in terms.counting(preferred(spec.affinity), spec.namespace):
            shares = _shares(term)
            matcher = incoming_matcher((term,), frozenset() if shares is None else exempt_namespaces)
            yield DeclaredRule(kind, matcher, (term.topology_key,), term.weight, is_hard=False, shares=shares)
    for constraint in spec.spread or _default_spread(pod, state, defaults):
        yield from _spread(spec, pod.labels, constraint)


def relaxed_rules_of(pod: Pod, exempt_namespaces: frozenset[str]) -> Iterator[DeclaredRule]:
    """Yield the required anti-affinity that the pod has relaxed: equal rules yield to it, whether enforced or not."""
    rules = (anti_affinity_rule(term, exempt_namespaces) for term in pod.spec.relaxed_anti)
    return (rule._replace(enforced=False) for rule in rules)


def affinity_rule(required: tuple[AffinityTerm, ...]) -> DeclaredRule:
    """Return the rule of these required terms: a pod has to match all of them to count."""
    keys = tuple(dict.fromkeys(term.topology_key for term in required))
    is_enforced = all(term.enforced for term in required)
    return DeclaredRule("requiredAffinity", incoming_matcher(required), keys, 0, enforced=is_enforced)


def anti_affinity_rule(term: AffinityTerm, exempt_namespaces: frozenset[str]) -> DeclaredRule:
    """Return the rule of a required anti-affinity term."""
    return DeclaredRule(
        "requiredAntiAffinity",
        declared_matcher(term, exempt_namespaces),
        (term.topology_key,),
        0 if isinstance(term.max_pods, Shares) else term.max_pods,
        yields=term.yields,
        shares=_shares(term),
        enforced=term.enforced,
        by_annotation=term.by_annotation,
    )


def _shares(term: AffinityTerm) -> Shares | None:
    return term.max_pods if isinstance(term.max_pods, Shares) else None


def _default_spread(pod: Pod, state: ClusterState, defaults: Defaults) -> Iterator[SpreadConstraint]:
    """Yield the default constraints of the pod with the selector of its workloads; none without one."""
    if constraints := defaults.get(pod.scheduler_name, ()):
        selector = state.workloads.default_selector(pod.namespace, pod.labels, pod.owner)
        if selector is not None:
            yield from (replace(constraint, selector=selector) for constraint in constraints)


def _spread(spec: PodSpec, labels: Mapping[str, str], constraint: SpreadConstraint) -> Iterator[DeclaredRule]:
    """Yield the rule of the constraint, none if it counts no pod because its selector is empty."""
    matcher = spread_matcher(spread_selector(constraint, labels), spec.namespace)
    if matcher is None:
        return
    node_rule = spec.required_node_affinity
    has_node_rule = constraint.honor_node_affinity and not node_rule.matches_all_nodes
    yield DeclaredRule(
        kind="topologySpread",
        matcher=matcher,
        keys=(constraint.topology_key,),
        limit=constraint.max_skew,
        is_hard=constraint.hard,
        min_domains=constraint.min_domains,
        node_rule=node_rule if has_node_rule else None,
        tolerations=spec.tolerations if constraint.honor_node_taints else None,
    )

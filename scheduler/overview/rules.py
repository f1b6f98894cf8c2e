"""The rules about pods per domain that pods declare: required affinity, required anti-affinity, spread constraints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from scheduler.model.pods import PodSpec
from scheduler.model.terms import (
    AffinityTerm,
    Problem,
    RequiredNodeAffinity,
    SpreadConstraint,
    Toleration,
)
from scheduler.model.wording import namespaces_text, selector_text
from scheduler.state.existing_terms import ExistingTerms, declared_matcher
from scheduler.state.matching import NamespaceRule, PodMatcher, incoming_rule
from scheduler.syntax.selectors import NOTHING, with_requirements

RuleKind = Literal["requiredAffinity", "requiredAntiAffinity", "topologySpread"]

_SEPARATOR: Final = "; and "


class DeclaredRule(NamedTuple):
    """
    A rule as pods declare it; equal rules of several pods are one.

    `limit`: the most selected pods per domain of anti-affinity, maxSkew of a spread constraint, 0 for affinity.
    `is_hard`: False for a constraint with ScheduleAnyway. `node_rule`, `tolerations`: the nodes that form the domains
    of a spread constraint; None for all nodes.
    """

    kind: RuleKind
    matcher: PodMatcher
    topology_key: str
    limit: int
    is_hard: bool = True
    min_domains: int = 1
    node_rule: RequiredNodeAffinity | None = None
    tolerations: tuple[Toleration, ...] | None = None

    @property
    def selects(self) -> str:
        """The selectors, as text."""
        return _SEPARATOR.join(dict.fromkeys(selector_text(selector) for _, selector in self.matcher.parts))

    @property
    def namespaces(self) -> str:
        """The namespaces, as text."""
        texts = (namespaces_text(rule.names, rule.selector) for rule, _ in self.matcher.parts)
        return _SEPARATOR.join(dict.fromkeys(texts))


def has_rules(spec: PodSpec) -> bool:
    """Return whether pods of the spec may declare a rule."""
    return bool(spec.spread or spec.affinity.required or spec.affinity.required_anti)


def declared_rules(
    spec: PodSpec,
    labels: Mapping[str, str],
    terms: ExistingTerms,
    exempt_namespaces: frozenset[str] = frozenset(),
) -> Iterator[DeclaredRule]:
    """Yield the rules of pods with this spec and these labels; a list of terms that does not parse has none."""
    if required := terms.counting(spec.affinity.required, spec.namespace):
        yield from _affinity(required)
    if spec.namespace not in exempt_namespaces:
        for term in terms.counting(spec.affinity.required_anti, spec.namespace):
            matcher = declared_matcher(term, exempt_namespaces)
            yield DeclaredRule("requiredAntiAffinity", matcher, term.topology_key, term.max_pods)
    for constraint in spec.spread:
        if (rule := _spread(spec, labels, constraint)) is not None:
            yield rule


def _affinity(required: tuple[AffinityTerm, ...]) -> Iterator[DeclaredRule]:
    """Yield one rule per topology key: a pod has to match all terms to count."""
    matcher = PodMatcher(tuple((incoming_rule(term), term.selector) for term in required))
    for key in dict.fromkeys(term.topology_key for term in required):
        yield DeclaredRule("requiredAffinity", matcher, key, 0)


def _spread(spec: PodSpec, labels: Mapping[str, str], constraint: SpreadConstraint) -> DeclaredRule | None:
    """Return the rule of the constraint; None if it counts no pod, as one with an empty selector."""
    selector = constraint.selector
    if isinstance(selector, Problem) or selector.is_nothing or selector.is_empty:
        return None
    own = {key: labels[key] for key in constraint.match_label_keys if key in labels}
    selector = with_requirements(selector, own)
    node_rule = spec.required_node_affinity
    has_node_rule = constraint.honor_node_affinity and not node_rule.matches_all_nodes
    return DeclaredRule(
        kind="topologySpread",
        matcher=PodMatcher(((NamespaceRule(frozenset((spec.namespace,)), NOTHING), selector),)),
        topology_key=constraint.topology_key,
        limit=constraint.max_skew,
        is_hard=constraint.hard,
        min_domains=constraint.min_domains,
        node_rule=node_rule if has_node_rule else None,
        tolerations=spec.tolerations if constraint.honor_node_taints else None,
    )

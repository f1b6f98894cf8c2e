"""The nodes that each required term of the pod or of a running pod refuses, and changes that would satisfy it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
from msgspec import structs

from scheduler.engine.framework.explaining import (
    BlockingRule,
    ExplainContext,
    PodsPerRow,
    Share,
    example_value,
)
from scheduler.engine.model.changes import (
    AddMatchLabelKey,
    Changes,
    LabelNamespace,
    RecreateWithMatchLabelKey,
    RunPod,
)
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.revisions import REVISION_KEY, anti_affinity_across_revisions, declares_any
from scheduler.engine.model.terms import AffinityTerm, Shares, usable
from scheduler.engine.plugins.inter_pod_affinity.filtering import affinity_masks
from scheduler.engine.plugins.inter_pod_affinity.terms import IncomingTerms, PodLimit
from scheduler.engine.state.arrays import Amount, Amounts, Mask
from scheduler.engine.state.columns import ABSENT
from scheduler.engine.state.domain_limits import weights_in_use
from scheduler.engine.state.existing_terms import ExistingPodTerm
from scheduler.engine.state.matching import NamespaceRule, PodMatcher
from scheduler.engine.syntax.selectors import EVERYTHING, Selector

#: More pods than any domain has.
_UNLIMITED: Final = 1 << 40
#: The most namespaces to propose labels for.
_MAX_NAMESPACES: Final = 8


def affinity_rules(context: ExplainContext, terms: IncomingTerms, *, is_exempt: bool) -> list[BlockingRule]:
    """Return the terms that refuse a node, in the plugin's order. O(terms x nodes)."""
    # Required affinity is one rule per topology key, since a pod has to match all terms to count.
    rules = [*_own_affinity(context, terms), *_own_anti_affinity(context, terms)]
    if not is_exempt:
        rules += _existing_anti_affinity(context)
    return [rule for rule in rules if rule.refused.any()]


def _own_affinity(context: ExplainContext, terms: IncomingTerms) -> Iterator[BlockingRule]:
    if terms.required is None:
        return
    nothing = np.zeros(context.view.n_rows, dtype=np.int64)
    for key, near in zip(terms.required_keys, affinity_masks(context.pod, context.view, terms), strict=True):
        refused = context.view.alive & ~near
        rule = _rule(context, "requiredAffinity", key, terms.required, refused, nothing)
        yield replace(
            rule, required_pods=terms.required, other_changes=lambda row: (_required_pod(context, row),)
        )


def _own_anti_affinity(context: ExplainContext, terms: IncomingTerms) -> Iterator[BlockingRule]:
    for limit in dict.fromkeys(terms.anti):
        rule = _limit_rule(context, "requiredAntiAffinity", limit, limit.pods(context.view).on_nodes())
        yield _with_percent(rule, context.pod, limit)


def _existing_anti_affinity(context: ExplainContext) -> Iterator[BlockingRule]:
    view = context.view
    existing = [
        term
        for term in view.state.terms.selecting(view.label_set(context.pod))
        if not view.state.terms.gives_way(term.key, context.pod.spec)
    ]
    yield from (_forbidding(context, term) for term in existing if term.is_forbidding)
    yield from (_limiting(context, term) for term in existing if term.is_limiting)


def _forbidding(context: ExplainContext, term: ExistingPodTerm) -> BlockingRule:
    """Return the rule of a term that allows no selected pod in a domain with a declaring pod."""
    view, key = context.view, term.key.topology_key
    declaring = _declaring(context, term)
    n_declaring = view.column(key).per_domain(declaring.counts).on_nodes()
    rule = _at_most(context, "existingAntiAffinity", key, term.key.matcher, n_declaring, 0)
    return replace(rule, pods=declaring, declaring=declaring)


def _declaring(context: ExplainContext, term: ExistingPodTerm) -> PodsPerRow:
    return PodsPerRow(
        context.view.state.counts.declaring(term).astype(np.int64), partial(context.declaring_on, term)
    )


def _limiting(context: ExplainContext, term: ExistingPodTerm) -> BlockingRule:
    """Return the rule of a term with maxPodsPerDomain above 1; it limits only domains with a declaring pod."""
    view, limit = context.view, PodLimit.of_placed(term.key)
    declaring = _declaring(context, term)
    is_declared = view.column(limit.key).per_domain(declaring.counts).on_nodes() > 0
    n_selected = np.where(is_declared, limit.pods(view).on_nodes(), 0)
    rule = _limit_rule(context, "existingAntiAffinity", limit, n_selected)
    if isinstance(limit.limit, int):
        first = next((pod for pod, _ in declaring.within(view.alive)), context.pod)
        rule = _with_percent(rule, first, limit)
    if rule.share is not None and not term.key.selects_itself:
        rule = replace(rule, share=structs.replace(rule.share, declaring_takes=1))
    pods = rule.pods._replace(counts=np.where(is_declared, rule.pods.counts, 0))
    return replace(rule, pods=pods, declaring=declaring)


def _on_nodes(context: ExplainContext, key: str, most: int | Amounts) -> Amount:
    """Return the most pods of each node's domain, or of every domain; unlimited without the key."""
    if isinstance(most, int):
        return most
    ids = context.view.column(key).ids[: context.view.n_rows]
    return np.where(ids == ABSENT, _UNLIMITED, most[ids])


def _limit_rule(context: ExplainContext, kind: str, limit: PodLimit, n_selected: Amounts) -> BlockingRule:
    """Return the rule of a limit where a domain has so many selected pods, with the numbers of its shares if any."""
    capacity = limit.capacity(context.view)
    most = _on_nodes(context, limit.key, capacity) - 1
    rule = _at_most(context, kind, limit.key, limit.matcher, n_selected, most)
    if isinstance(capacity, int) or not isinstance(limit.limit, Shares):
        return rule
    n_pods = max(limit.limit.least_whole, limit.n_divided(context.view) + 1)
    weights = weights_in_use(limit.limit, rule.column)
    share = Share(n_pods=n_pods, percent=limit.limit.percent, weights=weights)
    return replace(rule, share=share, max_per_domain=capacity)


def _with_percent(rule: BlockingRule, declaring: Pod, limit: PodLimit) -> BlockingRule:
    """Return the rule with its percentage, if the pod that declares it says a part of its group's minimum."""
    percent = next(
        (
            term.percent_of_minimum
            for term in usable(declaring.spec.affinity.required_anti)
            if (term.topology_key, term.max_pods) == (limit.key, limit.limit)
        ),
        0,
    )
    if not percent or declaring.group is None or rule.max_existing is None:
        return rule
    share = Share(n_pods=declaring.group.min_count, percent=percent, weights={}, is_of_minimum=True)
    return replace(rule, share=share, max_per_domain=np.full(rule.column.n_ids, rule.max_existing + 1))


def _at_most(
    context: ExplainContext, kind: str, key: str, matcher: PodMatcher, n_existing: Amounts, most: Amount
) -> BlockingRule:
    """Return the rule that a domain has at most `most` pods before the pod is placed there."""
    is_refused = context.view.alive & (n_existing > most)
    # If no pod is allowed there, none makes room by leaving.
    n_to_remove = np.where(is_refused & (np.asarray(most) >= 0), n_existing - most, 0)
    rule = _rule(context, kind, key, matcher, is_refused, n_to_remove)
    return replace(rule, max_existing=most) if isinstance(most, int) else rule


def _rule(
    context: ExplainContext, kind: str, key: str, matcher: PodMatcher, refused: Mask, n_to_remove: Amounts
) -> BlockingRule:
    view = context.view
    return BlockingRule(
        kind=kind,
        topology_key=key,
        column=view.column(key),
        selects=matcher.selects,
        namespaces=matcher.namespaces,
        refused=refused,
        eligible=view.eligible((key,)),
        pods=PodsPerRow(
            view.selected(matcher).by_row.astype(np.int64), partial(context.selected_on, matcher)
        ),
        n_to_remove=n_to_remove,
    )


def _required_pod(context: ExplainContext, row: int) -> RunPod:
    """Return the change that runs a pod on the node, selected by as many required affinity terms as possible."""
    labels: dict[str, str] = {}
    namespaces: set[str] | None = None
    for term in usable(context.pod.spec.affinity.required):
        labels |= _satisfying(term.selector)
        covered = set(term.namespaces) | {
            name for name, own in context.namespace_labels.items() if term.namespace_selector.matches(own)
        }
        namespaces = covered if namespaces is None else namespaces & covered
    own = context.pod.namespace
    names = namespaces or {own}
    return RunPod(own if own in names else min(names), labels, context.view.nodes.name_of(row))


def changes_for_all_nodes(context: ExplainContext) -> Iterator[Changes]:
    """Yield the changes that are not about one node: labels of namespaces, and matchLabelKeys."""
    # The labels make an affinity term's namespaceSelector match a namespace that has the required pods.
    for term in usable(context.pod.spec.affinity.required):
        if term.namespace_selector.requirements:
            yield from _labels_for_term(context, term)
    yield from _match_label_keys(context)


def _match_label_keys(context: ExplainContext) -> Iterator[Changes]:
    """Yield matchLabelKeys for anti-affinity that selects the pods of the pod's other revisions. O(placed pods)."""
    # The change alone helps if the other revisions do not declare the term; else their pods have to be recreated too.
    terms = anti_affinity_across_revisions(context.pod)
    keys = sorted({term.topology_key for term in terms})
    if not keys:
        return
    added = tuple(AddMatchLabelKey("podAntiAffinity", key, REVISION_KEY) for key in keys)
    yield added
    recreated = []
    for key in keys:
        by_key = [term for term in terms if term.topology_key == key]
        n_pods = sum(declares_any(pod, by_key) for pod in context.placed_pods())
        if n_pods:
            recreated.append(RecreateWithMatchLabelKey(key, REVISION_KEY, n_pods))
    if recreated:
        yield (*added, *recreated)


def _labels_for_term(context: ExplainContext, term: AffinityTerm) -> Iterator[Changes]:
    anywhere = PodMatcher(((NamespaceRule(frozenset(), EVERYTHING), term.selector),))
    inhabited = {pod.namespace for pod, _ in context.selected_pods(anywhere)}
    for name in sorted(inhabited - term.namespaces)[:_MAX_NAMESPACES]:
        labels = context.namespace_labels.get(name, {})
        if not term.namespace_selector.matches(labels):
            needed = _satisfying(term.namespace_selector).items()
            yield tuple(LabelNamespace(name, key, value) for key, value in needed if labels.get(key) != value)


def _satisfying(selector: Selector) -> dict[str, str]:
    """Return the fewest labels that satisfy the selector's In and Exists requirements."""
    wanted = (
        requirement for requirement in selector.requirements if requirement.operator in ("In", "Exists")
    )
    return {requirement.key: example_value(requirement.values) for requirement in wanted}

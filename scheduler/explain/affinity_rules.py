"""
Finds the nodes that each affinity term refuses: the pod's own terms, and anti-affinity terms of running pods.

InterPodAffinity refuses nodes for all terms together. `tests/explain` checks that both refuse the same nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from scheduler.explain.blocking_rules import BlockingRule
from scheduler.explain.inspection import Inspection
from scheduler.explain.wording import namespaces_text, selector_text
from scheduler.model.pods import Pod
from scheduler.model.terms import AffinityTerm, usable
from scheduler.plugins.inter_pod_affinity.filtering import room
from scheduler.plugins.inter_pod_affinity.plugin import NAME
from scheduler.state.arrays import Amounts, Counts, Mask
from scheduler.state.columns import ABSENT
from scheduler.state.existing_terms import ExistingPodTerm
from scheduler.state.matching import PodMatcher, incoming_rule

_SEPARATOR: Final = "; and "


def affinity_rules(inspection: Inspection) -> list[BlockingRule]:
    """
    Return the terms that refuse a node, in the plugin's order. O(terms x nodes).

    Required affinity is one rule per topology key, since a pod has to match all terms to count.
    """
    found = [
        *_own_affinity(inspection),
        *_own_anti_affinity(inspection),
        *_existing_anti_affinity(inspection),
    ]
    return [rule for rule in found if rule.refused.any()]


def required_matcher(pod: Pod) -> PodMatcher | None:
    """Return a matcher of the pods that match all required affinity terms; None if the pod has no such term."""
    terms = usable(pod.spec.affinity.required)
    return PodMatcher(tuple((incoming_rule(t), t.selector) for t in terms)) if terms else None


def _own_affinity(inspection: Inspection) -> Iterator[BlockingRule]:
    matcher = required_matcher(inspection.pod)
    if matcher is None:
        return
    terms = usable(inspection.pod.spec.affinity.required)
    keys = tuple(dict.fromkeys(term.topology_key for term in terms))
    snapshot = inspection.snapshot
    matches_by_key = {key: snapshot.pods_by_domain(matcher, key).on_nodes() for key in keys}
    has_match = any(bool(matches.any()) for matches in matches_by_key.values())
    pod = inspection.pod
    # The first pod of a group that matches its own terms may go anywhere (filtering.go, satisfyPodAffinity).
    may_be_first = not has_match and matcher.matches(
        pod.namespace, pod.labels, inspection.snapshot.namespace_labels(pod.namespace)
    )
    alive, n_rows = inspection.snapshot.alive, inspection.snapshot.n_rows
    for key, matches in matches_by_key.items():
        column = inspection.snapshot.column(key)
        lacks_key = alive & (column.ids[:n_rows] == ABSENT)
        yield BlockingRule(
            plugin=NAME,
            kind="requiredAffinity",
            column=column,
            selects=_SEPARATOR.join(dict.fromkeys(selector_text(term.selector) for term in terms)),
            namespaces=_SEPARATOR.join(dict.fromkeys(namespaces_text(incoming_rule(term)) for term in terms)),
            refused=lacks_key if may_be_first else alive & (matches <= 0),
            lacks_key=lacks_key,
            eligible=alive & ~lacks_key,
            counts=snapshot.selected(matcher).by_row.astype(np.int64),
            n_to_remove=np.zeros(n_rows, dtype=np.int64),
            find_pods=lambda: inspection.selected_pods(matcher),
            required_pods=matcher,
        )


def _own_anti_affinity(inspection: Inspection) -> Iterator[BlockingRule]:
    if inspection.pod.namespace not in inspection.exempt_namespaces:
        for term in dict.fromkeys(usable(inspection.pod.spec.affinity.required_anti)):
            yield _own_anti_affinity_term(inspection, term)


def _own_anti_affinity_term(inspection: Inspection, term: AffinityTerm) -> BlockingRule:
    matcher = PodMatcher(((incoming_rule(term), term.selector),), inspection.exempt_namespaces)
    matches = inspection.snapshot.pods_by_domain(matcher, term.topology_key).on_nodes()
    alive = inspection.snapshot.alive
    return BlockingRule(
        plugin=NAME,
        kind="requiredAntiAffinity",
        column=inspection.snapshot.column(term.topology_key),
        selects=selector_text(term.selector),
        namespaces=namespaces_text(incoming_rule(term)),
        refused=alive & (matches >= term.max_pods),
        lacks_key=np.zeros(inspection.snapshot.n_rows, dtype=np.bool_),
        eligible=_with_key(inspection, term.topology_key),
        counts=inspection.snapshot.selected(matcher).by_row.astype(np.int64),
        n_to_remove=np.where(alive, np.maximum(matches - term.max_pods + 1, 0), 0),
        find_pods=lambda: inspection.selected_pods(matcher),
        max_existing=term.max_pods - 1,
    )


def _existing_anti_affinity(inspection: Inspection) -> Iterator[BlockingRule]:
    if inspection.pod.namespace in inspection.exempt_namespaces:
        return
    label_set = inspection.snapshot.label_set(inspection.pod)
    existing = list(inspection.snapshot.existing_terms(label_set))
    for term in existing:
        if term.is_forbidding:
            declaring = inspection.snapshot.declaring(term)
            n_declaring = inspection.snapshot.column(term.key.topology_key).per_domain(declaring).on_nodes()
            yield _existing_term(inspection, term, declaring, n_declaring)
    for term in existing:
        if term.is_limiting:
            yield _existing_limit(inspection, term)


def _existing_limit(inspection: Inspection, term: ExistingPodTerm) -> BlockingRule:
    """Return the rule of a term with maxPodsPerDomain above 1; it limits only domains with a pod that declares it."""
    snapshot, key = inspection.snapshot, term.key
    is_declared = snapshot.column(key.topology_key).per_domain(snapshot.declaring(term)).on_nodes() > 0
    n_selected = snapshot.pods_by_domain(key.matcher, key.topology_key).on_nodes()
    n_to_remove = np.where(is_declared, np.maximum(n_selected - room(term) + 1, 0), 0)
    rule = _existing_term(inspection, term, snapshot.selected(key.matcher).by_row, n_to_remove)
    return replace(
        rule,
        counts=np.where(is_declared, rule.counts, 0),
        find_pods=lambda: ((pod, row) for pod, row in rule.find_pods() if is_declared[row]),
    )


def _existing_term(
    inspection: Inspection, term: ExistingPodTerm, counts: Counts, n_to_remove: Amounts
) -> BlockingRule:
    ((namespaces, selector),) = term.key.matcher.parts
    # A term without a limit counts the pods that declare it, and any of them refuses the pod.
    counts_declaring = term.is_forbidding
    return BlockingRule(
        plugin=NAME,
        kind="existingAntiAffinity",
        column=inspection.snapshot.column(term.key.topology_key),
        selects=selector_text(selector),
        namespaces=namespaces_text(namespaces),
        refused=inspection.snapshot.alive & (n_to_remove > 0),
        lacks_key=np.zeros(inspection.snapshot.n_rows, dtype=np.bool_),
        eligible=_with_key(inspection, term.key.topology_key),
        counts=counts.astype(np.int64),
        n_to_remove=np.where(inspection.snapshot.alive, n_to_remove, 0),
        find_pods=lambda: (
            _declaring_pods(inspection, term)
            if counts_declaring
            else inspection.selected_pods(term.key.matcher)
        ),
        max_existing=0 if counts_declaring else room(term) - 1,
        find_declaring_pods=lambda: _declaring_pods(inspection, term),
    )


def _with_key(inspection: Inspection, key: str) -> Mask:
    """Return the live nodes with the topology key."""
    found: Mask = inspection.snapshot.alive & (
        inspection.snapshot.column(key).ids[: inspection.snapshot.n_rows] != ABSENT
    )
    return found


def _declaring_pods(inspection: Inspection, term: ExistingPodTerm) -> Iterator[tuple[Pod, int]]:
    """Yield the placed pods that declare the term, and their rows. O(placed pods)."""
    for placed in inspection.state.placed.values():
        if term in placed.terms:
            yield placed.pod, placed.row

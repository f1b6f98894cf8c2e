"""
Which terms of InterPodAffinity refuse which nodes: the pod's own, and those that running pods declare against it.

The same three rules as the plugin's, term by term; `tests/explain` holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from scheduler.explain.looking import Case
from scheduler.explain.rules import Finding
from scheduler.explain.wording import namespaces_text, selector_text
from scheduler.model.pods import Pod
from scheduler.model.terms import AffinityTerm, usable
from scheduler.plugins.inter_pod_affinity import NAME
from scheduler.state.arrays import Amounts, Mask
from scheduler.state.columns import ABSENT
from scheduler.state.declared import DeclaredTerm
from scheduler.state.matching import PodMatcher, incoming_rule
from scheduler.state.row_counts import RowCounts

_BETWEEN: Final = "; and "


def affinity_findings(case: Case) -> list[Finding]:
    """
    Every term that refuses a node, in the order in which the plugin asks. O(terms x nodes).

    Required affinity is one finding per topology key: a pod counts only if it matches all of the pod's terms.
    """
    found = [*_near(case), *_far(case), *_existing(case)]
    return [finding for finding in found if finding.broken.any()]


def required_matcher(pod: Pod) -> PodMatcher | None:
    """Who is asked for by all required affinity terms together; None where there is none."""
    terms = usable(pod.spec.affinity.required)
    return PodMatcher(tuple((incoming_rule(t), t.selector) for t in terms)) if terms else None


def _near(case: Case) -> Iterator[Finding]:
    matcher = required_matcher(case.pod)
    if matcher is None:
        return
    terms = usable(case.pod.spec.affinity.required)
    keys = tuple(dict.fromkeys(term.topology_key for term in terms))
    counts = case.snapshot.selected(matcher)
    near_by_key = {key: case.snapshot.per_node(counts, key) for key in keys}
    anywhere = any(bool(near.any()) for near in near_by_key.values())
    pod = case.pod
    may_be_first = not anywhere and matcher.matches(
        pod.namespace, pod.labels, case.snapshot.namespace_labels(pod.namespace)
    )
    alive, n_rows = case.snapshot.alive, case.snapshot.n_rows
    for key, near in near_by_key.items():
        column = case.snapshot.column(key)
        lacking = alive & (column.ids[:n_rows] == ABSENT)
        yield Finding(
            plugin=NAME,
            kind="requiredAffinity",
            column=column,
            selects=_BETWEEN.join(dict.fromkeys(selector_text(term.selector) for term in terms)),
            namespaces=_BETWEEN.join(dict.fromkeys(namespaces_text(incoming_rule(term)) for term in terms)),
            broken=lacking if may_be_first else alive & (near <= 0),
            lacking=lacking,
            counting=alive & ~lacking,
            counted=case.snapshot.rows_of(counts).astype(np.int64),
            to_go=np.zeros(n_rows, dtype=np.int64),
            find_pods=lambda: case.selected_pods(matcher),
            wanted=matcher,
        )


def _far(case: Case) -> Iterator[Finding]:
    if case.pod.namespace not in case.exempt:
        for term in dict.fromkeys(usable(case.pod.spec.affinity.required_anti)):
            yield _own_anti_affinity(case, term)


def _own_anti_affinity(case: Case, term: AffinityTerm) -> Finding:
    matcher = PodMatcher(((incoming_rule(term), term.selector),), case.exempt)
    counts = case.snapshot.selected(matcher)
    near = case.snapshot.per_node(counts, term.topology_key)
    alive = case.snapshot.alive
    return Finding(
        plugin=NAME,
        kind="requiredAntiAffinity",
        column=case.snapshot.column(term.topology_key),
        selects=selector_text(term.selector),
        namespaces=namespaces_text(incoming_rule(term)),
        broken=alive & (near >= term.max_pods),
        lacking=np.zeros(case.snapshot.n_rows, dtype=np.bool_),
        counting=_with_key(case, term.topology_key),
        counted=case.snapshot.rows_of(counts).astype(np.int64),
        to_go=np.where(alive, np.maximum(near - term.max_pods + 1, 0), 0),
        find_pods=lambda: case.selected_pods(matcher),
        most=term.max_pods - 1,
    )


def _existing(case: Case) -> Iterator[Finding]:
    if case.pod.namespace in case.exempt:
        return
    label_set = case.snapshot.label_set(case.pod)
    for term in case.snapshot.forbidding_terms(label_set):
        near = case.snapshot.per_node(term.counts, term.topology_key)
        yield _declared_anti_affinity(case, term, term.counts, near)
    for term in case.snapshot.limiting_terms(label_set):
        yield _limiting(case, term)


def _limiting(case: Case, term: DeclaredTerm) -> Finding:
    """
    A term that lets several pods be in a domain, and has as many: one of those that it counts would have to go.

    It counts none where no pod declares it: such domains may have as many as come.
    """
    counts = case.snapshot.selected(term.selection.matcher)
    declared = case.snapshot.per_node(term.counts, term.topology_key)
    selected = case.snapshot.per_node(counts, term.topology_key) - int(term.selects_itself)
    here = declared > 0
    to_go = np.where(here, np.maximum(selected - term.max_pods + 2, 0), 0)
    finding = _declared_anti_affinity(case, term, counts, to_go)
    return replace(
        finding,
        counted=np.where(here, finding.counted, 0),
        find_pods=lambda: ((pod, row) for pod, row in finding.find_pods() if here[row]),
    )


def _declared_anti_affinity(case: Case, term: DeclaredTerm, counts: RowCounts, to_go: Amounts) -> Finding:
    ((rule, selector),) = term.selection.matcher.parts
    alone = counts is term.counts
    return Finding(
        plugin=NAME,
        kind="existingAntiAffinity",
        column=case.snapshot.column(term.topology_key),
        selects=selector_text(selector),
        namespaces=namespaces_text(rule),
        broken=case.snapshot.alive & (to_go > 0),
        lacking=np.zeros(case.snapshot.n_rows, dtype=np.bool_),
        counting=_with_key(case, term.topology_key),
        counted=case.snapshot.rows_of(counts).astype(np.int64),
        to_go=np.where(case.snapshot.alive, to_go, 0),
        find_pods=lambda: _declaring(case, term) if alone else case.selected_pods(term.selection.matcher),
        most=0 if alone else term.max_pods - 2 + int(term.selects_itself),
        find_declaring=lambda: _declaring(case, term),
    )


def _with_key(case: Case, key: str) -> Mask:
    """Live nodes that have the topology key."""
    found: Mask = case.snapshot.alive & (case.snapshot.column(key).ids[: case.snapshot.n_rows] != ABSENT)
    return found


def _declaring(case: Case, term: DeclaredTerm) -> Iterator[tuple[Pod, int]]:
    """Placed pods that declare the term. O(placed pods)."""
    for placed in case.state.placed.values():
        if term in placed.declared:
            yield placed.pod, placed.row

"""Describes a rule that refuses nodes: its domains, the pods that it counts, and the pods that declare it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

import numpy as np
from msgspec.structs import replace

from scheduler.engine.framework.explaining import BlockingRule, PodsPerRow
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.columns import ABSENT
from scheduler.engine.state.matching import PodMatcher
from scheduler.tools.explain.formats.explanation import DomainCount, PodRef, Pods, Rule
from scheduler.tools.explain.inspection import Inspection
from scheduler.tools.explain.sentences import rule_text

#: Domains listed per rule. A hostname rule has one per node.
_SHOWN_DOMAINS: Final = 100
#: Pods named in one list; the rest are only counted.
_SHOWN_PODS: Final = 20
#: Pods among which these are looked for, a few more if a node has many.
_COMPARED_PODS: Final = 200


def describe_rule(inspection: Inspection, rule: BlockingRule) -> Rule:
    """Return the rule as a part of an explanation. O(nodes)."""
    domains, n_more = _domains(rule)
    name_of = inspection.context.view.nodes.name_of
    required = rule.required_pods
    has_key = np.not_equal(rule.column.ids[: len(rule.refused)], ABSENT)
    described = Rule(
        kind=rule.kind,
        declared_by=None if rule.declaring is None else _first_pods(rule, rule.declaring, name_of),
        topology_key=rule.topology_key,
        selects=rule.selects,
        namespaces=rule.namespaces,
        n_nodes=int(np.count_nonzero(rule.refused)),
        pods=_first_pods(rule, rule.pods._replace(counts=rule.pods.counts * has_key), name_of),
        pending=Pods() if required is None else _pending_matching(inspection, required),
        skew=rule.skew,
        share=rule.share,
        domains=domains,
        n_more_domains=n_more,
    )
    return replace(described, text=rule_text(described))


def _first_pods(rule: BlockingRule, pods: PodsPerRow, name_of: Callable[[int], str]) -> Pods:
    """
    Return the total and the first few of the pods, from the fullest domains, since they block most.

    Of many pods in equally full domains only those of the first rows are compared. O(nodes): 1 ms at 5,000.
    """
    rows, in_domain, ids = np.flatnonzero(pods.counts), rule.in_domains, rule.column.ids
    rows = rows[np.argsort(-in_domain[ids[rows]], kind="stable")]
    n_rows = 1 + int(np.searchsorted(np.cumsum(pods.counts[rows]), _COMPARED_PODS))
    compared = [(pod, row) for row in rows[:n_rows].tolist() for pod in pods.on(row)]

    def key(entry: tuple[Pod, int]) -> tuple[int, str, str]:
        pod, row = entry
        return -int(in_domain[ids[row]]), pod.namespace, pod.name

    def reference(pod: Pod, row: int) -> PodRef:
        domain = int(ids[row])
        value = "" if domain == ABSENT else rule.column.value_of(domain)
        return PodRef(pod.namespace, pod.name, name_of(row), value)

    first = heapq.nsmallest(_SHOWN_PODS, compared, key=key)
    return Pods(int(pods.counts.sum()), tuple(reference(pod, row) for pod, row in first))


def _pending_matching(inspection: Inspection, matcher: PodMatcher) -> Pods:
    """Return the other pending pods that the matcher selects. O(pending pods)."""
    own_uid, labels_of = inspection.context.pod.uid, inspection.context.view.namespace_labels
    found = sorted(
        (
            pod
            for pod in inspection.pending_pods
            if pod.uid != own_uid and matcher.matches(pod.namespace, pod.labels, labels_of(pod.namespace))
        ),
        key=lambda pod: pod.key,
    )
    return Pods(len(found), tuple(PodRef(pod.namespace, pod.name) for pod in found[:_SHOWN_PODS]))


def _domains(rule: BlockingRule) -> tuple[tuple[DomainCount, ...], int]:
    """Return the domains to list and the number left out: sorted by name, or by pods if there are too many."""
    column, n_rows = rule.column, len(rule.refused)
    n_nodes = column.per_domain(rule.eligible.astype(np.int64)).amounts
    n_pods = rule.in_domains
    closed = np.zeros(column.n_ids, dtype=np.bool_)
    closed[column.ids[:n_rows][rule.refused & ~rule.lacks_key]] = True
    ids = [domain for domain in column.id_by_value.values() if n_nodes[domain] or n_pods[domain]]
    n_ids = len(ids)
    if n_ids > _SHOWN_DOMAINS:
        amounts = n_pods.tolist()
        ids = heapq.nsmallest(
            _SHOWN_DOMAINS, ids, key=lambda domain: (-amounts[domain], column.value_of(domain))
        )
    else:
        ids.sort(key=column.value_of)
    shown = tuple(
        DomainCount(
            column.value_of(domain),
            int(n_nodes[domain]),
            int(n_pods[domain]),
            rule.max_existing if rule.max_per_domain is None else rule.max_per_domain.item(domain) - 1,
            not bool(closed[domain]),
        )
        for domain in ids
    )
    return shown, n_ids - len(shown)

"""Describes what refuses a pod: nodes grouped by plugin, reason and place, and the rules behind the refusals."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.framework.explaining import (
    BlockingRule,
    PluginExplanation,
    PodsPerRow,
    Where,
    did_you_mean,
)
from scheduler.engine.framework.status import Code, Status
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.terms import HOSTNAME_KEY
from scheduler.engine.state.arrays import Codes, Mask, Rows
from scheduler.engine.state.columns import ABSENT
from scheduler.engine.state.matching import PodMatcher
from scheduler.tools.explain.formats.explanation import DomainCount, NodeGroup, PodRef, Pods, Rule
from scheduler.tools.explain.inspection import Inspection
from scheduler.tools.explain.sentences import rule_text

#: Groups in an explanation, and nodes named per group.
_SHOWN_GROUPS: Final = 30
_EXAMPLES: Final = 3
#: Domains listed per rule. A hostname rule has one per node.
_SHOWN_DOMAINS: Final = 100
#: Pods named in one list; the rest are only counted.
_SHOWN_PODS: Final = 20
#: Pods among which these are looked for, a few more if a node has many.
_COMPARED_PODS: Final = 200


def node_groups(inspection: Inspection, error: FitError) -> tuple[tuple[NodeGroup, ...], int]:
    """
    Return the largest groups and the number left out. The counts per reason are the same as in the error's message.

    A node belongs to the first plugin that refuses it, in the profile's order.
    """
    name_of = inspection.context.view.nodes.name_of
    # A plugin has a second part for nodes that it refuses for the pods that are nominated there.
    alike: dict[tuple[str, Status, Where], list[int]] = {}
    for part in error.per_node:
        for status, refused in _by_status(part.statuses.codes, part.rows, part.statuses.statuses):
            for where, rows in _by_place(
                inspection.explanations.get(part.plugin), refused, inspection.context.view.nodes.labels
            ):
                alike.setdefault((part.plugin, status, where), []).extend(rows.tolist())
    groups = [
        node_group(plugin, status, where, len(found), map(name_of, found))
        for (plugin, status, where), found in alike.items()
    ]
    groups.sort(key=lambda group: (-group.n_nodes, group.plugin, group.where))
    return tuple(groups[:_SHOWN_GROUPS]), max(0, len(groups) - _SHOWN_GROUPS)


def _by_status(codes: Codes, rows: Mask, statuses: Sequence[Status]) -> Iterator[tuple[Status, Rows]]:
    for number, status in enumerate(statuses, 1):
        refused = np.flatnonzero(rows & (codes == number))
        if len(refused):
            yield status, refused


def node_group(
    plugin: str, status: Status, where: Where, n_nodes: int, names: Iterable[str] = ()
) -> NodeGroup:
    """Return so many nodes, with the first of these names, that a plugin refuses with this status."""
    return NodeGroup(
        plugin=plugin,
        reason=status.message,
        where=where.text,
        n_nodes=n_nodes,
        examples=tuple(heapq.nsmallest(_EXAMPLES, names)),
        removable=status.code is not Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
        nowhere=where.is_nowhere,
        misspelt=where.is_misspelt,
    )


def _by_place(
    explanation: PluginExplanation | None, rows: Rows, labels: Collection[str]
) -> Iterable[tuple[Where, Rows]]:
    """Return the refused rows by what the plugin says they have in common, such as a domain or a taint."""
    if explanation is not None and explanation.rules:
        return _by_domain(rows, explanation.rules, labels)
    if explanation is None or explanation.where is None:
        return [(Where(""), rows)]
    found: dict[Where, list[int]] = {}
    for row, said in zip(rows.tolist(), explanation.where(rows), strict=True):
        found.setdefault(Where.of(said), []).append(row)
    return [(where, np.array(alike, dtype=np.intp)) for where, alike in found.items()]


def _by_domain(
    rows: Rows, rules: Sequence[BlockingRule], labels: Collection[str]
) -> Iterator[tuple[Where, Rows]]:
    """
    Group rows by the first rule that refuses them and by domain; hostname domains are one group.

    `labels`: the keys that a node has.
    """
    left = rows
    for rule in rules:
        broken = rule.refused[left]
        here, left = left[broken], left[~broken]
        is_lacking, column = rule.lacks_key[here], rule.column
        if is_lacking.any():
            meant = did_you_mean(rule.topology_key, labels)
            yield Where(f"no label {rule.topology_key}{meant}", bool(meant), bool(meant)), here[is_lacking]
        here = here[~is_lacking]
        # A group per domain would be a group per node.
        if len(here) and (column.key == HOSTNAME_KEY or (column.is_unique and len(here) > _SHOWN_GROUPS)):
            yield Where(rule.topology_key), here
            continue
        ids = column.ids[here]
        # Not np.unique, whose first call imports numpy.ma: 15 ms.
        for domain in np.flatnonzero(np.bincount(ids)).tolist():
            yield Where(f"{rule.topology_key}={column.value_of(domain)}"), here[ids == domain]
    if len(left):
        yield Where(""), left


def describe_rule(inspection: Inspection, rule: BlockingRule) -> Rule:
    """Return the rule as a part of an explanation: its domains, the pods that it counts, and who declares it."""
    domains, n_more = _domains(rule)
    required = rule.required_pods
    has_key = np.not_equal(rule.column.ids[: len(rule.refused)], ABSENT)
    described = Rule(
        kind=rule.kind,
        declared_by=None if rule.declaring is None else _first_pods(inspection, rule, rule.declaring),
        topology_key=rule.topology_key,
        selects=rule.selects,
        namespaces=rule.namespaces,
        n_nodes=int(np.count_nonzero(rule.refused)),
        pods=_first_pods(inspection, rule, rule.pods._replace(counts=rule.pods.counts * has_key)),
        pending=Pods() if required is None else _pending_matching(inspection, required),
        skew=rule.skew,
        share=rule.share,
        domains=domains,
        n_more_domains=n_more,
    )
    return replace(described, text=rule_text(described))


def _first_pods(inspection: Inspection, rule: BlockingRule, pods: PodsPerRow) -> Pods:
    """
    Return the total and the first few of the pods, from the fullest domains, since they block most.

    Of many pods in equally full domains only those of the first rows are compared.
    """
    rows, in_domain, ids = np.flatnonzero(pods.counts), rule.in_domains, rule.column.ids
    rows = rows[np.argsort(-in_domain[ids[rows]], kind="stable")]
    n_rows = 1 + int(np.searchsorted(np.cumsum(pods.counts[rows]), _COMPARED_PODS))
    compared = [(pod, row) for row in rows[:n_rows].tolist() for pod in pods.on(row)]

    def key(entry: tuple[Pod, int]) -> tuple[int, str, str]:
        pod, row = entry
        return -int(in_domain[ids[row]]), pod.namespace, pod.name

    name_of = inspection.context.view.nodes.name_of
    shown = []
    for pod, row in heapq.nsmallest(_SHOWN_PODS, compared, key=key):
        domain = int(ids[row])
        value = "" if domain == ABSENT else rule.column.value_of(domain)
        shown.append(PodRef(pod.namespace, pod.name, name_of(row), value))
    return Pods(int(pods.counts.sum()), tuple(shown))


def _pending_matching(inspection: Inspection, matcher: PodMatcher) -> Pods:
    """Return the other pending pods that the matcher selects."""
    own_uid, labels_of = inspection.context.pod.uid, inspection.context.view.namespace_labels
    selected = [
        pod
        for pod in inspection.pending_pods
        if pod.uid != own_uid and matcher.matches(pod.namespace, pod.labels, labels_of(pod.namespace))
    ]
    first = heapq.nsmallest(_SHOWN_PODS, selected, key=lambda pod: pod.key)
    return Pods(len(selected), tuple(PodRef(pod.namespace, pod.name) for pod in first))


def _domains(rule: BlockingRule) -> tuple[tuple[DomainCount, ...], int]:
    """Return the domains to list and the number left out: sorted by name, or by pods if there are too many."""
    column, n_rows = rule.column, len(rule.refused)
    n_nodes = column.per_domain(rule.eligible.astype(np.int64)).amounts
    n_pods = rule.in_domains
    closed = np.zeros(column.n_ids, dtype=np.bool_)
    closed[column.ids[:n_rows][rule.refused & ~rule.lacks_key]] = True
    ids = [domain for domain in column.id_by_value.values() if n_nodes[domain] or n_pods[domain]]
    n_more = max(0, len(ids) - _SHOWN_DOMAINS)
    if n_more:
        ids.sort(key=lambda domain: (-n_pods.item(domain), column.value_of(domain)))
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
        for domain in ids[:_SHOWN_DOMAINS]
    )
    return shown, n_more

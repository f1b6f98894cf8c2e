"""An affinity term or spread constraint that refuses nodes, with its domains and pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from scheduler.explain.explanation import Domain, Pods, Rule, RuleKind, Skew
from scheduler.explain.inspection import Inspection
from scheduler.model.pods import Pod
from scheduler.state.arrays import Amounts, Mask
from scheduler.state.columns import ABSENT, LabelColumn
from scheduler.state.matching import PodMatcher

#: Domains listed per rule. A hostname rule has one per node.
_SHOWN_DOMAINS: Final = 20


@dataclass(frozen=True)
class BlockingRule:
    """An affinity term or spread constraint that refuses nodes. Arrays have one entry per node row."""

    plugin: str
    kind: RuleKind
    column: LabelColumn
    selects: str
    namespaces: str
    #: Live rows that the rule refuses.
    refused: Mask
    #: Refused rows that lack the topology key.
    lacks_key: Mask
    #: Rows whose pods count.
    eligible: Mask
    #: Pods per row that the rule counts.
    counts: Amounts
    #: How many of `pods` must leave the row's domain before the rule admits the pod; 0 if that would not help.
    n_to_remove: Amounts
    #: Returns the pods that the rule selects, and their rows.
    find_pods: Callable[[], Iterable[tuple[Pod, int]]]
    #: The most pods that a domain may already have; None for required affinity.
    max_existing: int | None = None
    #: Returns the pods that declare the rule, and their rows; None if the pod itself declares it.
    find_declaring_pods: Callable[[], Iterable[tuple[Pod, int]]] | None = None
    #: Matches the pods that a required affinity needs; None for other rules.
    required_pods: PodMatcher | None = None
    #: The numbers of a spread constraint; None for other rules.
    skew: Skew | None = None

    @cached_property
    def pods(self) -> list[tuple[Pod, int]]:
        """The selected pods on live nodes with the topology key, and their rows."""
        ids, n_rows = self.column.ids, len(self.refused)
        return [(pod, row) for pod, row in self.find_pods() if row < n_rows and ids[row] != ABSENT]

    def pods_in_domain_of(self, row: int) -> list[Pod]:
        """Return the selected pods in the row's domain. O(pods)."""
        ids = self.column.ids
        return [pod for pod, at in self.pods if ids[at] == ids[row]]


def describe_rule(inspection: Inspection, rule: BlockingRule) -> Rule:
    """Return the rule as a part of an explanation. O(placed pods + nodes)."""
    domains, n_more = _domains(rule)
    declaring = rule.find_declaring_pods
    return Rule(
        kind=rule.kind,
        declared_by=None
        if declaring is None
        else inspection.first_pods(declaring(), rule.column, _order(rule)),
        topology_key=rule.column.key,
        selects=rule.selects,
        namespaces=rule.namespaces,
        n_nodes=int(np.count_nonzero(rule.refused)),
        pods=inspection.first_pods(rule.pods, rule.column, _order(rule)),
        pending=Pods() if rule.required_pods is None else inspection.pending_matching(rule.required_pods),
        skew=rule.skew,
        domains=domains,
        n_more_domains=n_more,
    )


def _order(rule: BlockingRule) -> Callable[[Pod, int], object]:
    """Return a sort key for pods: the fullest domains first, since their pods block most."""
    in_domain = rule.column.per_domain(rule.counts).amounts
    ids = rule.column.ids
    return lambda _pod, row: -int(in_domain[ids[row]])


def _domains(rule: BlockingRule) -> tuple[tuple[Domain, ...], int]:
    """Return the domains to list and the number left out: sorted by name, or by pods if there are too many."""
    column, n_rows = rule.column, len(rule.refused)
    n_nodes = column.per_domain(rule.eligible.astype(np.int64)).amounts
    n_pods = column.per_domain(rule.counts).amounts
    closed = np.zeros(column.n_ids, dtype=np.bool_)
    closed[column.ids[:n_rows][rule.refused & ~rule.lacks_key]] = True
    ids = [domain for domain in column.id_by_value.values() if n_nodes[domain] or n_pods[domain]]
    if len(ids) > _SHOWN_DOMAINS:
        ids.sort(key=lambda domain: (-int(n_pods[domain]), column.value_of(domain)))
    else:
        ids.sort(key=column.value_of)
    shown = tuple(
        Domain(
            column.value_of(domain),
            int(n_nodes[domain]),
            int(n_pods[domain]),
            rule.max_existing,
            not bool(closed[domain]),
        )
        for domain in ids[:_SHOWN_DOMAINS]
    )
    return shown, len(ids) - len(shown)

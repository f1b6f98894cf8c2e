"""What affinity and spread have in common to be explained: a rule that refuses nodes, its domains and its pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from scheduler.explain.answers import Domain, Pods, Rule, RuleKind, Skew
from scheduler.explain.looking import Case
from scheduler.model.pods import Pod
from scheduler.state.arrays import Amounts, Mask
from scheduler.state.columns import ABSENT, LabelColumn
from scheduler.state.matching import PodMatcher

#: Domains listed of one rule; hostnames are as many as nodes.
_SHOWN_DOMAINS: Final = 20


@dataclass(frozen=True)
class Finding:
    """A rule that refuses nodes. Every array has one entry per node row; dead rows are refused by none."""

    plugin: str
    kind: RuleKind
    column: LabelColumn
    selects: str
    namespaces: str
    #: Rows that the rule refuses, and those of them that lack the topology key.
    broken: Mask
    lacking: Mask
    #: Rows that make domains, and the pods that the rule counts on each.
    counting: Mask
    counted: Amounts
    #: How many of `pods` have to go from a row's domain to open it; 0 where none has to, or where none would help.
    to_go: Amounts
    #: Pods that the rule is about, with their rows.
    find_pods: Callable[[], Iterable[tuple[Pod, int]]]
    #: Pods that a domain may have for the pod to be let in; None where the rule asks for pods.
    most: int | None = None
    #: The pods that declare the rule, with their rows; None where it is the pod's own.
    find_declaring: Callable[[], Iterable[tuple[Pod, int]]] | None = None
    #: What a required affinity asks for; None for other rules.
    wanted: PodMatcher | None = None
    skew: Skew | None = None

    @cached_property
    def pods(self) -> list[tuple[Pod, int]]:
        """`find_pods`, once: those on live nodes that have the topology key."""
        ids, n_rows = self.column.ids, len(self.broken)
        return [(pod, row) for pod, row in self.find_pods() if row < n_rows and ids[row] != ABSENT]

    def pods_near(self, row: int) -> list[Pod]:
        """Those of the pods that share the row's domain. O(pods)."""
        ids = self.column.ids
        return [pod for pod, at in self.pods if ids[at] == ids[row]]


def rule_of(case: Case, finding: Finding) -> Rule:
    """The finding in words and numbers. O(placed pods + nodes)."""
    domains, n_more = _domains(finding)
    declaring = finding.find_declaring
    return Rule(
        kind=finding.kind,
        declared_by=None if declaring is None else case.listed(declaring(), finding.column, _order(finding)),
        topology_key=finding.column.key,
        selects=finding.selects,
        namespaces=finding.namespaces,
        n_nodes=int(np.count_nonzero(finding.broken)),
        pods=case.listed(finding.pods, finding.column, _order(finding)),
        pending=Pods() if finding.wanted is None else case.waiting(finding.wanted),
        skew=finding.skew,
        domains=domains,
        n_more_domains=n_more,
    )


def _order(finding: Finding) -> Callable[[Pod, int], object]:
    """Pods in the fullest domains first, so that those that block most nodes are named."""
    in_domain = finding.column.sums(finding.counted)
    ids = finding.column.ids
    return lambda _pod, row: -int(in_domain[ids[row]])


def _domains(finding: Finding) -> tuple[tuple[Domain, ...], int]:
    """The domains, and how many more there are: all by name where they are few, else those with most pods."""
    column, n_rows = finding.column, len(finding.broken)
    n_nodes = column.sums(finding.counting.astype(np.int64))
    n_pods = column.sums(finding.counted)
    closed = np.zeros(column.n_ids, dtype=np.bool_)
    closed[column.ids[:n_rows][finding.broken & ~finding.lacking]] = True
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
            finding.most,
            not bool(closed[domain]),
        )
        for domain in ids[:_SHOWN_DOMAINS]
    )
    return shown, len(ids) - len(shown)

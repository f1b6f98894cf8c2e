"""How full each domain of a rule is: pods that the rule counts, pods that declare it, room left, broken or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import numpy as np

from scheduler.engine.state.arrays import Amounts, Mask, Rows
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.columns import LabelColumn
from scheduler.engine.state.domain_limits import n_divided
from scheduler.engine.state.node_masks import NodeMasks
from scheduler.tools.explain.declared_rules import DeclaredRule

#: The room of a domain without a limit.
UNLIMITED: Final = -1


class DomainState(IntEnum):
    """EMPTY and ROOM have room for another pod of the rule, FULL has none. CLOSED: affinity finds no pod there."""

    EMPTY = 0
    ROOM = 1
    FULL = 2
    BROKEN = 3
    CLOSED = 4


@dataclass(slots=True)
class RuleRecord:
    """A rule and the running pods that declare it: their rows if the rule is hard, else only their number."""

    rule: DeclaredRule
    #: Those that the rule selects themselves, and others.
    selected: Counter[int] = field(default_factory=Counter)
    others: Counter[int] = field(default_factory=Counter)
    #: Pods that the rule selects and that have relaxed an equal one: they do not count against it.
    relaxed: Counter[int] = field(default_factory=Counter)
    n_soft: int = 0
    #: UIDs of pending pods that declare it.
    pending: dict[str, None] = field(default_factory=dict)

    @property
    def n_declaring(self) -> int:
        """The number of running pods that declare it."""
        return self.selected.total() + self.others.total() + self.n_soft


@dataclass(frozen=True)
class Occupancy:
    """
    The domains of a rule; arrays have one entry per domain, in the order of `ids`.

    `n_nodes`: nodes that form the domain. `n_pods`: pods that the rule selects. `room`: how many more pods that declare
    the rule and that it selects would fit, as far as this rule goes; `UNLIMITED` if any number. `fewest`: pods in the
    emptiest domain of a spread constraint, 0 below minDomains and for other rules.
    """

    column: LabelColumn
    ids: Rows
    n_nodes: Amounts
    n_pods: Amounts
    n_declaring: Amounts
    room: Amounts
    states: Amounts
    fewest: int


def occupancy(record: RuleRecord, state: ClusterState) -> Occupancy:
    """Return the rule's domains, counted from the columns, so that looking displaces no count that decisions keep."""
    rule, nodes = record.rule, state.nodes
    column = nodes.column(rule.topology_key)
    is_spread = rule.kind == "topologySpread"
    eligible = _eligible(rule, state)
    n_nodes = column.per_domain(eligible).amounts
    ids = n_nodes.nonzero()[0]
    by_row = state.pods.per_row(state.label_sets.selected(rule.matcher), nodes.n_rows, live_only=is_spread)
    n_pods = column.per_domain(by_row * eligible).amounts[ids]
    selected = _per_domain(column, record.selected, nodes.n_rows)[ids]
    others = _per_domain(column, record.others, nodes.n_rows)[ids]
    match rule.kind:
        case "requiredAntiAffinity":
            relaxed = _per_domain(column, record.relaxed, nodes.n_rows)[ids]
            n_selected = n_divided(by_row, nodes.alive)
            now, then = (rule.most_per_domain(column, n_selected + n_more)[ids] for n_more in (0, 1))
            fewest, (room, states) = 0, _anti_affinity(rule, now, then, n_pods, relaxed, selected, others)
        case "requiredAffinity":
            fewest, (room, states) = 0, _affinity(rule, n_pods, selected, others)
        case "preferredAffinity" | "preferredAntiAffinity":
            room = np.full(len(ids), UNLIMITED, dtype=np.int64)
            fewest, states = 0, np.where(n_pods > 0, DomainState.ROOM, DomainState.EMPTY)
        case "topologySpread":
            fewest = int(n_pods.min()) if len(ids) and len(ids) >= rule.min_domains else 0
            room, states = _spread(rule, n_pods, fewest)
    return Occupancy(column, ids, n_nodes[ids], n_pods, selected + others, room, states, fewest)


def _eligible(rule: DeclaredRule, state: ClusterState) -> Mask:
    eligible, masks = state.nodes.alive.copy(), NodeMasks(state.nodes, state.derived)
    if rule.node_rule is not None:
        eligible &= masks.matching(rule.node_rule)
    if rule.tolerations is not None:
        eligible &= masks.tolerated(rule.tolerations)
    return eligible


def _per_domain(column: LabelColumn, n_by_row: Mapping[int, int], n_rows: int) -> Amounts:
    by_row = np.zeros(n_rows, dtype=np.int64)
    # The pods were gathered a moment ago: a row may be gone by now.
    for row, n_pods in n_by_row.items():
        if row < n_rows:
            by_row[row] = n_pods
    return column.per_domain(by_row).amounts


def _anti_affinity(
    rule: DeclaredRule,
    limit: Amounts,
    next_limit: Amounts,
    n_pods: Amounts,
    n_relaxed: Amounts,
    selected: Amounts,
    others: Amounts,
) -> tuple[Amounts, Amounts]:
    """
    Return room and states of the domains for required anti-affinity.

    A domain may have `limit` counting pods, and `next_limit` once one more pod counts: shares grow with the number of
    pods. A declaring pod that the rule does not select (`others`) takes one place.
    """
    counting = n_pods - n_relaxed
    room = np.maximum(next_limit - counting, 0)
    # A running pod that is not selected itself keeps every selected pod out.
    room = np.where((others > 0) & (limit == 1), 0, room)
    broken = (selected > 0) & rule.is_broken(counting, limit, is_own=True)
    broken |= (others > 0) & rule.is_broken(counting, next_limit, is_own=False)
    states = np.where(n_pods + others > 0, DomainState.ROOM, DomainState.EMPTY)
    states = np.where(room == 0, DomainState.FULL, states)
    return room, np.where(broken, DomainState.BROKEN, states)


def _affinity(
    rule: DeclaredRule, n_pods: Amounts, selected: Amounts, others: Amounts
) -> tuple[Amounts, Amounts]:
    """Return room and states for required affinity: a domain needs a selected pod, unless there is none anywhere."""
    n_anywhere = int(n_pods.sum())
    closed = (n_pods == 0) & bool(n_anywhere or others.any())
    states = np.where(closed, DomainState.CLOSED, np.where(n_pods > 0, DomainState.ROOM, DomainState.EMPTY))
    lonely = (others > 0) & rule.is_broken(n_pods, is_own=False)
    if n_anywhere > 1:
        lonely |= (selected > 0) & rule.is_broken(n_pods, is_own=True)
    return np.where(closed, 0, UNLIMITED), np.where(lonely, DomainState.BROKEN, states)


def _spread(rule: DeclaredRule, n_pods: Amounts, fewest: int) -> tuple[Amounts, Amounts]:
    room = np.maximum(fewest + rule.limit - n_pods, 0)
    states = np.where(n_pods > 0, DomainState.ROOM, DomainState.EMPTY)
    states = np.where(room == 0, DomainState.FULL, states)
    if rule.is_hard:
        states = np.where(n_pods - fewest > rule.limit, DomainState.BROKEN, states)
    return room, states

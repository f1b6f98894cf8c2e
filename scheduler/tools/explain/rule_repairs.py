"""Proposes changes that satisfy rules about pods per domain: labels, pods that leave, or what the rule names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np

from scheduler.engine.framework.explaining import (
    MOST_REMOVED,
    BlockingRule,
    ExplainContext,
    Repair,
    did_you_mean,
    removal,
)
from scheduler.engine.model.changes import Change, Changes, LabelNode
from scheduler.engine.model.terms import HOSTNAME_KEY
from scheduler.engine.state.arrays import Fractions, Rows

#: The longest value of a label; a node's name may be longer.
_LABEL_LENGTH: Final = 63


def rule_repair(context: ExplainContext, rules: Sequence[BlockingRule]) -> Repair:
    """Return the repair of a plugin that refuses nodes by these rules."""
    return Repair(partial(_satisfy, context, rules), partial(_effort, rules))


def _effort(rules: Sequence[BlockingRule], rows: Rows) -> Fractions:
    effort = np.zeros(len(rows))
    for rule in rules:
        needed = np.maximum(rule.n_to_remove[rows], 1)
        if _lacks_pods(rule):
            needed += rule.lacks_key[rows] & (rule.pods.counts[rows] == 0)
        effort += np.where(rule.refused[rows], needed, 0)
    return effort


def _satisfy(context: ExplainContext, rules: Sequence[BlockingRule], row: int) -> list[Changes]:
    """
    Return changes that satisfy all rules that refuse the row.

    A rule may be satisfied in two ways. All rules are then satisfied in the first way, or all that have one in the
    second. Of thousands of rules only as many are looked at as one proposal has room for.
    """
    all_changes: list[dict[Change, None] | None] = [{}, {}]
    for rule in rules:
        if not rule.refused[row]:
            continue
        ways = _ways(context, rule, row)
        for number, changes in enumerate(all_changes):
            if changes is not None:
                way = ways[number] if number < len(ways) else ways[0]
                changes.update(dict.fromkeys(way or ()))
                if way is None or len(changes) > MOST_REMOVED:
                    all_changes[number] = None
        if all_changes == [None, None]:
            return []
    return list(dict.fromkeys(tuple(changes) for changes in all_changes if changes))


def _ways(context: ExplainContext, rule: BlockingRule, row: int) -> list[Changes | None]:
    """Return one or two ways to satisfy the rule at the row; None stands for one that takes a pod that must stay."""
    other: Changes = () if rule.other_changes is None else rule.other_changes(row)
    if rule.lacks_key[row]:
        if did_you_mean(rule.topology_key, context.view.nodes.labels):
            return [None]
        label = _topology_label(context, row, rule)
        return [(label,), (label, *other)] if _lacks_pods(rule) else [(label,)]
    ways: list[Changes | None] = [_remove_pods(context, row, rule)] if rule.n_to_remove[row] else []
    if other:
        ways.append(other)
    return ways or [None]


def _lacks_pods(rule: BlockingRule) -> bool:
    """Return whether the rule asks for pods, and no domain has any."""
    return rule.required_pods is not None and not rule.in_domains.any()


def _remove_pods(context: ExplainContext, row: int, rule: BlockingRule) -> Changes | None:
    """
    Return the removal of as many pods from the row's domain as the rule demands; None if one of them must stay.

    Pods that no budget holds come first, of these the ones on the node itself, then pods of the lowest priority.
    """
    name_of = context.view.nodes.name_of
    near = sorted(
        rule.pods_beside(row),
        key=lambda entry: (
            not entry[0].terminating,
            context.must_stay(entry[0]),
            bool(context.held_by(entry[0])),
            entry[1] != row,
            entry[0].priority,
            entry[0].key,
        ),
    )[: int(rule.n_to_remove[row])]
    if any(context.must_stay(pod) for pod, _ in near):
        return None
    return tuple(removal(pod, name_of(at)) for pod, at in near)


def _topology_label(context: ExplainContext, row: int, rule: BlockingRule) -> Change:
    """Return the missing label: the domain with most pods if the rule asks for pods, else the one with the fewest."""
    node_name, column = context.view.nodes.name_of(row), rule.column
    if rule.topology_key == HOSTNAME_KEY or not column.id_by_value:
        return LabelNode(node_name, rule.topology_key, node_name[:_LABEL_LENGTH].rstrip("-."))
    pods = rule.in_domains
    sign = 1 if rule.required_pods is None else -1
    value = min(column.id_by_value, key=lambda v: (sign * int(pods[column.id_by_value[v]]), v))
    return LabelNode(node_name, rule.topology_key, value)

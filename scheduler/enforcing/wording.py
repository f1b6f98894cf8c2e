"""Broken rules in the words of manifests."""

from __future__ import annotations

import numpy as np

from scheduler.enforcing.detecting import Violation, counts_of
from scheduler.enforcing.orders import Telling
from scheduler.enforcing.rules import Question, RuleIndex, Side
from scheduler.explain.wording import namespaces_text, selector_text
from scheduler.model.pods import Pod
from scheduler.state.cluster import ClusterState
from scheduler.state.columns import ABSENT


def told(
    state: ClusterState, index: RuleIndex, violation: Violation, about: str, other: Pod | None
) -> Telling:
    """The violation as it stands, for an event about the pod of uid `about`. O(nodes + pods of the domain)."""
    question = violation.rule.question
    if other is None and question.side is Side.ANTI_AFFINITY:
        other = _other(state, index, violation, about)
    domains = ", ".join(_domain(state, violation.row, key) for key in question.keys)
    return Telling(question.side, question.enforced, rule_text(question), domains, other)


def rule_text(question: Question) -> str:
    """What the rule requires."""
    which = " and ".join(
        f"{selector_text(selector)} in {namespaces_text(rule)}" for rule, selector in question.matcher.parts
    )
    keys = ", ".join(question.keys)
    if question.side is Side.AFFINITY:
        return f"affinity: one more pod with {which} in the same {keys}"
    n_others = question.max_pods - 1
    limit = "no other pod" if n_others == 0 else f"at most {n_others} other pod{'s' if n_others > 1 else ''}"
    return f"anti-affinity: {limit} with {which} in the same {keys}"


def _domain(state: ClusterState, row: int, key: str) -> str:
    column = state.nodes.column(key)
    domain_id = int(column.ids[row])
    if domain_id == ABSENT:
        return f"node {state.nodes.name_of(row)} without {key}"
    return f"{key}={column.value_of(domain_id)}"


def _other(state: ClusterState, index: RuleIndex, violation: Violation, about: str) -> Pod | None:
    """One of the pods that the rule selects in the domain."""
    rule = violation.rule
    ids = state.nodes.column(rule.question.keys[0]).ids[: state.nodes.n_rows]
    live = counts_of(rule)[1].rows(state.nodes.n_rows)
    for row in np.flatnonzero((ids == ids[violation.row]) & (live > 0)).tolist():
        for placed in index.on_row(row):
            uid = placed.pod.uid
            if placed.label_set in rule.selection.label_sets and uid not in (about, violation.uid):
                return placed.pod
    return None

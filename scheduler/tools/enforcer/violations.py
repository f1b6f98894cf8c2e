"""
Finds rules that do not hold, from the counts that the state keeps.

    anti-affinity   broken if the domain of the pod's node has more other pods that the term selects than it allows.
                    Terminating pods do not count, since they leave already.
    affinity        broken if some key's domain has no other pod that all terms select, unless the pod is the first of
                    its kind. Terminating pods count until they are gone.
    Pods that have relaxed an equal anti-affinity rule do not count: it yields to them (`engine.model.fallback`).

A pod is the first of its kind if it matches its own terms, its node has all keys, and no other matching pod that is
not terminating runs anywhere (interpodaffinity/filtering.go, satisfyPodAffinity, 1.36).

Rules of pods on unknown nodes hold, and so does anti-affinity on a node without the topology key.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.engine.model.pods import Pod
from scheduler.engine.model.wording import share_text
from scheduler.engine.state.arrays import Amounts, Mask
from scheduler.engine.state.cluster import ClusterState, PlacedPod
from scheduler.engine.state.columns import ABSENT
from scheduler.engine.state.counts import KeyDomains
from scheduler.engine.state.domain_limits import n_divided
from scheduler.engine.state.label_sets import LabelSet
from scheduler.tools.enforcer.instructions import ViolationReport
from scheduler.tools.enforcer.rules import RuleIndex
from scheduler.tools.explain.declared_rules import DeclaredRule, relaxed_rules_of


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule of one pod. `most`: the most selected pods of its domain, for anti-affinity."""

    pod: Pod
    row: int
    rule: DeclaredRule
    most: int

    @property
    def is_affinity(self) -> bool:
        """Whether the rule is affinity, else anti-affinity."""
        return self.rule.kind == "requiredAffinity"

    @property
    def side(self) -> str:
        """The same as a label of metrics."""
        return "affinity" if self.is_affinity else "anti-affinity"


def violations(state: ClusterState, index: RuleIndex) -> list[Violation]:
    """Return all violations. O(nodes) for each rule that was broken or whose pods or counts have changed since."""
    #: UIDs and rows, and whether the rule selects the pod.
    declaring: dict[DeclaredRule, list[tuple[str, int, bool]]] = {}
    relaxed: dict[DeclaredRule, list[int]] = {}
    for alike in index.alike():
        placed = [(uid, state.placed[uid].row) for uid in alike.uids]
        for rule in alike.rules:
            is_own = selects(state, rule, alike.label_set)
            declaring.setdefault(rule, []).extend((uid, row, is_own) for uid, row in placed)
        for rule in alike.relaxed:
            if selects(state, rule, alike.label_set):
                relaxed.setdefault(rule, []).extend(row for _, row in placed)
    found: list[Violation] = []
    holding: dict[DeclaredRule, Hashable] = {}
    for rule, pods in declaring.items():
        relaxed_rows = relaxed.get(rule._replace(enforced=False), ())
        own = {is_own for _, _, is_own in pods}
        read = tuple(pods), tuple(relaxed_rows), _versions(state, rule)
        if index.holding.get(rule) != read:
            broken = {is_own: _broken(state, rule, relaxed_rows, is_own=is_own) for is_own in own}
            rows = ((uid, row, *broken[is_own]) for uid, row, is_own in pods)
            n_before = len(found)
            found += (
                Violation(state.placed[uid].pod, row, rule, most.item(row))
                for uid, row, at, most in rows
                if at.item(row)
            )
            if len(found) > n_before:
                continue
        holding[rule] = read
    index.holding = holding
    return found


def _versions(state: ClusterState, rule: DeclaredRule) -> tuple[int, ...]:
    """Return the versions of the counts by which a rule that holds may break; a changed node gives all a new one."""
    live = [rule.kind != "requiredAffinity", *([] if rule.shares is None else [False])]
    return tuple(state.counts.selected(rule.matcher, live_only=live_only).version for live_only in live)


def _broken(
    state: ClusterState, rule: DeclaredRule, relaxed: Sequence[int], *, is_own: bool
) -> tuple[Mask, Amounts]:
    """Return the rows where the rule does not hold, and the limit there. `relaxed`: rows of pods that do not count."""
    if rule.kind == "requiredAffinity":
        rows, most = _lacking_match(state, rule, is_own=is_own)
    else:
        rows, most = _above_limit(state, rule, relaxed, is_own=is_own)
    return rows & state.nodes.alive, most


def _above_limit(
    state: ClusterState, rule: DeclaredRule, relaxed: Sequence[int], *, is_own: bool
) -> tuple[Mask, Amounts]:
    """
    Return the rows where a pod's anti-affinity is broken, and the most selected pods of each row's domain.

    `is_own`: whether the rule selects the pod. Shares are of all selected pods, terminating ones included: most of
    these are about to be replaced.
    """
    nodes = state.nodes
    column = nodes.column(rule.topology_key)
    live = state.counts.selected(rule.matcher, live_only=True)
    staying = live.per_domain(KeyDomains(column))
    if relaxed:
        staying = column.per_domain(live.by_row - np.bincount(relaxed, minlength=nodes.n_rows))
    n_selected = 0
    if rule.shares is not None:
        n_selected = n_divided(state.counts.selected(rule.matcher).by_row, nodes.alive) + (not is_own)
    most = rule.most_per_domain(column, n_selected)[staying.ids]
    return rule.is_broken(staying.on_nodes(), most, is_own=is_own) & (staying.ids != ABSENT), most


def _lacking_match(state: ClusterState, rule: DeclaredRule, *, is_own: bool) -> tuple[Mask, Amounts]:
    """
    Return the rows where required affinity is broken, and 1 for each as its limit.

    `is_own`: whether the rule selects the pods that declare it.
    """
    nodes = state.nodes
    every = state.counts.selected(rule.matcher)
    is_lonely, has_keys = np.zeros(nodes.n_rows, dtype=np.bool_), np.ones(nodes.n_rows, dtype=np.bool_)
    for key in rule.keys:
        column = nodes.column(key)
        is_lonely |= rule.is_broken(every.per_domain(KeyDomains(column)).on_nodes(), is_own=is_own)
        has_keys &= column.ids[: nodes.n_rows] != ABSENT
    if is_own and n_staying(state, rule) <= 1:
        is_lonely &= ~has_keys
    return is_lonely, np.ones(nodes.n_rows, dtype=np.int64)


def selects(state: ClusterState, rule: DeclaredRule, label_set: LabelSet) -> bool:
    """Return whether the rule selects the pods with these labels."""
    return state.label_sets.matches(rule.matcher, label_set)


def staying_in_domain(state: ClusterState, violation: Violation) -> Iterator[PlacedPod]:
    """Yield the pods that count against an anti-affinity rule where it is broken. O(nodes + pods of the domain)."""
    rule, nodes = violation.rule, state.nodes
    yielding = rule._replace(enforced=False)
    ids = nodes.column(rule.topology_key).ids[: nodes.n_rows]
    live = state.counts.selected(rule.matcher, live_only=True).by_row
    for row in np.flatnonzero((ids == ids[violation.row]) & (live > 0)).tolist():
        for placed in state.placed_on(row):
            is_relaxed = yielding in relaxed_rules_of(placed.pod, rule.matcher.exempt)
            if selects(state, rule, placed.label_set) and not placed.pod.terminating and not is_relaxed:
                yield placed


def n_staying(state: ClusterState, rule: DeclaredRule, gone: Sequence[int] = ()) -> int:
    """
    Return how many selected pods stay on nodes with a key of the rule; the largest number of any key.

    Terminating pods do not stay. `gone`: the rows of pods not to count. O(nodes).
    """
    nodes = state.nodes
    counts = state.counts.selected(rule.matcher, live_only=True).by_row
    if gone:
        counts = counts - np.bincount(gone, minlength=nodes.n_rows)
    return max(int(counts[nodes.column(key).ids[: nodes.n_rows] != ABSENT].sum()) for key in rule.keys)


def violation_report(state: ClusterState, violation: Violation, other: Pod | None = None) -> ViolationReport:
    """Return the violation as text, with a pod that breaks it if none is given. O(nodes + pods of the domain)."""
    rule, pod = violation.rule, violation.pod
    if other is None and not violation.is_affinity:
        staying = (placed.pod for placed in staying_in_domain(state, violation))
        other = next((each for each in staying if each.uid != pod.uid), None)
    domains = ", ".join(_domain_text(state, violation.row, key) for key in rule.keys)
    return ViolationReport(violation.side, rule.enforced, rule_text(rule), domains, other, pod.namespace)


def rule_text(rule: DeclaredRule) -> str:
    """Return what the rule requires."""
    which, keys = f"{rule.matcher.selects} in {rule.matcher.namespaces}", ", ".join(rule.keys)
    if rule.kind == "requiredAffinity":
        return f"affinity: one more pod with {which} in the same {keys}"
    if rule.shares is not None:
        return f"anti-affinity: at most {share_text(rule.shares)} of the pods with {which} in the same {keys}"
    n_others = rule.limit - 1
    limit = "no other pod" if n_others == 0 else f"at most {n_others} other pod{'s' if n_others > 1 else ''}"
    return f"anti-affinity: {limit} with {which} in the same {keys}"


def _domain_text(state: ClusterState, row: int, key: str) -> str:
    column = state.nodes.column(key)
    domain_id = int(column.ids[row])
    if domain_id == ABSENT:
        return f"node {state.nodes.name_of(row)} without {key}"
    return f"{key}={column.value_of(domain_id)}"

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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from scheduler.engine.model.pods import Pod
from scheduler.engine.model.terms import Shares
from scheduler.engine.model.wording import namespaces_text, selector_text, share_text
from scheduler.engine.state.arrays import Amounts, Counts, Mask, Rows
from scheduler.engine.state.cluster import ClusterState, PlacedPod
from scheduler.engine.state.columns import ABSENT
from scheduler.engine.state.counts import PodCounts
from scheduler.engine.state.domain_limits import most_per_domain, n_divided
from scheduler.tools.enforcer.instructions import ViolationReport
from scheduler.tools.enforcer.rules import Rule, RuleIndex, RuleSpec, Side


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule of one pod. `most`: the most selected pods of its domain, for anti-affinity."""

    uid: str
    row: int
    rule: Rule
    most: int = 1


#: Versions of everything that a rule's violations depend on. `Rule.selects_itself` needs none: when it changes, the
#: counts change too.
_Stamp = tuple[int, int, int, int, int]


class ViolationDetector:
    """Finds broken rules. A rule is checked again only when something that it reads has changed."""

    def __init__(self, state: ClusterState, index: RuleIndex) -> None:
        self._state = state
        self._index = index
        self._violations: WeakKeyDictionary[Rule, tuple[_Stamp, tuple[Violation, ...]]] = WeakKeyDictionary()

    def violations(self) -> list[Violation]:
        """
        Return every violation of every rule.

        Cost: 1 µs for an unchanged rule, else O(nodes).
        """
        return [violation for rule in self._index.rules() for violation in self._cached(rule)]

    def _cached(self, rule: Rule) -> tuple[Violation, ...]:
        every, live = counts_of(self._state, rule)
        stamp = (
            rule.version,
            rule.relaxed.version,
            every.version,
            live.version,
            self._state.log.restarted_at,
        )
        cached = self._violations.get(rule)
        if cached is not None and cached[0] == stamp:
            return cached[1]
        found = tuple(self._violations_of(rule, every, live))
        self._violations[rule] = (stamp, found)
        return found

    def _violations_of(self, rule: Rule, every: PodCounts, live: PodCounts) -> Iterator[Violation]:
        rows = np.fromiter(rule.uids_by_row, dtype=np.intp)
        most = self._most(rule, rows, every)
        if rule.spec.side is Side.AFFINITY:
            broken = self._lacks_match(rule, rows, every, live)
        else:
            broken = self._exceeds_limit(rule, rows, live, most)
        is_broken = broken & self._state.nodes.alive[rows]
        for row, limit in zip(rows[is_broken].tolist(), most[is_broken].tolist(), strict=True):
            for uid in rule.uids_by_row[row]:
                yield Violation(uid, row, rule, limit)

    def _exceeds_limit(self, rule: Rule, rows: Rows, live: PodCounts, most: Amounts) -> Mask:
        (key, *_) = rule.spec.keys
        column, counted = self._state.nodes.column(key), staying_by_row(rule, live, self._state)
        selected = column.per_domain(counted).on_nodes()[rows]
        exceeds: Mask = selected - int(rule.selects_itself) >= most
        if isinstance(rule.spec.max_pods, Shares):
            exceeds &= column.ids[rows] != ABSENT
        return exceeds

    def _most(self, rule: Rule, rows: Rows, every: PodCounts) -> Amounts:
        """
        Return the most selected pods of each row's domain: int64 array of shape (rows,).

        Shares are of all selected pods, terminating ones included: most of these are about to be replaced.
        """
        limit = rule.spec.max_pods
        if isinstance(limit, Shares):
            column = self._state.nodes.column(rule.spec.keys[0])
            n_selected = n_divided(every.by_row, self._state.nodes.alive) + int(not rule.selects_itself)
            return most_per_domain(limit, column, n_selected)[column.ids[rows]]
        return np.full(len(rows), limit, dtype=np.int64)

    def _lacks_match(self, rule: Rule, rows: Rows, every: PodCounts, live: PodCounts) -> Mask:
        nodes = self._state.nodes
        lonely = np.zeros(len(rows), dtype=np.bool_)
        has_keys = np.ones(len(rows), dtype=np.bool_)
        for key in rule.spec.keys:
            column = nodes.column(key)
            lonely |= column.per_domain(every.by_row).on_nodes()[rows] <= int(rule.selects_itself)
            has_keys &= column.ids[rows] != ABSENT
        if rule.selects_itself and n_staying(self._state, rule, live) <= 1:
            lonely &= ~has_keys
        return lonely


def staying_in_domain(state: ClusterState, violation: Violation) -> Iterator[PlacedPod]:
    """Yield the pods that count against an anti-affinity rule where it is broken. O(nodes + pods of the domain)."""
    rule, nodes = violation.rule, state.nodes
    ids = nodes.column(rule.spec.keys[0]).ids[: nodes.n_rows]
    live = counts_of(state, rule)[1].by_row
    for row in np.flatnonzero((ids == ids[violation.row]) & (live > 0)).tolist():
        for placed in state.placed_on(row):
            is_relaxed = placed.pod.uid in rule.relaxed.row_by_uid
            if rule.selects(placed.label_set) and not placed.pod.terminating and not is_relaxed:
                yield placed


def staying_by_row(rule: Rule, live: PodCounts, state: ClusterState) -> Counts:
    """Return per row the pods that count against an anti-affinity rule: int32 array of shape (n_rows,)."""
    if not rule.relaxed.row_by_uid:
        return live.by_row
    counted = live.by_row.copy()
    for uid, row in rule.relaxed.row_by_uid.items():
        counted[row] -= rule.selects(state.placed[uid].label_set)
    return counted


def counts_of(state: ClusterState, rule: Rule) -> tuple[PodCounts, PodCounts]:
    """Return the counts of pods that the rule selects: all, and only those not terminating."""
    matcher = rule.spec.matcher
    return state.counts.selected(matcher), state.counts.selected(matcher, live_only=True)


def n_staying(state: ClusterState, rule: Rule, live: PodCounts, gone: Sequence[int] = ()) -> int:
    """
    Return how many selected pods are not terminating and are on nodes with a key; the largest number of any key.

    `live`: the rule's counts of pods that are not terminating. `gone`: the rows of pods not to count. O(nodes).
    """
    nodes = state.nodes
    counts = live.by_row
    if gone:
        counts = counts - np.bincount(gone, minlength=nodes.n_rows)
    return max(int(counts[nodes.column(key).ids[: nodes.n_rows] != ABSENT].sum()) for key in rule.spec.keys)


def violation_report(
    state: ClusterState, violation: Violation, about: str, other: Pod | None
) -> ViolationReport:
    """Return the violation as text, for an event about the pod with UID `about`. O(nodes + pods of the domain)."""
    spec = violation.rule.spec
    if other is None and spec.side is Side.ANTI_AFFINITY:
        staying = (placed.pod for placed in staying_in_domain(state, violation))
        other = next((pod for pod in staying if pod.uid not in (about, violation.uid)), None)
    domains = ", ".join(_domain_text(state, violation.row, key) for key in spec.keys)
    declared_in = state.placed[violation.uid].pod.namespace
    return ViolationReport(spec.side, spec.enforced, rule_text(spec), domains, other, declared_in)


def rule_text(spec: RuleSpec) -> str:
    """Return what the rule requires."""
    which = " and ".join(
        f"{selector_text(selector)} in {namespaces_text(rule.names, rule.selector)}"
        for rule, selector in spec.matcher.parts
    )
    keys = ", ".join(spec.keys)
    if spec.side is Side.AFFINITY:
        return f"affinity: one more pod with {which} in the same {keys}"
    if isinstance(spec.max_pods, Shares):
        return (
            f"anti-affinity: at most {share_text(spec.max_pods)} of the pods with {which} in the same {keys}"
        )
    n_others = spec.max_pods - 1
    limit = "no other pod" if n_others == 0 else f"at most {n_others} other pod{'s' if n_others > 1 else ''}"
    return f"anti-affinity: {limit} with {which} in the same {keys}"


def _domain_text(state: ClusterState, row: int, key: str) -> str:
    column = state.nodes.column(key)
    domain_id = int(column.ids[row])
    if domain_id == ABSENT:
        return f"node {state.nodes.name_of(row)} without {key}"
    return f"{key}={column.value_of(domain_id)}"

"""
Gathers the rules that pods declare, in pieces of bounded size, and says of each how full its domains are.

The state may change between two pieces: a pod that comes or goes meanwhile is counted or not. Every number about
domains is computed from the columns in one piece.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from scheduler.engine.model.pods import Pod, PodSpec
from scheduler.engine.model.wording import share_text
from scheduler.engine.queueing.queued_pod import QueuedPod
from scheduler.engine.state.batches import Pieces, batches
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.label_sets import LabelSet
from scheduler.tools.explain.declared_rules import (
    NO_DEFAULTS,
    DeclaredRule,
    Defaults,
    has_rules,
    relaxed_rules_of,
    rules_of,
)
from scheduler.tools.explain.formats.explanation import Document, JsonStruct
from scheduler.tools.page.now import ComponentPods, components
from scheduler.tools.page.occupancy import DomainState, Occupancy, RuleRecord, occupancy

#: Rules with a summary; the ones that most pods declare come first.
MAX_RULES: Final = 1000
_ID_BYTES: Final = 8


class RuleSummary(JsonStruct, frozen=True, kw_only=True):
    """
    One rule and the state of its domains. `limit`, `nodes`: see `DeclaredRule`. `share`: its shares as text, if any.
    `n_pods`: pods that it counts.

    `n_full`: domains without room, or, for affinity, without a pod that it requires. `n_broken`: domains where it does
    not hold. `n_declaring`: running pods that declare it; `n_pending`: pods without a node that do.
    """

    id: str
    rule: str
    selects: str
    namespaces: str
    topology_key: str
    limit: int
    share: str = ""
    is_hard: bool
    min_domains: int
    nodes: str
    n_domains: int
    n_pods: int
    n_declaring: int
    n_pending: int
    n_full: int
    n_broken: int


class Rules(Document, frozen=True, kw_only=True):
    """All rules: broken ones first, then rules of pending pods. `age_seconds`: since they were gathered."""

    kind: str = "Rules"
    rules: tuple[RuleSummary, ...]
    n_more: int
    age_seconds: float


@dataclass(frozen=True, slots=True)
class Survey:
    """The records of all rules by id, the summaries in the order to show them, and the pods of our components."""

    records: dict[str, RuleRecord]
    summaries: Sequence[RuleSummary]
    n_more: int
    components: tuple[ComponentPods, ...]


@dataclass(slots=True)
class _Alike:
    """Pods of equal spec and labels, and so of the same rules, those of owners too: one of them, and where all are."""

    pod: Pod
    #: None for pending pods, which have no rows.
    label_set: LabelSet | None
    n_by_row: Counter[int] = field(default_factory=Counter)
    waiting: list[str] = field(default_factory=list)


def survey_pieces(
    state: ClusterState,
    pending: Iterable[QueuedPod],
    exempt_namespaces: frozenset[str] = frozenset(),
    defaults: Defaults = NO_DEFAULTS,
) -> Pieces[Survey]:
    """Return the survey, in steps of about 1 ms that yield. O(pods), and `occupancy` for each rule."""
    records: dict[DeclaredRule, RuleRecord] = {}
    gathered = yield from _gathered(state, pending, defaults)
    for few in batches(gathered):
        for alike in few:
            for rule in rules_of(alike.pod, state, exempt_namespaces, defaults):
                if rule not in records:
                    records[rule] = RuleRecord(rule)
                _add(records[rule], alike, state)
        yield
    for alike in gathered:
        for relaxed in relaxed_rules_of(alike.pod, exempt_namespaces):
            record = records.get(relaxed.plain)
            if record is not None and _selects(record.rule, alike, state):
                record.relaxed.update(alike.n_by_row)
    ranked = sorted(
        records.values(), key=lambda one: (not one.rule.is_hard, -one.n_declaring - len(one.pending))
    )
    by_id = {rule_id(record.rule): record for record in ranked[:MAX_RULES]}
    summaries: list[RuleSummary] = []
    for identifier, record in by_id.items():
        summaries.append(summary_of(identifier, record, occupancy(record, state)))
        yield
    summaries.sort(
        key=lambda one: (
            -one.n_broken, not one.is_hard, -one.n_pending, -one.n_full, one.topology_key, one.selects, one.nodes
        )
    )  # fmt: skip
    return Survey(by_id, tuple(summaries), len(ranked) - len(by_id), components(state))


def _gathered(
    state: ClusterState, pending: Iterable[QueuedPod], defaults: Defaults
) -> Pieces[Sequence[_Alike]]:
    """Return the pods that have rules, in steps that yield, one entry for all of equal spec and labels."""
    found: dict[tuple[PodSpec, object], _Alike] = {}
    for part in state.placed.parts():
        for few in batches(list(part.values())):
            for placed in few:
                if has_rules(placed.pod, defaults):
                    key = (placed.pod.spec, placed.label_set)
                    alike = found.get(key) or found.setdefault(key, _Alike(placed.pod, placed.label_set))
                    alike.n_by_row[placed.row] += 1
            yield
    for waiting in batches(list(pending)):
        for queued in waiting:
            if has_rules(queued.pod, defaults):
                labels = frozenset(queued.pod.labels.items())
                found.setdefault((queued.pod.spec, labels), _Alike(queued.pod, None)).waiting.append(
                    queued.uid
                )
        yield
    return list(found.values())


def _add(record: RuleRecord, alike: _Alike, state: ClusterState) -> None:
    """Add the pods, all of which declare the rule, to the rule's record."""
    record.pending.update(dict.fromkeys(alike.waiting))
    if not record.rule.is_hard:
        record.n_soft += alike.n_by_row.total()
    elif _selects(record.rule, alike, state):
        record.selected.update(alike.n_by_row)
    else:
        record.others.update(alike.n_by_row)


def _selects(rule: DeclaredRule, alike: _Alike, state: ClusterState) -> bool:
    """Return whether the rule selects these pods; False for pending ones."""
    return alike.label_set is not None and state.label_sets.matches(rule.matcher, alike.label_set)


def rule_id(rule: DeclaredRule) -> str:
    """Return the id of the rule, the same in every process."""
    spelled = repr(
        [
            rule.kind,
            rule.topology_key,
            rule.limit,
            rule.is_hard,
            rule.min_domains,
            [(sorted(names.names), names.selector, selector) for names, selector in rule.matcher.parts],
            rule.node_rule,
            rule.tolerations,
            rule.yields,
            *(() if rule.shares is None else (rule.shares,)),
        ]
    )
    return hashlib.blake2b(spelled.encode(), digest_size=_ID_BYTES).hexdigest()


def summary_of(identifier: str, record: RuleRecord, found: Occupancy) -> RuleSummary:
    """Return the summary of the rule with these domains."""
    rule = record.rule
    is_full = (found.states == DomainState.FULL) | (found.states == DomainState.CLOSED)
    return RuleSummary(
        id=identifier,
        rule=rule.kind,
        selects=rule.matcher.selects,
        namespaces=rule.matcher.namespaces,
        topology_key=rule.topology_key,
        limit=rule.limit,
        share="" if rule.shares is None else share_text(rule.shares),
        is_hard=rule.is_hard,
        min_domains=rule.min_domains,
        nodes=rule.nodes,
        n_domains=len(found.ids),
        n_pods=int(found.n_pods.sum()),
        n_declaring=record.n_declaring,
        n_pending=len(record.pending),
        n_full=int(np.count_nonzero(is_full)),
        n_broken=int(np.count_nonzero(found.states == DomainState.BROKEN)),
    )

"""
Gathers the rules that pods declare, in pieces of bounded size, and says of each how full its domains are.

The state may change between two pieces: a pod that comes or goes meanwhile is counted or not. Every number about
domains is computed from the columns in one piece.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import numpy as np

from scheduler.explain.explanation import API_VERSION, JsonStruct
from scheduler.model.pods import PodSpec
from scheduler.overview.now import Component, components
from scheduler.overview.occupancy import Declaring, DomainState, Occupancy, occupancy
from scheduler.overview.rules import DeclaredRule, declared_rules, has_rules
from scheduler.queueing.queued_pod import QueuedPod
from scheduler.state.cluster import ClusterState, PlacedPod
from scheduler.state.existing_terms import ExistingTerms
from scheduler.state.label_sets import LabelSet

#: Rules with a summary; the ones that most pods declare come first.
MAX_RULES: Final = 1000
#: Pods per piece, and distinct specs.
_PODS_PER_PIECE: Final = 1000
_SPECS_PER_PIECE: Final = 20
_ID_BYTES: Final = 8


class RuleSummary(JsonStruct, frozen=True, kw_only=True):
    """
    One rule and the state of its domains. `limit`: see `DeclaredRule`. `n_pods`: pods that it counts.

    `n_full`: domains without room, or, for affinity, without a pod that it requires. `n_broken`: domains where it does
    not hold. `n_declaring`: running pods that declare it; `n_pending`: pods without a node that do.
    """

    id: str
    rule: str
    selects: str
    namespaces: str
    topology_key: str
    limit: int
    is_hard: bool
    n_domains: int
    n_pods: int
    n_declaring: int
    n_pending: int
    n_full: int
    n_broken: int


class Rules(JsonStruct, frozen=True, kw_only=True):
    """All rules: broken ones first, then those that pending pods declare. `age_seconds`: since they were gathered."""

    api_version: str = API_VERSION
    kind: str = "Rules"
    rules: tuple[RuleSummary, ...]
    n_more: int
    age_seconds: float


@dataclass(slots=True)
class RuleRecord:
    """A rule, and the pods that declare it."""

    rule: DeclaredRule
    selected: Counter[int] = field(default_factory=Counter)
    others: Counter[int] = field(default_factory=Counter)
    #: UIDs of pending pods.
    pending: dict[str, None] = field(default_factory=dict)

    @property
    def declaring(self) -> Declaring:
        """The running pods that declare it."""
        return Declaring(self.selected, self.others)

    @property
    def n_declaring(self) -> int:
        """The number of them."""
        return self.selected.total() + self.others.total()


@dataclass(frozen=True, slots=True)
class Survey:
    """The records of all rules by id, the summaries in the order to show them, and the pods of our components."""

    records: dict[str, RuleRecord]
    summaries: Sequence[RuleSummary]
    n_more: int
    components: tuple[Component, ...]


def survey_pieces(
    state: ClusterState, pending: Iterable[QueuedPod], exempt_namespaces: frozenset[str] = frozenset()
) -> Generator[None, None, Survey]:
    """
    Yield after each piece of work, about 0.5 ms, and return the survey.

    Cost: 0.3 µs per placed pod, 1 µs per pending one, 20 µs per distinct spec and labels, and `occupancy` per rule.
    """
    records: dict[DeclaredRule, RuleRecord] = {}
    yield from _add_placed(state, exempt_namespaces, records)
    yield from _add_pending(list(pending), state.terms, exempt_namespaces, records)
    ranked = sorted(records.values(), key=lambda record: -(record.n_declaring + len(record.pending)))
    by_id = {rule_id(record.rule): record for record in ranked[:MAX_RULES]}
    summaries: list[RuleSummary] = []
    for identifier, record in by_id.items():
        found = occupancy(record.rule, record.declaring, state)
        summaries.append(summary_of(identifier, record, found))
        yield
    summaries.sort(
        key=lambda one: (-one.n_broken, -one.n_pending, -one.n_full, one.topology_key, one.selects)
    )
    return Survey(by_id, tuple(summaries), len(ranked) - len(by_id), components(state))


def _add_placed(
    state: ClusterState, exempt_namespaces: frozenset[str], records: dict[DeclaredRule, RuleRecord]
) -> Iterator[None]:
    """Pods of equal spec and labels have the same rules: count their rows first."""
    rows: dict[tuple[PodSpec, LabelSet], Counter[int]] = {}
    for part in state.placed.parts():
        pods = iter(list(part.values()))
        while piece := list(islice(pods, _PODS_PER_PIECE)):
            _count_rows(piece, rows)
            yield
    for number, ((spec, label_set), n_by_row) in enumerate(rows.items()):
        for rule in declared_rules(spec, label_set.labels, state.terms, exempt_namespaces):
            record = _record(records, rule)
            is_selected = state.label_sets.matches(rule.matcher, label_set)
            (record.selected if is_selected else record.others).update(n_by_row)
        if number % _SPECS_PER_PIECE == 0:
            yield


def _count_rows(placed_pods: Iterable[PlacedPod], rows: dict[tuple[PodSpec, LabelSet], Counter[int]]) -> None:
    for placed in placed_pods:
        spec = placed.pod.spec
        if has_rules(spec):
            key = (spec, placed.label_set)
            found = rows.get(key)
            if found is None:
                found = rows[key] = Counter()
            found[placed.row] += 1


def _add_pending(
    pending: Iterable[QueuedPod],
    terms: ExistingTerms,
    exempt_namespaces: frozenset[str],
    records: dict[DeclaredRule, RuleRecord],
) -> Iterator[None]:
    uids: dict[tuple[PodSpec, frozenset[tuple[str, str]]], list[str]] = {}
    pods = iter(pending)
    while piece := list(islice(pods, _PODS_PER_PIECE)):
        for queued in piece:
            if has_rules(queued.pod.spec):
                key = (queued.pod.spec, frozenset(queued.pod.labels.items()))
                uids.setdefault(key, []).append(queued.uid)
        yield
    for number, ((spec, labels), declaring) in enumerate(uids.items()):
        for rule in declared_rules(spec, dict(labels), terms, exempt_namespaces):
            _record(records, rule).pending.update(dict.fromkeys(declaring))
        if number % _SPECS_PER_PIECE == 0:
            yield


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
        selects=rule.selects,
        namespaces=rule.namespaces,
        topology_key=rule.topology_key,
        limit=rule.limit,
        is_hard=rule.is_hard,
        n_domains=len(found.ids),
        n_pods=int(found.n_pods.sum()),
        n_declaring=record.n_declaring,
        n_pending=len(record.pending),
        n_full=int(np.count_nonzero(is_full)),
        n_broken=int(np.count_nonzero(found.states == DomainState.BROKEN)),
    )


def _record(records: dict[DeclaredRule, RuleRecord], rule: DeclaredRule) -> RuleRecord:
    record = records.get(rule)
    if record is None:
        record = records[rule] = RuleRecord(rule)
    return record

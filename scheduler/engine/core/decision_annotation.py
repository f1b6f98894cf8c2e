"""
The record of a decision, which a bound pod has as an annotation. It is written with the bind itself.

    {"v":1,"evaluated":5000,"feasible":4980,
     "top":[{"node":"n7","total":512,"scores":{"NodeResourcesFit":96,...}},...],   the chosen node first
     "rejected":{"node(s) had untolerated taint(s)":20},
     "evicted":["default/batch-1","2 of other namespaces"],                        only if pods were evicted for it
     "relaxed":["podAntiAffinity by topology.kubernetes.io/zone"]}         required rules that counted as preferred

`scores` are weighted, so that they add up to `total`; plugins that gave 0 are left out. `rejected` counts nodes by
reason, as the text of an event does. A single feasible node is not scored. `relaxed` is left out if no rule was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from scheduler.engine.core.decide import ScheduleResult
from scheduler.engine.core.node_scores import NodeScores
from scheduler.engine.model.annotations import DECISION_ANNOTATION
from scheduler.engine.model.fallback import RELAXED, RelaxedRule, mark
from scheduler.engine.state.node_table import NodeTable

#: The longest record; if it is too long, nodes are left out, the worst first, and then the reasons.
RECORD_LIMIT_BYTES: Final = 1024

_VERSION: Final = 1
_N_TOP: Final = 3
#: Evicted pods that a record names.
_SHOWN_VICTIMS: Final = 10
_ENCODER: Final = msgspec.json.Encoder()


class RankedNode(msgspec.Struct, frozen=True):
    """One node's weighted scores by plugin, and their sum."""

    node: str
    total: int
    scores: Mapping[str, int] = {}


class DecisionRecord(msgspec.Struct, frozen=True):
    """The annotation's value; the module describes its fields."""

    v: int
    evaluated: int
    feasible: int
    top: tuple[RankedNode, ...] = ()
    rejected: Mapping[str, int] = {}
    relaxed: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    evicted: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True, slots=True)
class DecisionAnnotations:
    """Makes the annotations of pods that are bound. `records_decisions`: whether the record is one of them."""

    nodes: NodeTable
    records_decisions: bool = False

    def of(
        self, result: ScheduleResult, rules: Sequence[RelaxedRule] = (), evicted: Sequence[str] = ()
    ) -> dict[str, str]:
        """Return the annotations; call it before the pod is assumed: that changes scores. `evicted`: namespace/name."""
        annotations = {RELAXED: mark(rules)} if rules else {}
        if self.records_decisions:
            names = [relaxed.rule for relaxed in rules]
            annotations[DECISION_ANNOTATION] = decision_record(result, self.nodes, names, evicted)
        return annotations


def decision_record(
    result: ScheduleResult, nodes: NodeTable, relaxed: Sequence[str] = (), evicted: Sequence[str] = ()
) -> str:
    """Return the record as JSON of at most `RECORD_LIMIT_BYTES`; call it before the next stimulus."""
    top = ranked_nodes(result.scores, nodes, _N_TOP)
    rejected = dict(sorted(result.scores.filtered.reason_counts().items()))
    names = tuple(relaxed) or msgspec.UNSET
    gone = tuple(evicted[:_SHOWN_VICTIMS]) or msgspec.UNSET
    while True:
        record = DecisionRecord(_VERSION, result.n_evaluated, result.n_feasible, top, rejected, names, gone)
        encoded = _ENCODER.encode(record)
        if len(encoded) <= RECORD_LIMIT_BYTES:
            return encoded.decode()
        if top:
            top = top[:-1]
        elif rejected:
            rejected = {}
        else:
            # The mark has the relaxed rules too.
            names = gone = msgspec.UNSET


def ranked_nodes(node_scores: NodeScores, nodes: NodeTable, n_most: int) -> tuple[RankedNode, ...]:
    """Return the chosen node and then the best others, at most `n_most` nodes in all."""
    ranked = []
    for row, total in node_scores.top_nodes(n_most):
        scores = {}
        for name, weight, unweighted in node_scores.by_plugin:
            points = weight * unweighted.item(row)
            if points:
                scores[name] = points
        ranked.append(RankedNode(nodes.name_of(row), total, scores))
    return tuple(ranked)


def is_of_bind(record: DecisionRecord, node_name: str) -> bool:
    """Return whether the record may be that of a bind to the node. It proves nothing: users may write it."""
    return bool(node_name) and (not record.top or record.top[0].node == node_name)


def read_record(text: str) -> DecisionRecord | None:
    """Return the record in an annotation; None if it is malformed, of another version, or too long."""
    if len(text) > RECORD_LIMIT_BYTES:
        return None
    try:
        record = msgspec.json.decode(text, type=DecisionRecord)
    except (msgspec.DecodeError, UnicodeError):
        return None
    return record if record.v == _VERSION else None

"""
TaintToleration: a node's taints keep pods off that do not tolerate them.

Filter: a node with a NoSchedule or NoExecute taint that no toleration of the pod covers is refused.
Score: the fewer PreferNoSchedule taints without a toleration the better; only tolerations without an effect, or with
that effect, count here.

Source: plugins/tainttoleration/taint_toleration.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler.framework.events import Action, Hint, Registration, Resource, never
from scheduler.framework.interface import Candidate, Feasible, PreFiltered, PreScored, Rescored
from scheduler.framework.normalizing import MAX_NODE_SCORE, default_normalized
from scheduler.framework.verdicts import Refusals, unresolvable
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod
from scheduler.model.terms import Taint, Toleration
from scheduler.state.arrays import Amounts, Mask, Scores
from scheduler.state.node_masks import HARD_EFFECTS, untolerated
from scheduler.state.snapshot import Snapshot

NAME: Final = "TaintToleration"

NOT_TOLERATED: Final = unresolvable("node(s) had untolerated taint(s)")

_SOFT_EFFECTS: Final = ("PreferNoSchedule",)

#: Distinct toleration lists whose counts are kept: 8 bytes per node each.
_KEPT_COUNTS: Final = 256


class TaintToleration:
    """Taints, hard and soft."""

    name = NAME

    def __init__(self) -> None:
        #: By tolerations: the version of the nodes, their number, and soft taints not tolerated, per row.
        self._counts: OrderedDict[tuple[Toleration, ...], tuple[int, int, _SoftTaints]] = OrderedDict()

    def registrations(self) -> Sequence[Registration]:
        """Nodes that come or change taints; tolerations that the pod is given."""
        return (
            Registration(
                Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, _hint_after_node_change, never
            ),
            Registration(Resource.POD, Action.UPDATE_POD_TOLERATION, _hint_after_toleration_change, never),
        )

    def prefilter(self, candidate: Candidate, snapshot: Snapshot) -> PreFiltered:
        """Every pod has something to tolerate or not."""
        return _TaintFilter(snapshot.tolerated(candidate.pod.spec.tolerations))

    def prescore(self, candidate: Candidate, snapshot: Snapshot, feasible: Feasible) -> PreScored:
        """Never skipped: where no taint counts, every node gets 100."""
        return _TaintScorer(self._soft_counts(candidate.pod.spec.tolerations, snapshot), feasible)

    def _soft_counts(self, tolerations: tuple[Toleration, ...], snapshot: Snapshot) -> _SoftTaints:
        """Soft taints that are not tolerated. O(1) until nodes change."""
        nodes = snapshot.nodes
        kept = self._counts.get(tolerations)
        if kept is not None and kept[:2] == (nodes.version, nodes.n_rows):
            self._counts.move_to_end(tolerations)
            return kept[2]
        per_row = intolerable_counts(nodes.taint_sets, tolerations)[nodes.taint_set]
        counts = _SoftTaints(
            per_row, None if per_row.any() else np.full(len(per_row), MAX_NODE_SCORE, dtype=np.int16)
        )
        self._counts[tolerations] = (nodes.version, nodes.n_rows, counts)
        self._counts.move_to_end(tolerations)
        if len(self._counts) > _KEPT_COUNTS:
            self._counts.popitem(last=False)
        return counts


@dataclass(frozen=True, slots=True)
class _SoftTaints:
    """Arrays of shape (n_rows,): taints that count, and the scores where there are none, which is usual."""

    per_row: Amounts
    all_best: Scores | None


class _TaintFilter:
    """Nodes all of whose hard taints are tolerated."""

    def __init__(self, tolerated: Mask) -> None:
        self._tolerated = tolerated

    def fits(self) -> Mask:
        """The mask itself, not to be written to."""
        return self._tolerated

    def refusals(self) -> Refusals:
        """One reason, which names no taint."""
        return Refusals.by_rule([(self._tolerated, NOT_TOLERATED)])


class _TaintScorer:
    """Soft taints that are not tolerated, turned around."""

    def __init__(self, counts: _SoftTaints, feasible: Feasible) -> None:
        self._counts = counts
        self._feasible = feasible

    def raw(self) -> Amounts:
        """Taints per node: int64 array of shape (n_rows,)."""
        return self._counts.per_row

    def normalized(self, raw: Scores) -> Scores:
        """The most taints give 0, none gives 100."""
        if self._counts.all_best is not None:
            return self._counts.all_best
        return default_normalized(raw, self._feasible, reverse=True)

    def again(self, rows: Sequence[int]) -> Rescored:
        """See `NodeScorer`: pods bring no taints, and another node may be the worst of the feasible ones."""
        return self.normalized(self._counts.per_row), rows


def intolerable_counts(taint_sets: Sequence[tuple[Taint, ...]], tolerations: Sequence[Toleration]) -> Amounts:
    """
    PreferNoSchedule taints that no toleration covers, per taint list: int64 array of shape (n_taint_sets,).

    A toleration of that taint for another effect alone does not cover it: tolerations match effects.
    """
    return np.array([len(untolerated(taints, tolerations, _SOFT_EFFECTS)) for taints in taint_sets], np.int64)


def _hint_after_node_change(pod: Pod, old: Node | None, new: Node | None) -> Hint:
    """Source: taint_toleration.go, isSchedulableAfterNodeChange (kubernetes 1.36)."""
    if new is None or _keeps_off(new, pod):
        return Hint.SKIP
    return Hint.QUEUE if old is None or _keeps_off(old, pod) else Hint.SKIP


def _keeps_off(node: Node, pod: Pod) -> bool:
    return bool(untolerated(node.taints, pod.spec.tolerations, HARD_EFFECTS))


def _hint_after_toleration_change(pod: Pod, _old: Pod | None, new: Pod | None) -> Hint:
    """Source: taint_toleration.go, isSchedulableAfterPodTolerationChange (kubernetes 1.36)."""
    return Hint.QUEUE if new is not None and new.uid == pod.uid else Hint.SKIP

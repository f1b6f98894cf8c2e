"""
TaintToleration: a pod fits only on nodes whose taints it tolerates.

Filter: a node with an untolerated NoSchedule or NoExecute taint is refused.
Score: the fewer untolerated PreferNoSchedule taints the better; only tolerations of this effect, or without an effect,
count here.

Source: plugins/tainttoleration/taint_toleration.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final

import numpy as np

from scheduler.engine.framework.events import (
    Action,
    ClusterEventWithHint,
    Hint,
    Resource,
    after_own_update,
    queue_if,
)
from scheduler.engine.framework.explaining import ExplainContext, PluginExplanation, Repair
from scheduler.engine.framework.interface import (
    MAX_NODE_SCORE,
    FeasibleNodes,
    FilterPlugin,
    FinalScores,
    PodContext,
    PreFiltered,
    PreScored,
    RawScores,
    RuleFilter,
    ScorePlugin,
    default_normalized,
)
from scheduler.engine.framework.status import unresolvable
from scheduler.engine.model.changes import Change, Changes, RemoveTaint, TolerateTaint, Uncordon
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.terms import CORDON_TAINT_KEY, Taint
from scheduler.engine.model.wording import taint_text
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.node_masks import HARD_EFFECTS, untolerated

NAME: Final = "TaintToleration"

NOT_TOLERATED: Final = unresolvable("node(s) had untolerated taint(s)")

_SOFT_EFFECTS: Final = ("PreferNoSchedule",)
#: Prefix of taints that the node controller sets for a node's conditions. Tolerating them is not proposed.
_CONDITION_TAINTS: Final = "node.kubernetes.io/"


class TaintToleration(FilterPlugin, ScorePlugin):
    """Filters and scores nodes by their untolerated taints."""

    name = NAME
    extension_points: ClassVar = ("filter", "preScore", "score")
    default_weight: ClassVar = 3

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return new nodes, changed taints, and tolerations added to the pod."""
        return (
            ClusterEventWithHint(
                Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, _hint_after_node_change
            ),
            ClusterEventWithHint(Resource.POD, Action.UPDATE_POD_TOLERATION, after_own_update),
        )

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Return the filter; no pod is skipped."""
        tolerated = view.tolerated(context.pod.spec.tolerations)
        return RuleFilter(view.n_rows, (tolerated, NOT_TOLERATED))

    def explain(self, context: ExplainContext) -> PluginExplanation:
        """Group nodes by their taints; propose to tolerate or to remove them."""
        return PluginExplanation(
            where=lambda rows: [_taints_text(context, row) for row in rows.tolist()],
            repair=Repair(partial(_lift_taints, context)),
        )

    def prescore(self, context: PodContext, view: ClusterView, feasible: FeasibleNodes) -> PreScored:
        """Return scores from 100 for no untolerated soft taint down to 0 for the most; no pod is skipped."""
        counts = view.n_untolerated_taints(context.pod.spec.tolerations, _SOFT_EFFECTS)
        if counts.item(counts.argmax()):
            return RawScores(counts, partial(default_normalized, feasible=feasible, reverse=True))
        return FinalScores(view.per_node(NAME, lambda: np.full(len(counts), MAX_NODE_SCORE, np.int16)))


def _hint_after_node_change(pod: Pod, old: Node | None, new: Node | None) -> Hint:
    """Source: taint_toleration.go, isSchedulableAfterNodeChange (kubernetes 1.36)."""
    fits = new is not None and not _is_untolerated(new, pod)
    return queue_if(fits and (old is None or _is_untolerated(old, pod)))


def _is_untolerated(node: Node, pod: Pod) -> bool:
    return bool(untolerated(node.taints, pod.spec.tolerations, HARD_EFFECTS))


def _untolerated(context: ExplainContext, row: int) -> tuple[Taint, ...]:
    return untolerated(context.view.nodes.live(row).taints, context.pod.spec.tolerations, HARD_EFFECTS)


def _taints_text(context: ExplainContext, row: int) -> str:
    return ", ".join(sorted(taint_text(t.key, t.value, t.effect) for t in _untolerated(context, row)))


def _lift_taints(context: ExplainContext, row: int) -> list[Changes]:
    """Return two alternatives: the pod tolerates the taints, or the node loses them."""
    taints, node_name = _untolerated(context, row), context.view.nodes.name_of(row)
    removals = tuple(dict.fromkeys(_taint_removal(node_name, taint) for taint in taints))
    if any(taint.key.startswith(_CONDITION_TAINTS) for taint in taints):
        return [removals]
    return [tuple(TolerateTaint(t.key, t.value, t.effect) for t in taints), removals]


def _taint_removal(node_name: str, taint: Taint) -> Change:
    if taint.key == CORDON_TAINT_KEY:
        return Uncordon(node_name)
    return RemoveTaint(node_name, taint.key, taint.value, taint.effect)

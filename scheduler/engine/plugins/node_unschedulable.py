"""
NodeUnschedulable: a cordoned node takes only pods that tolerate being there.

Only spec.unschedulable is read, not the taint that the node controller adds.

Source: plugins/nodeunschedulable/node_unschedulable.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from scheduler.engine.framework.events import Action, ClusterEventWithHint, Hint, Resource, queue_if
from scheduler.engine.framework.explaining import ExplainContext, PluginExplanation, Repair
from scheduler.engine.framework.interface import FilterPlugin, PodContext, PreFiltered, RuleFilter
from scheduler.engine.framework.status import SKIP, unresolvable
from scheduler.engine.model.changes import Uncordon
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.terms import CORDON_TAINT_KEY, Taint
from scheduler.engine.state.cluster_view import ClusterView

CORDONED: Final = unresolvable("node(s) were unschedulable")

#: A pod that tolerates this taint may run on a cordoned node.
_UNSCHEDULABLE: Final = Taint(CORDON_TAINT_KEY, "", "NoSchedule")


class NodeUnschedulable(FilterPlugin):
    """Refuses cordoned nodes."""

    name = "NodeUnschedulable"
    extension_points: ClassVar = ("filter",)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return new and uncordoned nodes, and a toleration added to the pod."""
        return (
            ClusterEventWithHint(
                Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, _hint_after_node_change
            ),
            ClusterEventWithHint(Resource.POD, Action.UPDATE_POD_TOLERATION, _hint_after_toleration_change),
        )

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Skip a pod that may run on cordoned nodes."""
        if _tolerates_cordons(context.pod):
            return SKIP
        return RuleFilter(view.n_rows, (~view.nodes.unschedulable, CORDONED))

    def explain(self, context: ExplainContext) -> PluginExplanation:
        """Propose to uncordon the node."""
        name_of = context.view.nodes.name_of
        return PluginExplanation(repair=Repair(lambda row: [(Uncordon(name_of(row)),)]))


def _tolerates_cordons(pod: Pod) -> bool:
    return any(toleration.tolerates(_UNSCHEDULABLE) for toleration in pod.spec.tolerations)


def _hint_after_node_change(_pod: Pod, old: Node | None, new: Node | None) -> Hint:
    """Source: node_unschedulable.go, isSchedulableAfterNodeChange (kubernetes 1.36)."""
    return queue_if(new is not None and not new.unschedulable and (old is None or old.unschedulable))


def _hint_after_toleration_change(pod: Pod, _old: Pod | None, new: Pod | None) -> Hint:
    """Source: node_unschedulable.go, isSchedulableAfterPodTolerationChange (kubernetes 1.36)."""
    return queue_if(new is not None and new.uid == pod.uid and _tolerates_cordons(new))

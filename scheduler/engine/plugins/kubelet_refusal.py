"""
KubeletRefusal: a node whose kubelet has just refused a pod of the same spec is excluded for a while.

A kubelet may refuse a pod that fits by the scheduler's counts: another scheduler was faster, a device is not healthy,
or the node is shutting down. The pod fails there (such as OutOfcpu), its controller makes another one, and the best
node for it is the same again. Not an upstream plugin; without such a node it skips every pod. It is the last plugin of
every profile, so that other reasons take precedence. `engine.state.kubelet_refusals` has the durations; the end of an
exclusion wakes waiting pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduler.engine.framework.events import Action, ClusterEventWithHint, Resource
from scheduler.engine.framework.interface import FilterPlugin, PodContext, PreFiltered, RuleFilter
from scheduler.engine.framework.status import SKIP, Status, unresolvable
from scheduler.engine.state.arrays import Mask
from scheduler.engine.state.cluster_view import ClusterView

_REFUSED: Final = "node(s) refused such a pod shortly before ({reason})"


class KubeletRefusal(FilterPlugin):
    """Excludes nodes whose kubelet has just refused a pod of the same spec."""

    name = "KubeletRefusal"

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the end of a node's exclusion (`engine.framework.events.KUBELET_REFUSAL_OVER`), and new nodes."""
        return (ClusterEventWithHint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_CONDITION),)

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Skip a pod unless a kubelet has refused a pod of its spec."""
        reason_by_node = view.state.kubelet_refusals.excluded_nodes(context.pod.spec)
        if not reason_by_node:
            return SKIP
        rules: list[tuple[Mask, Status]] = []
        for reason in sorted(set(reason_by_node.values())):
            names = (name for name, given in reason_by_node.items() if given == reason)
            mask = np.ones(view.n_rows, dtype=np.bool_)
            mask[[row for name in names if (row := view.nodes.row_by_name.get(name)) is not None]] = False
            rules.append((mask, unresolvable(_REFUSED.format(reason=reason))))
        return RuleFilter(view.n_rows, *rules)

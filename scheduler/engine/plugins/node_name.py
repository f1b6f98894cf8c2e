"""
NodeName: a pod with spec.nodeName fits only on that node.

Pods with a node never reach the queue, so this only matters where a decision about one is asked for explicitly.

Source: plugins/nodename/node_name.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np

from scheduler.engine.framework.events import Action, ClusterEventWithHint, Resource
from scheduler.engine.framework.interface import FilterPlugin, PodContext, PreFiltered, RuleFilter
from scheduler.engine.framework.status import SKIP, unresolvable
from scheduler.engine.state.cluster_view import ClusterView

OTHER_NODE: Final = unresolvable("node(s) didn't match the requested node name")


class NodeName(FilterPlugin):
    """Refuses every node but the one that the pod names."""

    name = "NodeName"
    extension_points: ClassVar = ("filter",)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return new nodes."""
        return (ClusterEventWithHint(Resource.NODE, Action.ADD),)

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Skip a pod that names no node."""
        if not context.pod.node_name:
            return SKIP
        row = view.nodes.row_by_name.get(context.pod.node_name)
        mask = np.zeros(view.n_rows, dtype=np.bool_)
        if row is not None:
            mask[row] = True
        return RuleFilter(view.n_rows, (mask, OTHER_NODE))

"""
KubeletRefusal: a node whose kubelet has just refused a pod of the same spec is excluded for a while.

A kubelet may refuse a pod that fits by the scheduler's counts: another scheduler was faster, a device is not healthy,
or the node is shutting down. The pod fails there (such as OutOfcpu), its controller makes another one, and the best
node for it is the same again. Not an upstream plugin; without a refusal it skips every pod. It is the last plugin of
every profile, so that other reasons take precedence. `state.kubelet_refusals` has the durations; the end of an
exclusion wakes waiting pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from scheduler.framework.events import Action, ClusterEventWithHint, Resource
from scheduler.framework.interface import FilterPlugin, PodContext, PreFiltered, RuleFilter
from scheduler.framework.status import SKIP, unresolvable
from scheduler.state.cluster_view import ClusterView


class KubeletRefusal(FilterPlugin):
    """Excludes nodes whose kubelet has just refused a pod of the same spec."""

    name = "KubeletRefusal"
    extension_points: ClassVar = ("preFilter", "filter")

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the end of a node's exclusion (`framework.events.KUBELET_REFUSAL_OVER`), and new nodes."""
        return (ClusterEventWithHint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_CONDITION),)

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Skip a spec that no kubelet refused."""
        reason_by_node = view.kubelet_refusals(context.pod.spec)
        return _filter(reason_by_node, view) if reason_by_node else SKIP


def _filter(reason_by_node: Mapping[str, str], view: ClusterView) -> RuleFilter:
    """Return a filter that refuses the nodes, each with its kubelet's reason."""
    rules = []
    for reason in sorted(set(reason_by_node.values())):
        mask = np.ones(view.n_rows, dtype=np.bool_)
        names = (name for name, given in reason_by_node.items() if given == reason)
        mask[[row for name in names if (row := view.nodes.row_by_name.get(name)) is not None]] = False
        rules.append((mask, unresolvable(f"node(s) refused such a pod shortly before ({reason})")))
    return RuleFilter(view.n_rows, *rules)

"""
KubeletRefusal: a node whose kubelet has just refused a pod of the same spec is excluded for a while, and a node that
failed under a member of the pod's group.

A kubelet may refuse a pod that fits by the scheduler's counts: another scheduler was faster, a device is not healthy,
or the node is shutting down. The pod fails there (such as OutOfcpu), its controller makes another one, and the best
node for it is the same again. A node that failed may be ready again soon and fail again, and each failure costs the
whole group its work since the last checkpoint; a group without other places takes it once it has been ready for a
while (`engine.core.group_cycle`). Not an upstream plugin; without either it skips every pod. It is the
last plugin of every profile, so that other reasons take precedence. `engine.state.kubelet_refusals` has the
durations; the end of an exclusion wakes waiting pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from scheduler.engine.framework.events import Action, ClusterEventWithHint, Resource
from scheduler.engine.framework.interface import FilterPlugin, PodContext, PreFiltered, RuleFilter
from scheduler.engine.framework.status import SKIP, Status, unresolvable
from scheduler.engine.model.pod_groups import MOST_FAILED_NODES
from scheduler.engine.state.arrays import Mask
from scheduler.engine.state.cluster_view import ClusterView

_REFUSED: Final = "node(s) refused such a pod shortly before ({reason})"
#: Begins the reason for nodes that failed; how and which of them follow in parentheses.
FAILED: Final = "node(s) failed under the pod's group shortly before"
_FAILED_TEXT: Final = f"{FAILED} ({{reason}}: {{names}})"


class KubeletRefusal(FilterPlugin):
    """Excludes nodes whose kubelet has just refused a pod of the same spec, or that failed under its group."""

    name = "KubeletRefusal"

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the end of a node's exclusion (`engine.framework.events.KUBELET_REFUSAL_OVER`), and new nodes."""
        return (ClusterEventWithHint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_CONDITION),)

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Skip a pod of whose spec no kubelet refused one, and under whose group no node failed."""
        group = context.pod.group
        rules = _rules(view.kubelet_refusals(context.pod.spec), _REFUSED, view)
        failed = {} if group is None else view.kubelet_refusals(group.key)
        if len(failed) <= MOST_FAILED_NODES:
            rules += _rules(failed, _FAILED_TEXT, view)
        return RuleFilter(view.n_rows, *rules) if rules else SKIP


def _rules(reason_by_node: Mapping[str, str], text: str, view: ClusterView) -> list[tuple[Mask, Status]]:
    """Return a rule per reason that refuses its nodes."""
    rules = []
    for reason in sorted(set(reason_by_node.values())):
        names = sorted(name for name, given in reason_by_node.items() if given == reason)
        mask = np.ones(view.n_rows, dtype=np.bool_)
        mask[[row for name in names if (row := view.nodes.row_by_name.get(name)) is not None]] = False
        rules.append((mask, unresolvable(text.format(reason=reason, names=", ".join(names)))))
    return rules

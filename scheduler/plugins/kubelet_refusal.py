"""
KubeletRefusal: a node whose kubelet has just refused such a pod is left out for a while.

What a scheduler counts and what a kubelet finds can differ: another scheduler was faster, a device is not healthy, the
node is shutting down. The pod fails there (OutOfcpu and its like), its controller makes another one, and the best node
for that is the same again. Not an upstream plugin: without a refusal it has nothing to do, and nothing is different.
Part of every profile, behind all others, so that a node which does not fit anyway says so. How long a node is left out:
`state.kubelet_refusals`; when the time is over, waiting pods are woken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import numpy as np

from scheduler.framework.events import Action, ClusterEventWithHint, Resource
from scheduler.framework.interface import PodContext, PreFiltered, RuleFilter
from scheduler.framework.status import SKIP, unresolvable
from scheduler.state.snapshot import Snapshot

NAME: Final = "KubeletRefusal"


class KubeletRefusal:
    """Nodes that refused a pod of the same spec, for as long as they are left out."""

    name = NAME
    extension_points: ClassVar = ("preFilter", "filter")

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the end of a node's exclusion (`framework.events.KUBELET_REFUSAL_OVER`), and new nodes."""
        return (ClusterEventWithHint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_CONDITION),)

    def prefilter(self, context: PodContext, snapshot: Snapshot) -> PreFiltered:
        """Skip a spec that no kubelet refused."""
        closed = snapshot.closed_by_kubelets(context.pod.spec)
        return _filter(closed, snapshot) if closed else SKIP


def _filter(reason_by_node: Mapping[str, str], snapshot: Snapshot) -> RuleFilter:
    """Refuse the nodes, each with its kubelet's reason."""
    rules = []
    for reason in sorted(set(reason_by_node.values())):
        mask = np.ones(snapshot.n_rows, dtype=np.bool_)
        names = (name for name, one in reason_by_node.items() if one == reason)
        mask[[row for name in names if (row := snapshot.nodes.row_by_name.get(name)) is not None]] = False
        rules.append((mask, unresolvable(f"node(s) refused such a pod shortly before ({reason})")))
    return RuleFilter(snapshot.n_rows, *rules)

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
from typing import Final

import numpy as np

from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.interface import Candidate, PreFiltered
from scheduler.framework.verdicts import SKIP, Refusals, unresolvable
from scheduler.state.arrays import Mask
from scheduler.state.snapshot import Snapshot

NAME: Final = "KubeletRefusal"


class KubeletRefusal:
    """Nodes that refused a pod of the same spec, for as long as they are left out."""

    name = NAME

    def registrations(self) -> Sequence[Registration]:
        """The end of the time for which a node is left out (`framework.events.KUBELET_REFUSAL_OVER`); new nodes."""
        return (Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_CONDITION),)

    def prefilter(self, candidate: Candidate, snapshot: Snapshot) -> PreFiltered:
        """Nothing to do for a spec that no kubelet refused."""
        closed = snapshot.closed_by_kubelets(candidate.pod.spec)
        return _RefusedFilter(closed, snapshot) if closed else SKIP


class _RefusedFilter:
    """All rows but those of the nodes that refused."""

    def __init__(self, closed: Mapping[str, str], snapshot: Snapshot) -> None:
        self._reasons = sorted(set(closed.values()))
        self._codes = np.zeros(snapshot.n_rows, dtype=np.intp)
        for node_name, reason in closed.items():
            row = snapshot.nodes.row_by_name.get(node_name)
            if row is not None:
                self._codes[row] = 1 + self._reasons.index(reason)

    def fits(self) -> Mask:
        """The nodes that did not refuse."""
        return np.equal(self._codes, 0)

    def refusals(self) -> Refusals:
        """What each kubelet said."""
        statuses = [
            unresolvable(f"node(s) refused such a pod shortly before ({one})") for one in self._reasons
        ]
        return Refusals(self._codes, statuses)

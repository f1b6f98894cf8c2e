"""
NodeName: a pod that names its node can run there only.

Pods that have a node never reach the queue, so this speaks only where a decision is asked for such a pod.

Source: plugins/nodename/node_name.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.interface import Candidate, PreFiltered
from scheduler.framework.verdicts import SKIP, Refusals, unresolvable
from scheduler.state.arrays import Mask
from scheduler.state.snapshot import Snapshot

NAME: Final = "NodeName"

OTHER_NODE: Final = unresolvable("node(s) didn't match the requested node name")


class NodeName:
    """spec.nodeName as a filter."""

    name = NAME

    def registrations(self) -> Sequence[Registration]:
        """New nodes, whatever they are called."""
        return (Registration(Resource.NODE, Action.ADD),)

    def prefilter(self, candidate: Candidate, snapshot: Snapshot) -> PreFiltered:
        """Nothing to do where the pod names no node."""
        if not candidate.pod.node_name:
            return SKIP
        return _NameFilter(candidate.pod.node_name, snapshot)


class _NameFilter:
    """The one row of that name."""

    def __init__(self, node_name: str, snapshot: Snapshot) -> None:
        self._node_name = node_name
        self._snapshot = snapshot

    def fits(self) -> Mask:
        """The named node alone."""
        mask = np.zeros(self._snapshot.n_rows, dtype=np.bool_)
        row = self._snapshot.nodes.row_by_name.get(self._node_name)
        if row is not None:
            mask[row] = True
        return mask

    def refusals(self) -> Refusals:
        """Every other node."""
        return Refusals.where(~self.fits(), OTHER_NODE)

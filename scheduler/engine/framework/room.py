"""
The room on nodes: how many pods, and how much of each resource, is left for a pod; for all nodes, or while pods leave.

Source: plugins/noderesources/fit.go, fitsRequest (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_, or_
from typing import Final

import numpy as np

from scheduler.engine.framework.interface import NodeFilter, PreFilterExtensions
from scheduler.engine.framework.status import Code, NodeStatuses, Status
from scheduler.engine.model.pods import Pod, PodSpec
from scheduler.engine.state.arrays import Amount, Amounts, Mask, RowIndex, Rows, Truth
from scheduler.engine.state.cluster_view import ClusterView

TOO_MANY_PODS: Final = "Too many pods"

#: Added to what is left of a resource if it is not checked: more than any request.
UNCHECKED: Final = 1 << 61

#: Amounts by resource, in the order of the reasons.
Request = tuple[tuple[str, int], ...]


class RoomFilter(NodeFilter):
    """
    Refuses nodes with fewer pods or resources left than the pod needs.

    `request`: what has to be left of each resource, besides room for one more pod. `reasons`: the text of too many
    pods, then of too little of each resource.
    """

    needs_pods = False

    def __init__(self, request: Request, view: ClusterView) -> None:
        self.request = request
        self.reasons = (TOO_MANY_PODS, *(f"Insufficient {name}" for name, _ in request))
        self._nodes = view.nodes
        self._view = view
        #: Resources that DynamicResources finds devices for on nodes that do not offer them.
        self._provided = frozenset(name for name, _ in request if view.devices.provides(name))
        self._used: dict[PodSpec, tuple[int, ...]] = {}

    def spare(self, rows: RowIndex) -> list[Amount]:
        """
        Return what would be left of the number of pods, and of each resource of the request, if the pod came.

        A negative value refuses the row. A resource that devices provide on the row counts as sufficient.
        """
        nodes = self._nodes
        spare = [nodes.pods_left(rows) - 1]
        for name, amount in self.request:
            left = nodes.left(name, rows)
            if name in self._provided:
                use = nodes.use(name, rows)
                left = left + UNCHECKED * (use is None or use[1] <= 0)
            spare.append(left - amount)
        return spare

    def exceeding(self, rows: RowIndex) -> list[Truth]:
        """Return, in the order of `spare`, whether more is needed than the node has in all, whichever pods leave."""
        exceeding: list[Truth] = [False]
        for name, amount in self.request:
            use = self._nodes.use(name, rows)
            allocatable = 0 if use is None else use[1]
            exceeding.append((amount > allocatable) & (name not in self._provided or allocatable > 0))
        return exceeding

    @property
    def room(self) -> RoomFilter:
        """Return the filter itself."""
        return self

    def mask(self) -> Mask:
        """Return the rows without a shortage."""
        return self._view.per_row((RoomFilter, self.request, self._provided), self._fitting, np.bool_)

    def _fitting(self, rows: RowIndex) -> Truth:
        return reduce(and_, [spare >= 0 for spare in self.spare(rows)])

    def copies(self, freed: Sequence[Amount] = ()) -> Amounts:
        """Return how many pods of the same request each row has room for; `freed`: added to `spare`, in its order."""
        spare, amounts = self.spare(slice(0, self._view.n_rows)), (1, *(amount for _, amount in self.request))
        more = freed or [0] * len(spare)
        each = [
            np.asarray(left + n) // amount + 1 for left, n, amount in zip(spare, more, amounts, strict=True)
        ]
        return reduce(np.minimum, each).astype(np.int64)

    def statuses(self) -> NodeStatuses:
        """Return every shortage of each row, in order; unresolvable if a request exceeds allocatable."""
        rows = np.flatnonzero(~self.mask())
        of_refused = self.statuses_beside(rows, [np.zeros(1, dtype=np.int64)] * len(self.reasons))
        codes = np.zeros(self._view.n_rows, dtype=np.intp)
        codes[rows] = of_refused.codes
        return NodeStatuses(codes, of_refused.statuses)

    def statuses_beside(self, rows: Rows, taken: Sequence[Amounts]) -> NodeStatuses:
        """
        Return every shortage of these rows, in their order, with other pods there; codes have an entry per given row.

        `taken`: by row, the number of the other pods, then what they take of each resource of the request.
        """
        # One entry if no node has the resource: any amount is too little then.
        short = [np.less(left, by_others) for left, by_others in zip(self.spare(rows), taken, strict=True)]
        exceeds = np.broadcast_to(reduce(or_, self.exceeding(rows)), len(rows))
        return NodeStatuses.combined(short, exceeds, self.reasons)

    def trial(self, row: int) -> PreFilterExtensions:
        """Return the answer while pods come and go."""
        return _RoomTrial(self, row)

    def used_by(self, pod: Pod) -> tuple[int, ...]:
        """Return one pod, and what another pod takes of each requested resource."""
        used = self._used.get(pod.spec) if pod.resize is None else None
        if used is None:
            requested = self._view.state.usage_of(pod).requested
            used = (1, *(requested.get(name, 0) for name, _ in self.request))
            if pod.resize is None:
                self._used[pod.spec] = used
        return used


class _RoomTrial(PreFilterExtensions):
    """The room on one node while pods come and go there."""

    __slots__ = ("_exceeding", "_filter", "_spare")

    def __init__(self, room: RoomFilter, row: int) -> None:
        self._filter = room
        self._spare = room.spare(row)
        self._exceeding = room.exceeding(row)

    def count(self, pod: Pod, delta: int) -> None:
        """Take the pod's usage from the rest, or give it back."""
        spare = self._spare
        for index, amount in enumerate(self._filter.used_by(pod)):
            if amount:
                spare[index] -= delta * amount

    def refusal(self) -> Status | None:
        short = [
            index
            for index, (spare, exceeds) in enumerate(zip(self._spare, self._exceeding, strict=True))
            if spare < 0 or exceeds
        ]
        if not short:
            return None
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if any(self._exceeding) else Code.UNSCHEDULABLE
        return Status(code, tuple(self._filter.reasons[index] for index in short))

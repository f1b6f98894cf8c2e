"""
Which nodes have devices for claims of one form: an answer for each row, kept until the node's devices change.

Claims of a form differ in names alone, as those that are made from one template. An answer is worked out where a row is
asked about, once for all nodes with the same slices.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler.model.device_requests import ResourceClaim
from scheduler.model.devices import DeviceClass, PoolId
from scheduler.model.nodes import Node
from scheduler.plugins.dynamic_resources.allocator import Allocator
from scheduler.plugins.dynamic_resources.inputs import Refusal, RefusalKind, SearchError, TargetNode
from scheduler.plugins.dynamic_resources.pool_index import PoolIndex
from scheduler.plugins.dynamic_resources.pools import NodePools
from scheduler.state.arrays import Mask
from scheduler.state.cluster_view import ClusterView

Answers = npt.NDArray[np.int8]


class Answer(IntEnum):
    """What a node has for the claims."""

    UNKNOWN = 0
    DEVICES = 1
    NO_DEVICES = 2
    INVALID_POOLS = 3
    LIMIT = 4
    #: An error, whose text names the claim.
    ERROR = 5


_OF_REFUSAL: Final = {
    RefusalKind.NO_DEVICES: Answer.NO_DEVICES,
    RefusalKind.INVALID_POOLS: Answer.INVALID_POOLS,
    RefusalKind.LIMIT: Answer.LIMIT,
    RefusalKind.ERROR: Answer.ERROR,
}


def form_of(claims: Sequence[ResourceClaim], classes: Mapping[str, DeviceClass]) -> Hashable:
    """Return what claims ask for: of equal forms, every node has devices for both or for neither."""
    names = dict.fromkeys(
        query.class_name
        for claim in claims
        for request in claim.requests
        for query in (request.exactly, *request.first_available)
        if query is not None
    )
    selectors = tuple((name, found.selectors if (found := classes.get(name)) else None) for name in names)
    return tuple((claim.requests, claim.constraints) for claim in claims), selectors


class NodeAnswers:
    """The answers of all rows for claims of one form."""

    def __init__(self) -> None:
        self._answers: Answers = np.zeros(0, np.int8)
        #: What the answer of each row was worked out from.
        self._nodes: list[Node | None] = []
        self._pools: list[NodePools | None] = []
        self._row_version = self._device_version = -1

    @property
    def nbytes(self) -> int:
        """Bytes of the answers, and of the two lists."""
        return self._answers.nbytes + 16 * len(self._nodes)

    def of_rows(
        self, rows: Mask, claims: Sequence[ResourceClaim], allocator: Allocator, index: PoolIndex, view: ClusterView
    ) -> Answers:
        """
        Return the answers of all rows; those outside `rows` may be UNKNOWN.

        Args:
            rows: live rows.
            claims: of this form.
            allocator: of this cycle, for the cluster as `index` and `view` show it.

        Cost: 20 µs, and a search for each of these rows whose devices changed.
        """
        self._forget_changed(index, view)
        by_pools: dict[NodePools, Answer] = {}
        for row in np.flatnonzero(rows & (self._answers == Answer.UNKNOWN)).tolist():
            node = view.node_at(row)
            if node is not None:
                target = TargetNode(node.name, node.labels)
                pools = index.pools(target)
                self._nodes[row] = node
                self._pools[row] = None if isinstance(pools, SearchError) else pools
                self._answers[row] = _answer(target, pools, claims, allocator, by_pools)
        return self._answers

    def same_as(self, _fresh: NodeAnswers) -> bool:
        """Return True: the audit compares answers with the claims of a decision (`audit_answers`)."""
        return True

    def _forget_changed(self, index: PoolIndex, view: ClusterView) -> None:
        n_new = view.n_rows - len(self._answers)
        if n_new:
            self._answers = np.append(self._answers, np.zeros(n_new, np.int8))
            self._nodes += [None] * n_new
            self._pools += [None] * n_new
        if self._row_version != view.version:
            for row in np.flatnonzero(view.rows_changed_after(self._row_version)).tolist():
                # A row changes with each pod that comes or goes, which changes no devices.
                if view.node_at(row) is not self._nodes[row]:
                    self._answers[row] = Answer.UNKNOWN
            self._row_version = view.version
        changes = view.devices.changes
        if self._device_version != changes.version:
            latest = changes.since(self._device_version) if self._device_version >= 0 else None
            if latest is None:
                self._answers[:] = Answer.UNKNOWN
            else:
                if any(change.of_slices for change in latest):
                    self._forget_other_pools(index)
                self._forget_pools(dict.fromkeys(each.pool for each in latest if not each.of_slices), index, view)
            self._device_version = changes.version

    def _forget_other_pools(self, index: PoolIndex) -> None:
        """Forget the answers of the rows that have other slices than before."""
        for row in np.flatnonzero(self._answers).tolist():
            node = self._nodes[row]
            if node is None or index.pools(TargetNode(node.name, node.labels)) is not self._pools[row]:
                self._answers[row] = Answer.UNKNOWN

    def _forget_pools(self, pools: Iterable[PoolId], index: PoolIndex, view: ClusterView) -> None:
        """Forget the answers of the rows that have devices of the pools."""
        for pool in pools:
            nodes = index.nodes_of(pool)
            if nodes is None:
                self._answers[:] = Answer.UNKNOWN
                return
            for name in nodes:
                row = view.row_of(name)
                if row is not None:
                    self._answers[row] = Answer.UNKNOWN


def _answer(
    node: TargetNode,
    pools: NodePools | SearchError,
    claims: Sequence[ResourceClaim],
    allocator: Allocator,
    by_pools: dict[NodePools, Answer],
) -> Answer:
    if isinstance(pools, SearchError):
        return Answer.ERROR
    known = by_pools.get(pools)
    if known is not None:
        return known
    search = allocator.search(node, pools, claims)
    answer = _OF_REFUSAL[search.kind] if isinstance(search, Refusal) else Answer.DEVICES
    if answer is Answer.DEVICES and allocator.cannot_select_nodes(search):
        answer = Answer.ERROR
    if not pools.selects_per_device:
        by_pools[pools] = answer
    return answer

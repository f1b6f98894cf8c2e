"""
Which nodes have devices for claims of one form: an answer for each row, kept until the node's devices change.

Claims of a form differ in names alone, like claims from one template. An answer is worked out when a row is asked
about, once for all nodes with the same slices.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.devices import DeviceClass, PoolId
from scheduler.engine.model.nodes import Node
from scheduler.engine.plugins.dynamic_resources.allocator import Allocator
from scheduler.engine.plugins.dynamic_resources.answers import Answer, AuditWindow, NotAllocated
from scheduler.engine.plugins.dynamic_resources.claims import queries_of
from scheduler.engine.plugins.dynamic_resources.pool_index import PoolIndex
from scheduler.engine.plugins.dynamic_resources.pools import NodePools
from scheduler.engine.plugins.dynamic_resources.search import DeviceSearch
from scheduler.engine.state.arrays import Mask
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster_view import ClusterView

#: Pools of several nodes each that are asked together, 5 µs each at 5,000 nodes.
_MAX_ALIKE: Final = 256
#: Devices that are searched in one piece, 8 to 25 µs each with new selectors; a node counts as at least eight.
_DEVICES_PER_PIECE: Final = 128
_FEWEST_DEVICES: Final = 8

Answers = npt.NDArray[np.int8]
#: The pools of a search, and its node if the pools select nodes per device.
_SearchKey: TypeAlias = tuple[NodePools, str]


#: Answers that say nothing about the devices.
_WITHOUT_RESULT: Final = (Answer.UNKNOWN, Answer.LIMIT, Answer.POSTPONED)


def form_of(claims: Sequence[ResourceClaim], classes: Mapping[str, DeviceClass]) -> Hashable:
    """Return what claims ask for: if the forms of two are equal, a node has devices for both or for neither."""
    names = dict.fromkeys(query.class_name for query in queries_of(claims))
    selectors = tuple((name, found.selectors if (found := classes.get(name)) else None) for name in names)
    return tuple((claim.requests, claim.constraints) for claim in claims), selectors


class Question(NamedTuple):
    """Claims of the form, the allocator that says of nodes whether they get devices, and the nodes."""

    claims: Sequence[ResourceClaim]
    allocator: Allocator
    view: ClusterView


class NodeAnswers:
    """The answers of all rows for claims of one form, and what alternatives of requests add to a row's score."""

    def __init__(self) -> None:
        self.answers: Answers = np.zeros(0, np.int8)
        self.scores: npt.NDArray[np.int16] = np.zeros(0, np.int16)
        #: The inputs of the answer of each row.
        self._nodes: list[Node | None] = []
        self._pools: list[NodePools | None] = []
        #: The number of the pools that the row shares with others, int32 array of shape (n_rows,); 0 if unknown.
        self._alike: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self._number_by_pools: dict[NodePools, int] = {}
        #: The searches that did not end in the cycle that began them, even after they have found devices.
        self._long: dict[_SearchKey, DeviceSearch] = {}
        self._row_version = self._device_version = self._classes_version = -1
        #: Pools that any node may reach -> whether one of their devices may be taken for the claims.
        self._touched: dict[PoolId, bool] = {}
        #: For the audit: the last question, and which answers are next.
        self._question: Question | None = None
        self._window = AuditWindow()

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, of the two lists, and of the long searches."""
        return 23 * len(self._nodes) + 5000 * len(self._long)

    def long_search(self, node: Node, pools: NodePools) -> DeviceSearch | None:
        """Return the search that found devices on the node, if it took several cycles."""
        search = self._long.get(_search_key(node, pools))
        return search if search is not None and search.has_found else None

    def ask(self, rows: Mask, question: Question, *, until_error: bool = False) -> Pieces[None]:
        """Bring the answers of `rows`, which are live, up to date, in pieces; those of other rows may be UNKNOWN."""
        # `until_error`: an error at one of them fails the pod, so that the rows after it are POSTPONED.
        self._question = question
        self._forget_changed(question)
        self.answers[self.answers == Answer.POSTPONED] = Answer.UNKNOWN
        by_pools: dict[NodePools, tuple[Answer, int]] = {}
        self._ask_alike(rows & (self.answers == Answer.UNKNOWN), question)
        unknown = rows & (self.answers == Answer.UNKNOWN)
        fails = until_error and bool((rows & (self.answers == Answer.ERROR)).any())
        n_devices = 0
        for row in np.flatnonzero(unknown).tolist():
            if fails:
                self.answers[unknown & (self.answers == Answer.UNKNOWN)] = Answer.POSTPONED
                return
            node = question.view.nodes.live(row)
            pools = question.allocator.pools.pools(node)
            self._nodes[row] = node
            self._pools[row] = None if isinstance(pools, NotAllocated) else pools
            if pools in by_pools:
                self._alike[row] = self._number_by_pools.setdefault(pools, len(self._number_by_pools) + 1)
            self.answers[row], self.scores[row] = _answer(node, pools, question, by_pools, self._long)
            fails = until_error and self.answers.item(row) == Answer.ERROR
            n_devices += max(_FEWEST_DEVICES, 0 if isinstance(pools, NotAllocated) else len(pools.devices))
            if n_devices >= _DEVICES_PER_PIECE:
                n_devices = 0
                yield

    def _ask_alike(self, unknown: Mask, question: Question) -> None:
        """Answer the rows that have their pools with others, all at once; none if there are many such pools."""
        numbers = np.flatnonzero(np.bincount(self._alike[unknown])).tolist()
        if len(numbers) > _MAX_ALIKE:
            return
        pools_by_number = {number: pools for pools, number in self._number_by_pools.items()}
        for number in filter(None, numbers):
            rows = unknown & (self._alike == number)
            node = question.view.nodes.live(int(rows.argmax()))
            answer = _answer(node, pools_by_number[number], question, {}, self._long)
            self.answers[rows], self.scores[rows] = answer

    def same_as(self, _fresh: NodeAnswers) -> bool:
        """Return whether the next few answers equal those of a new search; for the audit."""
        question = self._question
        if question is None:
            return True
        self._forget_changed(question)
        known = np.flatnonzero(~np.isin(self.answers, _WITHOUT_RESULT)).tolist()
        for row in self._window.of(known):
            node = question.view.node_at(row)
            if node is None:
                continue
            answer, score = _answer(node, question.allocator.pools.pools(node), question, {}, {})
            if answer not in _WITHOUT_RESULT and (answer, score) != (self.answers[row], self.scores[row]):
                return False
        return True

    def _forget_changed(self, question: Question) -> None:
        view = question.view
        n_new = view.n_rows - len(self.answers)
        if n_new:
            self.answers = np.append(self.answers, np.zeros(n_new, np.int8))
            self.scores = np.append(self.scores, np.zeros(n_new, np.int16))
            self._alike = np.append(self._alike, np.zeros(n_new, np.int32))
            self._nodes += [None] * n_new
            self._pools += [None] * n_new
        if self._row_version != view.state.log.version:
            for row in np.flatnonzero(view.state.log.changed_after(self._row_version, view.n_rows)).tolist():
                # A row changes with each pod that comes or goes, which changes no devices.
                if not _is_same(view.node_at(row), self._nodes[row]):
                    self._forget(row)
            self._row_version = view.state.log.version
        if self._classes_version != view.devices.classes_version:
            # Classes that select the same devices may have another configuration, which is part of the search's result.
            self._classes_version = view.devices.classes_version
            self._long.clear()
        changes = view.devices.changes
        if self._device_version != changes.version:
            latest = changes.since(self._device_version) if self._device_version >= 0 else None
            if latest is None or any(change.of_slices for change in latest):
                self._alike[:] = 0
                self._number_by_pools.clear()
            if latest is None:
                self._touched.clear()
                self._forget_all()
            else:
                if any(change.of_slices for change in latest):
                    self._touched.clear()
                    self._forget_other_pools(question.allocator.pools)
                self._forget_pools(
                    dict.fromkeys(each.pool for each in latest if not each.of_slices), question
                )
            self._device_version = changes.version

    def _forget_other_pools(self, index: PoolIndex) -> None:
        """Forget the answers of the rows that have other slices than before."""
        for row in np.flatnonzero(self.answers).tolist():
            node = self._nodes[row]
            pools = None if node is None else index.known_pools(node)
            if pools is None or pools is not self._pools[row]:
                self._forget(row)

    def _forget_pools(self, pools: Iterable[PoolId], question: Question) -> None:
        """Forget the answers of the rows that have devices of the pools."""
        for pool in pools:
            nodes = question.allocator.pools.nodes_of(pool)
            if nodes is None:
                if pool not in self._touched:
                    slices = question.view.devices.of_pool(pool)
                    self._touched[pool] = question.allocator.may_take(question.claims, slices)
                if self._touched[pool]:
                    self._forget_all()
                    return
                continue
            for name in nodes:
                row = question.view.state.nodes.row_by_name.get(name)
                if row is not None:
                    self._forget(row)

    def _forget(self, row: int) -> None:
        self.answers[row] = Answer.UNKNOWN
        self._alike[row] = 0
        node, pools = self._nodes[row], self._pools[row]
        if node is not None and pools is not None:
            self._long.pop(_search_key(node, pools), None)

    def _forget_all(self) -> None:
        self.answers[:] = Answer.UNKNOWN
        self._long.clear()


def _is_same(node: Node | None, other: Node | None) -> bool:
    """Return whether the search cannot tell both apart: they have one name and equal labels."""
    if node is None or other is None:
        return node is other
    return node is other or (node.name == other.name and node.labels == other.labels)


def _search_key(node: Node, pools: NodePools) -> _SearchKey:
    return pools, node.name if pools.selects_per_device else ""


def _answer(
    node: Node,
    pools: NodePools | NotAllocated,
    question: Question,
    by_pools: dict[NodePools, tuple[Answer, int]],
    long: dict[_SearchKey, DeviceSearch],
) -> tuple[Answer, int]:
    """Return the answer and the score of a node. `by_pools`: the answers for pools that several nodes have."""
    # `long`: the searches that are to go on.
    if isinstance(pools, NotAllocated):
        return Answer.ERROR, 0
    known = by_pools.get(pools)
    if known is not None:
        return known
    key = _search_key(node, pools)
    begun = long.get(key) or question.allocator.begin(node, pools, question.claims)
    ended = begun if isinstance(begun, NotAllocated) else question.allocator.go_on(node, begun)
    if isinstance(ended, DeviceSearch):
        answer = Answer.DEVICES, ended.score()
    else:
        answer = ended.answer, 0
        if isinstance(begun, DeviceSearch) and begun.n_steps and ended.answer is Answer.POSTPONED:
            long[key] = begun
        else:
            long.pop(key, None)
    if not pools.selects_per_device:
        by_pools[pools] = answer
    return answer

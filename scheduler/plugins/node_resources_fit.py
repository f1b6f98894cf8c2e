"""
NodeResourcesFit: room for the pod's requests, and a score for how full each node would be.

Filter: one more pod, and every requested resource, fits into allocatable minus requested; a node reports all its
shortages. A request that exceeds allocatable itself cannot be resolved by removing pods.
Score, by strategy: LeastAllocated prefers empty nodes, MostAllocated full ones, RequestedToCapacityRatio whatever its
shape says. For cpu and memory it counts defaults where a container requests nothing; pod-level requests of the
incoming pod are left out.

Source: plugins/noderesources/{fit,resource_allocation,least_allocated,most_allocated,requested_to_capacity_ratio}.go
(kubernetes 1.36, DRAExtendedResource off).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler.framework.caching import PerRow, PerSpec
from scheduler.framework.events import Action, Hint, Registration, Resource, never
from scheduler.framework.interface import Candidate, Feasible, PreFiltered, PreScored, Rescored
from scheduler.framework.plugin_args import NodeResourcesFitArgs, ScoringStrategy, ShapePoint
from scheduler.framework.verdicts import Code, Refusals, Status
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod
from scheduler.model.requests import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    filter_request,
    fit_score_request,
    is_extended,
    is_scalar,
    on_node_request,
)
from scheduler.state.arrays import Amount, Amounts, Mask, Scores, Truth, Where, at, at_least, lesser, whole
from scheduler.state.node_table import NodeTable
from scheduler.state.snapshot import Snapshot

NAME: Final = "NodeResourcesFit"

TOO_MANY_PODS: Final = "Too many pods"

_PLAIN: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
#: Scores of a shape are configured from 0 to 10.
_SHAPE_STRETCH: Final = 10

#: Up to so many requested resources every combination of shortages has a status of its own, needed or not.
_FEW_RESOURCES: Final = 4

_Asked = tuple[tuple[str, int], ...]


class NodeResourcesFit:
    """Requests against what nodes have left."""

    name = NAME

    def __init__(self, args: NodeResourcesFitArgs) -> None:
        self._args = args
        self._asked = PerSpec(lambda pod: checked_amounts(filter_request(pod), args))
        self._score_request = PerSpec(fit_score_request)
        self._strategy = args.scoring_strategy
        #: By what is asked: nodes that have the room, what the others are short of, and scores.
        self._rooms = PerRow(np.bool_)
        self._shortages = PerRow(np.uint8)
        self._kept: PerRow[np.signedinteger] = PerRow(np.int16, wide=np.int64)
        #: Score from 0 to 100 per percent of utilisation, for RequestedToCapacityRatio.
        self._shape = shape_table(args.scoring_strategy.shape) if args.scoring_strategy.shape else None

    def registrations(self) -> Sequence[Registration]:
        """Pods that go or shrink; nodes that come or get larger."""
        return (
            Registration(
                Resource.POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN, _hint_after_pod_change, never
            ),
            Registration(
                Resource.NODE,
                Action.ADD | Action.UPDATE_NODE_ALLOCATABLE,
                self._hint_after_node_change,
                never,
            ),
        )

    def prefilter(self, candidate: Candidate, snapshot: Snapshot) -> PreFiltered:
        """Every pod takes at least a pod's place."""
        return _RoomFilter(self._asked.of(candidate.pod), snapshot, self._rooms, self._shortages)

    def prescore(self, candidate: Candidate, snapshot: Snapshot, feasible: Feasible) -> PreScored:
        """Never skipped."""
        del feasible  # scores are absolute: nothing is compared between nodes
        request = self._score_request.of(candidate.pod)
        return _RoomScorer(snapshot, request, self._strategy, self._shape, self._kept)

    def _hint_after_node_change(self, pod: Pod, old: Node | None, new: Node | None) -> Hint:
        """
        Source: fit.go, isSchedulableAfterNodeChange (kubernetes 1.36).

        Upstream forgets the ignore lists here, so that a node without an ignored resource wakes nobody there.
        """
        if new is None or new.allocatable.get(PODS, 0) < 1:
            return Hint.SKIP
        asked = self._asked.of(pod)
        if any(amount > new.allocatable.get(name, 0) for name, amount in asked):
            return Hint.SKIP
        if old is None:
            return Hint.QUEUE
        compared = (PODS, *(name for name, _ in asked))
        grown = any(new.allocatable.get(name, 0) > old.allocatable.get(name, 0) for name in compared)
        return Hint.QUEUE if grown else Hint.SKIP


def checked_amounts(request: Mapping[str, int], args: NodeResourcesFitArgs) -> _Asked:
    """
    What the filter compares, in its order: cpu, memory and ephemeral-storage, then the others by name.

    A request of 0 is never compared; ignore lists concern extended resources alone.
    """
    plain = [(name, request[name]) for name in _PLAIN if request.get(name, 0) > 0]
    scalar = [
        (name, amount)
        for name, amount in sorted(request.items())
        if amount and name not in _PLAIN and not _is_ignored(name, args)
    ]
    return (*plain, *scalar)


def _is_ignored(name: str, args: NodeResourcesFitArgs) -> bool:
    if not is_extended(name):
        return False
    return name in args.ignored_resources or name.partition("/")[0] in args.ignored_resource_groups


class _RoomFilter:
    """Pods and requested resources against allocatable minus requested."""

    def __init__(
        self, asked: _Asked, snapshot: Snapshot, rooms: PerRow[np.bool_], shortages: PerRow[np.uint8]
    ) -> None:
        self._asked = asked
        self._snapshot = snapshot
        self._rooms = rooms
        self._shortages = shortages

    def fits(self) -> Mask:
        """Nodes without a shortage. O(changed rows) per requested resource."""
        return self._rooms.of(self._asked, self._snapshot, self._fitting)

    def again(self, rows: Sequence[int]) -> Mask:
        """See `PodFilter`: what a node has left decides about it alone."""
        del rows  # the log that is read has them
        return self.fits()

    def _fitting(self, rows: Where) -> Truth:
        nodes = self._snapshot.nodes
        fitting = nodes.pods_left(rows) > 0
        for name, amount in self._asked:
            fitting &= amount <= nodes.left(name, rows)
        return fitting

    def refusals(self) -> Refusals:
        """
        Every shortage of each node, in order; unresolvable where one would be there on an empty node too.

        O(changed rows) per requested resource where these are few: what a bound pod's record tells is read each time.
        """
        if len(self._asked) <= _FEW_RESOURCES:
            codes = self._shortages.of(self._asked, self._snapshot, self._short)
            return Refusals(codes.copy(), _combinations(self._asked), self._shortages.tally(self._asked))
        rows, nodes = np.flatnonzero(~self.fits()), self._snapshot.nodes
        short = [np.asarray(nodes.pods_left(rows) <= 0)]
        hopeless = np.zeros(len(rows), dtype=np.bool_)
        for name, amount in self._asked:
            short.append(np.broadcast_to(amount > nodes.left(name, rows), len(rows)))
            hopeless |= amount > _allocatable(nodes, name, rows)
        of_refused = combined_refusals(short, hopeless, _reasons(self._asked))
        codes = np.zeros(self._snapshot.n_rows, dtype=np.intp)
        codes[rows] = of_refused.codes
        return Refusals(codes, of_refused.statuses)

    def _short(self, rows: Where) -> int | npt.NDArray[np.uint8]:
        """One bit for each reason, in order, and one above them where a node is hopeless: no more than 8 in all."""
        if isinstance(rows, int) and self.fits().item(rows):
            return 0
        nodes = self._snapshot.nodes
        bits: Amount = 1 * (nodes.pods_left(rows) <= 0)
        hopeless: Truth = False
        for number, (name, amount) in enumerate(self._asked, start=1):
            bits = bits + (1 << number) * (amount > nodes.left(name, rows))
            hopeless = hopeless | (amount > _allocatable(nodes, name, rows))
        bits = bits + (2 << len(self._asked)) * hopeless
        return bits if isinstance(bits, int) else bits.astype(np.uint8)


def _allocatable(nodes: NodeTable, resource: str, rows: Where) -> Amount:
    """What pods may take of the resource, 0 where no node has it."""
    used = nodes.used(resource, rows)
    return 0 if used is None else used[1]


def _reasons(asked: _Asked) -> tuple[str, ...]:
    return (TOO_MANY_PODS, *(f"Insufficient {name}" for name, _ in asked))


@lru_cache(maxsize=256)
def _combinations(asked: _Asked) -> tuple[Status, ...]:
    """The statuses of all sets of reasons, as `_RoomFilter._short` numbers them."""
    reasons = _reasons(asked)
    return tuple(
        Status(
            Code.UNRESOLVABLE if bits >> len(reasons) else Code.UNSCHEDULABLE,
            tuple(reason for number, reason in enumerate(reasons) if bits >> number & 1),
        )
        for bits in range(1, 2 << len(reasons))
    )


def combined_refusals(short: Sequence[Mask], hopeless: Mask, reasons: Sequence[str]) -> Refusals:
    """
    One status for each combination of shortages that occurs.

    Args:
        short: per reason a bool array of shape (n_rows,), where it applies.
        hopeless: bool array of shape (n_rows,), where no removal of pods helps; never without a reason.
        reasons: the texts, in the order in which a node reports them.

    Cost: O(n_reasons * n_rows), 30 µs per reason at 5,000.
    """
    codes = np.zeros(len(hopeless), dtype=np.intp)
    combinations: list[tuple[bool, ...]] = [()]
    for applies in (*short, hopeless):
        # Numbered anew after each mask, so that codes stay small however many resources a pod names.
        codes = 2 * codes + applies
        occurs = np.bincount(codes) > 0
        combinations = [(*combinations[c >> 1], bool(c & 1)) for c in np.flatnonzero(occurs).tolist()]
        codes = (np.cumsum(occurs) - 1)[codes]
    # Without any shortage is the lowest number and has to be 0; where it does not occur all others move up.
    starts_fitting = bool(combinations) and not any(combinations[0])
    statuses = [
        Status(
            Code.UNRESOLVABLE if is_hopeless else Code.UNSCHEDULABLE,
            tuple(reason for reason, applies in zip(reasons, applying, strict=True) if applies),
        )
        for *applying, is_hopeless in combinations[int(starts_fitting) :]
    ]
    return Refusals(codes if starts_fitting else codes + 1, statuses)


class _RoomScorer:
    """How full each node would be with the pod on it."""

    def __init__(
        self,
        snapshot: Snapshot,
        request: Mapping[str, int],
        strategy: ScoringStrategy,
        shape: Amounts | None,
        kept: PerRow[np.signedinteger],
    ) -> None:
        self._snapshot = snapshot
        self._request = request
        self._strategy = strategy
        self._shape = shape
        self._kept = kept

    def raw(self) -> Scores:
        """
        The weighted mean over the configured resources that a node has: int16 array of shape (n_rows,).

        A node without any of them gets 0. RequestedToCapacityRatio leaves out resources that score 0, and rounds.
        Cost: O(changed rows) per configured resource.
        """
        asked = tuple(self._request.get(resource.name, 0) for resource in self._strategy.resources)
        return self._kept.of(asked, self._snapshot, self._means)

    def _means(self, rows: Where) -> Amount:
        total: Amount = 0
        weights: Amount = 0
        for resource in self._strategy.resources:
            columns = self._columns(resource.name, rows)
            if columns is None:
                continue
            requested, allocatable = columns
            scores = self._scores(requested, allocatable)
            # Where a resource does not count it scores 0, so that only the weights have to be left out.
            total = total + resource.weight * scores
            weights = weights + resource.weight * (allocatable > 0 if self._shape is None else scores > 0)
        if self._shape is not None:
            return rounded_quotient(total, weights)
        return total // at_least(1, weights)

    def normalized(self, raw: Scores) -> Scores:
        """As they are: from 0 to 100 already."""
        return raw

    def again(self, rows: Sequence[int]) -> Rescored:
        """See `NodeScorer`: what a node has left decides about it alone."""
        return self.raw(), rows

    def _columns(self, name: str, rows: Where) -> tuple[Amount, Amount] | None:
        """Requested with the pod, and allocatable; None where the resource counts on no node."""
        nodes, asked = self._snapshot.nodes, self._request.get(name, 0)
        if name not in _PLAIN and (asked == 0 or not is_scalar(name)):
            return None
        used = nodes.used(name, rows, non_zero=True)
        return None if used is None else (used[0] + asked, used[1])

    def _scores(self, requested: Amount, allocatable: Amount) -> Amount:
        if self._shape is not None:
            return ratio_scores(requested, allocatable, self._shape)
        if self._strategy.type == "MostAllocated":
            return most_allocated_scores(requested, allocatable)
        return least_allocated_scores(requested, allocatable)


def least_allocated_scores(requested: Amount, allocatable: Amount) -> Amount:
    """Percent left free, 0 where more is requested than there is."""
    return 100 * at_least(0, allocatable - requested) // at_least(1, allocatable)


def most_allocated_scores(requested: Amount, allocatable: Amount) -> Amount:
    """Percent requested, 100 where it is more than there is."""
    return 100 * lesser(requested, allocatable) // at_least(1, allocatable)


def ratio_scores(requested: Amount, allocatable: Amount, shape: Amounts) -> Amount:
    """The shape's score at the percentage requested, which is beyond its ends where it wrapped; 0 for nothing."""
    percentage = lesser(at_least(0, most_allocated_scores(requested, allocatable)), 100)
    return at(shape, percentage) * (allocatable > 0)


def shape_table(shape: Sequence[ShapePoint]) -> Amounts:
    """
    The broken line through the points, stretched from 0..10 to 0..100, at each percent: int64 array of shape (101,).

    Go's division cuts towards zero, so a falling line is rounded up where `//` would round down.
    Source: plugins/helper/shape_score.go, BuildBrokenLinearFunction (kubernetes 1.36).
    """
    return np.array([_height(shape, utilization) for utilization in range(101)], dtype=np.int64)


def _height(shape: Sequence[ShapePoint], utilization: int) -> int:
    for before, after in zip((None, *shape), shape, strict=False):
        if utilization <= after.utilization:
            if before is None:
                return _SHAPE_STRETCH * after.score
            rise = _SHAPE_STRETCH * (after.score - before.score) * (utilization - before.utilization)
            run = after.utilization - before.utilization
            climbed = rise // run if rise >= 0 else -(-rise // run)
            return _SHAPE_STRETCH * before.score + climbed
    return _SHAPE_STRETCH * shape[-1].score


def rounded_quotient(total: Amount, weights: Amount) -> Amount:
    """Total / weights, halves away from zero; 0 where there are no weights."""
    quotient = total / at_least(1, weights)
    below = whole(quotient)
    return below + (quotient - below >= 0.5)


def _hint_after_pod_change(pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
    """
    Source: fit.go, isSchedulableAfterPodEvent (kubernetes 1.36).

    A deleted pod counts whatever it held; a pod that shrank only where it shrank in something that is requested.
    """
    if new is None:
        freed = old is not None and bool(old.node_name or old.nominated_node_name)
        return Hint.QUEUE if freed else Hint.SKIP
    if new.uid == pod.uid:
        return Hint.QUEUE
    if old is None or not new.node_name:
        return Hint.SKIP
    before, after = on_node_request(old), on_node_request(new)
    wanted = (name for name, amount in filter_request(pod).items() if amount)
    return Hint.QUEUE if any(before.get(n, 0) > after.get(n, 0) for n in wanted) else Hint.SKIP

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
from functools import partial
from typing import ClassVar, Final

import numpy as np

from scheduler.framework.events import Action, ClusterEventWithHint, Hint, Resource, never
from scheduler.framework.explaining import ExplainContext, PluginExplanation
from scheduler.framework.interface import Feasible, FinalScores, PodContext, PreFiltered, PreScored
from scheduler.framework.memo import MemoBySpec
from scheduler.framework.plugin_context import PluginContext
from scheduler.framework.status import Code, NodeStatuses, Status
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod
from scheduler.model.requests import (
    PODS,
    filter_request,
    fit_score_request,
    is_extended,
    on_node_request,
)
from scheduler.plugins.node_resources.args import NodeResourcesFitArgs, ShapePoint
from scheduler.plugins.node_resources.explaining import explain_shortages
from scheduler.plugins.node_resources.resource_allocation import PLAIN_RESOURCES, counts_in_score
from scheduler.state.arrays import Amount, Amounts, Mask, Truth, Where, amount_at, at_least, lesser, truncated
from scheduler.state.node_table import NodeTable
from scheduler.state.snapshot import Snapshot

NAME: Final = "NodeResourcesFit"

TOO_MANY_PODS: Final = "Too many pods"

#: Scores of a shape are configured from 0 to 10.
_SHAPE_STRETCH: Final = 10

_Asked = tuple[tuple[str, int], ...]


class NodeResourcesFit:
    """Requests against what nodes have left."""

    name = NAME
    extension_points: ClassVar = ("preFilter", "filter", "preScore", "score", "placementScore")
    default_weight: ClassVar = 1
    args_type: ClassVar = NodeResourcesFitArgs

    def __init__(self, args: NodeResourcesFitArgs, _context: PluginContext) -> None:
        self._args = args
        self._asked = MemoBySpec(lambda pod: checked_amounts(filter_request(pod), args))
        self._score_request = MemoBySpec(fit_score_request)
        self._strategy = args.scoring_strategy
        #: Score from 0 to 100 per percent of utilisation, for RequestedToCapacityRatio.
        self._shape = shape_table(args.scoring_strategy.shape) if args.scoring_strategy.shape else None

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Pods that go or shrink; nodes that come or get larger."""
        return (
            ClusterEventWithHint(
                Resource.POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN, _hint_after_pod_change, never
            ),
            ClusterEventWithHint(
                Resource.NODE,
                Action.ADD | Action.UPDATE_NODE_ALLOCATABLE,
                self._hint_after_node_change,
                never,
            ),
        )

    def prefilter(self, context: PodContext, snapshot: Snapshot) -> PreFiltered:
        """Every pod takes at least a pod's place."""
        return _RoomFilter(self._asked.of(context.pod), snapshot)

    def explain(self, context: ExplainContext) -> PluginExplanation:
        """Group nodes by the shortage; propose that pods leave, or more room."""
        return explain_shortages(context, self._asked.of(context.pod))

    def prescore(self, context: PodContext, snapshot: Snapshot, feasible: Feasible) -> PreScored:
        """Never skipped."""
        del feasible  # scores are absolute: nothing is compared between nodes
        request = self._score_request.of(context.pod)
        asked = tuple(request.get(resource.name, 0) for resource in self._strategy.resources)
        key = (self, asked)
        return FinalScores(snapshot.scores_per_row(key, partial(self._means, snapshot.nodes, request)))

    def _means(self, nodes: NodeTable, request: Mapping[str, int], where: Where) -> Amount:
        """
        Return the weighted mean over the configured resources that a node has.

        A node without any of them gets 0. RequestedToCapacityRatio leaves out resources that score 0, and rounds.
        """
        total: Amount = 0
        weights: Amount = 0
        for resource in self._strategy.resources:
            asked = request.get(resource.name, 0)
            use = nodes.use(resource.name, where, with_defaults=True)
            if use is None or not counts_in_score(resource.name, asked):
                continue
            requested, allocatable = use
            scores = self._scores(requested + asked, allocatable)
            # A resource that a node lacks scores 0, so that only its weight has to be left out.
            total = total + resource.weight * scores
            weights = weights + resource.weight * (allocatable > 0 if self._shape is None else scores > 0)
        if self._shape is not None:
            return rounded_quotient(total, weights)
        return total // at_least(1, weights)

    def _scores(self, requested: Amount, allocatable: Amount) -> Amount:
        if self._shape is not None:
            return ratio_scores(requested, allocatable, self._shape)
        if self._strategy.type == "MostAllocated":
            return most_allocated_scores(requested, allocatable)
        return least_allocated_scores(requested, allocatable)

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
    plain = [(name, request[name]) for name in PLAIN_RESOURCES if request.get(name, 0) > 0]
    scalar = [
        (name, amount)
        for name, amount in sorted(request.items())
        if amount and name not in PLAIN_RESOURCES and not _is_ignored(name, args)
    ]
    return (*plain, *scalar)


def _is_ignored(name: str, args: NodeResourcesFitArgs) -> bool:
    if not is_extended(name):
        return False
    return name in args.ignored_resources or name.partition("/")[0] in args.ignored_resource_groups


class _RoomFilter:
    """Pods and requested resources against allocatable minus requested."""

    def __init__(self, asked: _Asked, snapshot: Snapshot) -> None:
        self._asked = asked
        self._nodes = snapshot.nodes
        self._snapshot = snapshot

    def mask(self) -> Mask:
        """Return the rows without a shortage. O(changed rows) per requested resource."""
        return self._snapshot.per_row((NAME, self._asked), self._fitting, np.bool_)

    def _fitting(self, where: Where) -> Truth:
        fitting = self._nodes.pods_left(where) > 0
        for name, amount in self._asked:
            fitting &= self._nodes.left(name, where) >= amount
        return fitting

    def statuses(self) -> NodeStatuses:
        """
        Return every shortage of each row, in order; unresolvable if one would be there on an empty node too.

        O(refused rows) per requested resource.
        """
        rows, nodes = np.flatnonzero(~self.mask()), self._nodes
        short = [np.asarray(nodes.pods_left(rows) <= 0)]
        hopeless = np.zeros(len(rows), dtype=np.bool_)
        for name, amount in self._asked:
            short.append(np.broadcast_to(nodes.left(name, rows) < amount, len(rows)))
            use = nodes.use(name, rows)
            hopeless |= use is None or amount > use[1]
        reasons = (TOO_MANY_PODS, *(f"Insufficient {name}" for name, _ in self._asked))
        of_refused = combined_statuses(short, hopeless, reasons)
        codes = np.zeros(self._snapshot.n_rows, dtype=np.intp)
        codes[rows] = of_refused.codes
        return NodeStatuses(codes, of_refused.statuses)


def combined_statuses(short: Sequence[Mask], hopeless: Mask, reasons: Sequence[str]) -> NodeStatuses:
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
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE if is_hopeless else Code.UNSCHEDULABLE,
            tuple(reason for reason, applies in zip(reasons, applying, strict=True) if applies),
        )
        for *applying, is_hopeless in combinations[int(starts_fitting) :]
    ]
    return NodeStatuses(codes if starts_fitting else codes + 1, statuses)


def least_allocated_scores(requested: Amount, allocatable: Amount) -> Amount:
    """Return percent left free, 0 where more is requested than there is."""
    return 100 * at_least(0, allocatable - requested) // at_least(1, allocatable)


def most_allocated_scores(requested: Amount, allocatable: Amount) -> Amount:
    """Return percent requested, 100 where it is more than there is."""
    return 100 * lesser(requested, allocatable) // at_least(1, allocatable)


def ratio_scores(requested: Amount, allocatable: Amount, shape: Amounts) -> Amount:
    """Return the shape's score at the percentage requested, at its ends where that wrapped; 0 for nothing."""
    percentage = lesser(at_least(0, most_allocated_scores(requested, allocatable)), 100)
    return amount_at(shape, percentage) * (allocatable > 0)


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
    """Return total / weights, halves away from zero; 0 where there are no weights."""
    quotient = total / at_least(1, weights)
    below = truncated(quotient)
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

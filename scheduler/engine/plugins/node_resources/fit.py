"""
NodeResourcesFit: refuse nodes without room for the pod's requests, and score how full each node would be.

Filter: one more pod, and every requested resource, must fit into allocatable minus requested; a node reports all its
shortages. If a request exceeds allocatable itself, removing pods does not help. An extended resource that a device
class provides is not checked on nodes that do not offer it themselves: DynamicResources finds devices for it.
Score, by strategy: LeastAllocated prefers empty nodes, MostAllocated full ones, RequestedToCapacityRatio follows its
shape. Containers without a request count with defaults for cpu and memory; pod-level requests of the incoming pod do
not count.

Source: plugins/noderesources/{fit,resource_allocation,least_allocated,most_allocated,requested_to_capacity_ratio}.go
(kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from operator import and_, or_
from typing import ClassVar, Final

import numpy as np

from scheduler.engine.framework.events import (
    Action,
    ClusterEventWithHint,
    Hint,
    Resource,
    freed_node,
    never,
    queue_if,
)
from scheduler.engine.framework.explaining import ExplainContext, PluginExplanation
from scheduler.engine.framework.interface import (
    CountingExtensions,
    FeasibleNodes,
    FilterPlugin,
    FinalScores,
    PodContext,
    PreFiltered,
    PreFilterExtensions,
    PreScored,
    RoomFilter,
    ScorePlugin,
)
from scheduler.engine.framework.memo import MemoBySpec
from scheduler.engine.framework.plugin_context import PluginContext
from scheduler.engine.framework.shape import rounded_quotient, shape_table
from scheduler.engine.framework.status import Code, NodeStatuses, Status
from scheduler.engine.model.devices import CLASS_RESOURCE_PREFIX, DeviceClass, DeviceKind
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.pods import Pod, PodSpec
from scheduler.engine.model.requests import (
    PODS,
    filter_request,
    fit_score_request,
    is_extended,
    on_node_request,
)
from scheduler.engine.plugins.node_resources.explaining import explain_shortages
from scheduler.engine.plugins.node_resources.resource_allocation import (
    PLAIN_RESOURCES,
    NodeResourcesFitArgs,
    Uses,
    counts_in_score,
    scored_uses,
)
from scheduler.engine.state.arrays import (
    Amount,
    Amounts,
    Mask,
    RowIndex,
    Rows,
    Truth,
    amount_at,
    maximum,
    minimum,
)
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.extended_resources import is_provided_by_classes

NAME: Final = "NodeResourcesFit"

TOO_MANY_PODS: Final = "Too many pods"

#: Added to what is left of a resource where it is not checked: more than any request.
UNCHECKED: Final = 1 << 61

_NONE_PROVIDED: Final[frozenset[str]] = frozenset()

_Request = tuple[tuple[str, int], ...]


class NodeResourcesFit(FilterPlugin, ScorePlugin):
    """Filters and scores nodes by their free resources."""

    name = NAME
    extension_points: ClassVar = ("preFilter", "filter", "preScore", "score", "placementScore")
    args_type: ClassVar = NodeResourcesFitArgs
    storage_kinds: ClassVar = (DeviceKind.CLASS,)

    def __init__(self, args: NodeResourcesFitArgs, context: PluginContext) -> None:
        self._args = args
        self._is_provided = context.is_provided_by_class
        self._request = MemoBySpec(lambda pod: checked_amounts(filter_request(pod), args))
        self._score_request = MemoBySpec(fit_score_request)
        self._strategy = args.scoring_strategy
        self._extended = tuple(
            each.name for each in self._strategy.resources if is_provided_by_classes(each.name)
        )
        #: Score from 0 to 100 at each percent of utilisation, for RequestedToCapacityRatio.
        ratio = self._strategy.requested_to_capacity_ratio
        self._shape = None if ratio is None else shape_table(ratio.shape)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return deleted and scaled-down pods, new nodes, and changed allocatable."""
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
            ClusterEventWithHint(
                Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE, _hint_after_class_change, never
            ),
        )

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Return the filter; no pod is skipped, since each counts as one pod."""
        return _RoomFilter(self._request.of(context.pod), view)

    def explain(self, context: ExplainContext) -> PluginExplanation:
        """Group nodes by shortage; propose to remove pods or to add room."""
        return explain_shortages(context, _RoomFilter(self._request.of(context.pod), context.view))

    def prescore(self, context: PodContext, view: ClusterView, feasible: FeasibleNodes) -> PreScored:
        """Return the scorer; no pod is skipped."""
        del feasible  # scores are absolute: nothing is compared between nodes
        request = self._score_request.of(context.pod)
        amounts = tuple(request.get(resource.name, 0) for resource in self._strategy.resources)
        uses, version = scored_uses(self._extended, view) if self._extended else (view.nodes, None)
        key = (self, amounts, version)
        return FinalScores(view.per_row(key, partial(self._means, uses, request), np.int16))

    def _means(self, uses: Uses, request: Mapping[str, int], rows: RowIndex) -> Amount:
        """
        Return the weighted mean score of the configured resources that a node has.

        A node without any of them gets 0. RequestedToCapacityRatio leaves out resources that score 0, and rounds.
        """
        total: Amount = 0
        weights: Amount = 0
        for resource in self._strategy.resources:
            amount = request.get(resource.name, 0)
            use = uses.use(resource.name, rows, with_defaults=True)
            if use is None or not counts_in_score(resource.name, amount):
                continue
            requested, allocatable = use
            scores = self._scores(requested + amount, allocatable)
            # A resource that a node lacks scores 0; its weight is left out too.
            total = total + resource.weight * scores
            weights = weights + resource.weight * (allocatable > 0 if self._shape is None else scores > 0)
        if self._shape is not None:
            return rounded_quotient(total, weights)
        return total // maximum(weights, 1)

    def _scores(self, requested: Amount, allocatable: Amount) -> Amount:
        if self._shape is not None:
            return ratio_scores(requested, allocatable, self._shape)
        if self._strategy.type == "MostAllocated":
            return most_allocated_scores(requested, allocatable)
        return least_allocated_scores(requested, allocatable)

    def _hint_after_node_change(self, pod: Pod, old: Node | None, new: Node | None) -> Hint:
        """
        Source: fit.go, isSchedulableAfterNodeChange (kubernetes 1.36).

        Upstream does not apply the ignore lists here, so that a node without an ignored resource wakes no pod there.
        """
        if new is None or new.allocatable.get(PODS, 0) < 1:
            return Hint.SKIP
        request = self._request.of(pod)
        from_devices = {
            name for name, _ in request if not new.allocatable.get(name) and self._is_provided(name)
        }
        if any(amount > new.allocatable.get(name, 0) for name, amount in request if name not in from_devices):
            return Hint.SKIP
        if old is None:
            return Hint.QUEUE
        compared = (PODS, *(name for name, _ in request))
        return queue_if(
            bool(from_devices) or any(new.allocatable.get(n, 0) > old.allocatable.get(n, 0) for n in compared)
        )


def checked_amounts(request: Mapping[str, int], args: NodeResourcesFitArgs) -> _Request:
    """
    Return the amounts that the filter checks, in order: cpu, memory and ephemeral-storage, then the others by name.

    A request of 0 is not checked. Ignore lists apply only to extended resources.
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


class _RoomFilter(RoomFilter):
    """Refuses nodes with fewer pods or resources left than the pod needs."""

    def __init__(self, request: _Request, view: ClusterView) -> None:
        self.request = request
        self.reasons = (TOO_MANY_PODS, *(f"Insufficient {name}" for name, _ in request))
        self._nodes = view.nodes
        self._view = view
        devices = view.devices
        #: Resources that DynamicResources finds devices for on nodes that do not offer them.
        self._provided = (
            frozenset(name for name, _ in request if devices.provides(name))
            if devices.extended_resources
            else _NONE_PROVIDED
        )
        self._used: dict[PodSpec, tuple[int, ...]] = {}

    def spare(self, rows: RowIndex) -> list[Amount]:
        """Implement `RoomFilter.spare`; more than any request where devices are found for the resource."""
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
        """Return, as `spare` in order, whether more is needed than the node has at all, whichever pods leave."""
        exceeding: list[Truth] = [False]
        for name, amount in self.request:
            use = self._nodes.use(name, rows)
            allocatable = 0 if use is None else use[1]
            exceeding.append((amount > allocatable) & (name not in self._provided or allocatable > 0))
        return exceeding

    def mask(self) -> Mask:
        """Return the rows without a shortage. O(changed rows) per requested resource."""
        return self._view.per_row((NAME, self.request, self._provided), self._fitting, np.bool_)

    def _fitting(self, rows: RowIndex) -> Truth:
        return reduce(and_, [spare >= 0 for spare in self.spare(rows)])

    def copies(self) -> Amounts:
        """Return how many pods of the same request each row has room for. O(n_rows) per requested resource."""
        spare, amounts = self.spare(slice(0, self._view.n_rows)), (1, *(amount for _, amount in self.request))
        each = [np.asarray(left) // amount + 1 for left, amount in zip(spare, amounts, strict=True)]
        return reduce(np.minimum, each).astype(np.int64)

    def statuses(self) -> NodeStatuses:
        """
        Return every shortage of each row, in order; unresolvable if a request exceeds allocatable.

        O(refused rows) per requested resource.
        """
        rows = np.flatnonzero(~self.mask())
        of_refused = self.statuses_beside(rows, [np.zeros(1, dtype=np.int64)] * len(self.reasons))
        codes = np.zeros(self._view.n_rows, dtype=np.intp)
        codes[rows] = of_refused.codes
        return NodeStatuses(codes, of_refused.statuses)

    def statuses_beside(self, rows: Rows, taken: Sequence[Amounts]) -> NodeStatuses:
        """Return every shortage of these rows, in order, once other pods have taken so much."""
        # Of one entry if no node has the resource, and so little is as good as any.
        short = [np.less(left, by_others) for left, by_others in zip(self.spare(rows), taken, strict=True)]
        exceeds = np.broadcast_to(reduce(or_, self.exceeding(rows)), len(rows))
        return combined_statuses(short, exceeds, self.reasons)

    def trial(self, row: int) -> PreFilterExtensions:
        """Return the answer while pods come and go."""
        return _RoomTrial(self, row)

    def used_by(self, pod: Pod) -> tuple[int, ...]:
        """Return one pod, and what another pod takes of each requested resource. 0.3 µs for a known spec."""
        used = self._used.get(pod.spec) if pod.resize is None else None
        if used is None:
            requested = self._view.usage_of(pod).requested
            used = (1, *(requested.get(name, 0) for name, _ in self.request))
            if pod.resize is None:
                self._used[pod.spec] = used
        return used


class _RoomTrial(CountingExtensions):
    """The room on one node while pods come and go there."""

    __slots__ = ("_exceeding", "_filter", "_spare")

    def __init__(self, room: _RoomFilter, row: int) -> None:
        self._filter = room
        self._spare = room.spare(row)
        self._exceeding = room.exceeding(row)

    def count(self, pod: Pod, delta: int) -> None:
        """Take the pod's usage from the rest, or give it back. 1 µs."""
        spare = self._spare
        for index, amount in enumerate(self._filter.used_by(pod)):
            if amount:
                spare[index] -= delta * amount

    def refusal(self) -> Status | None:
        """Return every shortage, in order."""
        short = [
            index
            for index, (spare, exceeds) in enumerate(zip(self._spare, self._exceeding, strict=True))
            if spare < 0 or exceeds
        ]
        if not short:
            return None
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if any(self._exceeding) else Code.UNSCHEDULABLE
        return Status(code, tuple(self._filter.reasons[index] for index in short))


def combined_statuses(short: Sequence[Mask], unresolvable: Mask, reasons: Sequence[str]) -> NodeStatuses:
    """
    Return the statuses of the rows, one status per combination of shortages that occurs.

    Args:
        short: per reason a bool array of shape (n_rows,): the rows to which it applies.
        unresolvable: bool array of shape (n_rows,): rows on which removing pods does not help. Each has a reason.
        reasons: the texts, in the order in which a node reports them.

    Cost: O(n_reasons * n_rows), 30 µs at 5,000 rows per reason that applies to some of the rows only.
    """
    codes = np.zeros(len(unresolvable), dtype=np.intp)
    combinations: list[tuple[bool, ...]] = [()]
    for applies in (*short, unresolvable):
        n_applying = int(np.count_nonzero(applies))
        if n_applying in (0, len(applies)):
            # A mask with one value splits no combination, such as that of a resource which no node has.
            combinations = [(*combination, n_applying > 0) for combination in combinations]
            continue
        # Codes are renumbered after each mask, so that they stay small however many resources a pod requests.
        codes = 2 * codes + applies
        occurs = np.bincount(codes) > 0
        combinations = [(*combinations[c >> 1], bool(c & 1)) for c in np.flatnonzero(occurs).tolist()]
        codes = (np.cumsum(occurs) - 1)[codes]
    # Code 0 means no shortage. It is the lowest combination; if it does not occur, all codes are raised by 1.
    starts_fitting = not any(combinations[0])
    statuses = [
        Status(
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE if is_unresolvable else Code.UNSCHEDULABLE,
            tuple(reason for reason, applies in zip(reasons, applying, strict=True) if applies),
        )
        for *applying, is_unresolvable in combinations[int(starts_fitting) :]
    ]
    return NodeStatuses(codes if starts_fitting else codes + 1, statuses)


def least_allocated_scores(requested: Amount, allocatable: Amount) -> Amount:
    """Return the free share in percent, 0 if more is requested than allocatable."""
    return 100 * maximum(allocatable - requested, 0) // maximum(allocatable, 1)


def most_allocated_scores(requested: Amount, allocatable: Amount) -> Amount:
    """Return the requested share in percent, at most 100."""
    return 100 * minimum(requested, allocatable) // maximum(allocatable, 1)


def ratio_scores(requested: Amount, allocatable: Amount, shape: Amounts) -> Amount:
    """Return the shape's score at the requested share; 0 if nothing is allocatable."""
    return amount_at(shape, most_allocated_scores(requested, allocatable)) * (allocatable > 0)


def _hint_after_class_change(pod: Pod, old: DeviceClass | None, new: DeviceClass | None) -> Hint:
    """
    Return QUEUE if the class provides a resource that the pod requests, and did not before.

    Source: fit.go, isSchedulableAfterDeviceClassEvent (kubernetes 1.36).
    """
    if new is None or (old is not None and old.extended_resource == new.extended_resource):
        return Hint.SKIP
    request = filter_request(pod)
    if old is None and CLASS_RESOURCE_PREFIX + new.key in request:
        return Hint.QUEUE
    return queue_if(bool(new.extended_resource) and new.extended_resource in request)


def _hint_after_pod_change(pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
    """
    Source: fit.go, isSchedulableAfterPodEvent (kubernetes 1.36).

    Any deleted pod with a node counts; a scaled-down pod only if it frees a resource that the pod requests.
    """
    if new is None:
        return queue_if(freed_node(old))
    if new.uid == pod.uid:
        return Hint.QUEUE
    if old is None or not new.node_name:
        return Hint.SKIP
    before, after = on_node_request(old), on_node_request(new)
    wanted = (name for name, amount in filter_request(pod).items() if amount)
    return queue_if(any(before.get(n, 0) > after.get(n, 0) for n in wanted))

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
from functools import partial
from typing import ClassVar, Final

import numpy as np

from scheduler.engine.framework.events import (
    Action,
    ClusterEventWithHint,
    Hint,
    Resource,
    freed_node,
    queue_if,
)
from scheduler.engine.framework.explaining import ExplainContext, PluginExplanation
from scheduler.engine.framework.interface import (
    FeasibleNodes,
    FilterPlugin,
    FinalScores,
    PluginContext,
    PodContext,
    PreFiltered,
    PreScored,
    ScorePlugin,
)
from scheduler.engine.framework.room import Request, RoomFilter
from scheduler.engine.framework.shape import rounded_quotient, shape_table
from scheduler.engine.model.devices import CLASS_RESOURCE_PREFIX, DeviceClass, DeviceKind
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.pods import MemoBySpec, Pod
from scheduler.engine.model.requests import (
    PLAIN_RESOURCES,
    PODS,
    filter_request,
    fit_score_request,
    is_extended,
    on_node_request,
)
from scheduler.engine.plugins.node_resources.explaining import explain_shortages
from scheduler.engine.plugins.node_resources.resource_allocation import (
    NodeResourcesFitArgs,
    Uses,
    counts_in_score,
    scored_uses,
)
from scheduler.engine.state.arrays import Amount, Amounts, RowIndex, amount_at, maximum, minimum
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.extended_resources import is_provided_by_classes

NAME: Final = "NodeResourcesFit"


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
                Resource.POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN, _hint_after_pod_change
            ),
            ClusterEventWithHint(
                Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, self._hint_after_node_change
            ),
            ClusterEventWithHint(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE, _hint_after_class_change),
        )

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Return the filter, never Skip: each pod takes one of the `pods` that a node allows."""
        return RoomFilter(self._request.of(context.pod), view)

    def explain(self, context: ExplainContext) -> PluginExplanation:
        """Group nodes by shortage; propose to remove pods or to add room."""
        return explain_shortages(context, RoomFilter(self._request.of(context.pod), context.view))

    def prescore(self, context: PodContext, view: ClusterView, feasible: FeasibleNodes) -> PreScored:
        """Return the scorer; no pod is skipped."""
        del feasible  # scores are absolute: nothing is compared between nodes
        request = self._score_request.of(context.pod)
        amounts = tuple(request.get(resource.name, 0) for resource in self._strategy.resources)
        uses, version = scored_uses(self._extended, view) if self._extended else (view.nodes, None)
        key = (self, amounts, version)
        return FinalScores(view.per_row(key, partial(self._means, uses, request), np.int16))

    def _means(self, uses: Uses, request: Mapping[str, int], rows: RowIndex) -> Amount:
        """Return the weighted mean score of the configured resources that a node has."""
        # A node without any of them gets 0. RequestedToCapacityRatio leaves out resources that score 0, and rounds.
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
        # Source: fit.go, isSchedulableAfterNodeChange (kubernetes 1.36). Upstream does not apply the ignore lists here,
        # so that a node without an ignored resource wakes no pod there.
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


def checked_amounts(request: Mapping[str, int], args: NodeResourcesFitArgs) -> Request:
    """Return the amounts that are checked, none of 0: cpu, memory and ephemeral-storage, then the others by name."""
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
    """Return QUEUE if the class provides a resource that the pod requests, and did not before."""
    # Source: fit.go, isSchedulableAfterDeviceClassEvent (kubernetes 1.36).
    if new is None or (old is not None and old.extended_resource == new.extended_resource):
        return Hint.SKIP
    request = filter_request(pod)
    if old is None and CLASS_RESOURCE_PREFIX + new.key in request:
        return Hint.QUEUE
    return queue_if(bool(new.extended_resource) and new.extended_resource in request)


def _hint_after_pod_change(pod: Pod, old: Pod | None, new: Pod | None) -> Hint:
    # Source: fit.go, isSchedulableAfterPodEvent (kubernetes 1.36). Any deleted pod with a node counts; a scaled-down
    # pod only if it frees a resource that the pod requests.
    if new is None:
        return queue_if(freed_node(old))
    if new.uid == pod.uid:
        return Hint.QUEUE
    if old is None or not new.node_name:
        return Hint.SKIP
    before, after = on_node_request(old), on_node_request(new)
    wanted = (name for name, amount in filter_request(pod).items() if amount)
    return queue_if(any(before.get(n, 0) > after.get(n, 0) for n in wanted))

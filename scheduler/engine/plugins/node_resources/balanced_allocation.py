"""
NodeResourcesBalancedAllocation: prefer nodes on which the pod makes the use of resources more even.

The score depends on the change of balance by the pod: 75 if there is none, up to 100 if use becomes more even, down to
50 if it becomes less even. Balance is 100 minus the standard deviation of the used fractions in percent.

Source: plugins/noderesources/balanced_allocation.go (kubernetes 1.36). float64 throughout, no fused multiply-add.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from itertools import combinations
from operator import add
from typing import ClassVar

import numpy as np

from scheduler.engine.framework.interface import (
    FeasibleNodes,
    FinalScores,
    PluginContext,
    PodContext,
    PreScored,
    ScorePlugin,
)
from scheduler.engine.framework.status import SKIP
from scheduler.engine.model.pods import MemoBySpec
from scheduler.engine.model.requests import on_node_request
from scheduler.engine.plugins.node_resources.resource_allocation import (
    NodeResourcesBalancedAllocationArgs,
    Uses,
    counts_in_score,
    scored_uses,
)
from scheduler.engine.state.arrays import Amount, Fraction, RowIndex, Truth, maximum, truncated
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.extended_resources import is_provided_by_classes


class NodeResourcesBalancedAllocation(ScorePlugin):
    """Scores nodes by the balance of used resources. It refuses no node, so it registers no event."""

    name = "NodeResourcesBalancedAllocation"
    extension_points: ClassVar = ("preScore", "score")
    args_type: ClassVar = NodeResourcesBalancedAllocationArgs

    def __init__(self, args: NodeResourcesBalancedAllocationArgs, _context: PluginContext) -> None:
        self._resources = tuple(resource.name for resource in args.resources)
        self._extended = tuple(filter(is_provided_by_classes, self._resources))
        self._request = MemoBySpec(on_node_request)

    def prescore(self, context: PodContext, view: ClusterView, feasible: FeasibleNodes) -> PreScored:
        """Skip a pod that requests none of the configured resources."""
        del feasible  # scores are absolute: nothing is compared between nodes
        pod = context.pod
        request = self._request.of(pod) if pod.resize is None else on_node_request(pod)
        if not any(request.get(name) for name in self._resources):
            return SKIP
        amounts = tuple(request.get(name, 0) for name in self._resources)
        uses, version = scored_uses(self._extended, view) if self._extended else (view.nodes, None)
        return FinalScores(
            view.per_row((self, amounts, version), partial(self._scores, uses, request), np.int16)
        )

    def _scores(self, uses: Uses, request: Mapping[str, int], rows: RowIndex) -> Amount:
        """Return scores from 50 to 100."""
        amounts = [
            (*use, amount)
            for name in self._resources
            if counts_in_score(name, amount := request.get(name, 0)) and (use := uses.use(name, rows))
        ]
        has = [allocatable > 0 for _, allocatable, _ in amounts]
        before = [used_fraction(used, allocatable) for used, allocatable, _ in amounts]
        after = [used_fraction(used + amount, allocatable) for used, allocatable, amount in amounts]
        change = balance(deviation(after, has)) - balance(deviation(before, has))
        # Never negative, so that flooring is Go's truncation.
        return 50 + (50 + change) // 2


def used_fraction(used: Amount, allocatable: Amount) -> Fraction:
    """Return used / allocatable, at most 1; undefined if allocatable is 0."""
    fraction = used / maximum(allocatable, 1)
    return np.minimum(fraction, 1.0) if isinstance(fraction, np.ndarray) else min(fraction, 1.0)


def balance(deviations: Fraction) -> Amount:
    """Return the balance from 50 to 100 for a standard deviation from 0.5 to 0."""
    return truncated((1.0 - deviations) * 100.0)


def deviation(fractions: Sequence[Fraction], has: Sequence[Truth]) -> Fraction:
    """
    Return the standard deviation over the resources that each node has.

    Args:
        fractions: per resource the used fraction, of one node or of several.
        has: per resource whether a node has it.

    It is half the difference if a node has two resources, and 0 if it has fewer. As upstream, these cases are computed
    separately and sums follow the order of the configuration, since other ways differ in the last bit.
    """
    if len(fractions) < 2:
        return 0.0
    if len(fractions) == 2:
        return _half_apart(fractions, has)
    n_resources: Amount = 0
    for there in has:
        n_resources = n_resources + there
    n_divisor = maximum(n_resources, 1)
    mean = _summed(fractions, has) / n_divisor
    variance = _summed([(fraction - mean) * (fraction - mean) for fraction in fractions], has) / n_divisor
    # On a node that has two resources, exactly one pair is not 0.
    pairs = zip(combinations(fractions, 2), combinations(has, 2), strict=True)
    apart = reduce(add, [_half_apart(pair, there) for pair, there in pairs])
    return np.sqrt(variance) * (n_resources > 2) + apart * (n_resources == 2)


def _half_apart(pair: Sequence[Fraction], has: Sequence[Truth]) -> Fraction:
    apart = pair[0] - pair[1]
    distance: Fraction = np.abs(apart) if isinstance(apart, np.ndarray) else abs(apart)
    return distance / 2.0 * (has[0] & has[1])


def _summed(fractions: Sequence[Fraction], has: Sequence[Truth]) -> Fraction:
    """Return the sum over the resources that each node has, added in order as upstream's loop does."""
    total: Fraction = 0.0
    for fraction, there in zip(fractions, has, strict=True):
        total = total + fraction * there
    return total

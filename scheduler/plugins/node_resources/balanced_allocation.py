"""
NodeResourcesBalancedAllocation: prefer nodes whose resources the pod makes more evenly used.

The score is the change of balance that the pod brings: 75 where it changes nothing, up to 100 where it evens out,
down to 50 where it tips. Balance is 100 less the standard deviation of the used fractions.

Source: plugins/noderesources/balanced_allocation.go (kubernetes 1.36). float64 throughout, no fused multiply-add.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from itertools import combinations
from operator import add
from typing import Final

import numpy as np

from scheduler.framework.interface import Feasible, FinalScores, PodContext, PreScored
from scheduler.framework.memo import MemoBySpec
from scheduler.framework.plugin_args import NodeResourcesBalancedAllocationArgs
from scheduler.framework.status import SKIP
from scheduler.model.requests import balanced_request
from scheduler.plugins.node_resources.resource_allocation import counts_in_score
from scheduler.state.arrays import Amounts, Fractions, Mask, Where
from scheduler.state.node_table import NodeTable
from scheduler.state.snapshot import Snapshot

NAME: Final = "NodeResourcesBalancedAllocation"


class NodeResourcesBalancedAllocation:
    """Evenness of use. It never refuses, so no event concerns it."""

    name = NAME

    def __init__(self, args: NodeResourcesBalancedAllocationArgs) -> None:
        self._resources = tuple(resource.name for resource in args.resources)
        self._request = MemoBySpec(balanced_request)

    def prescore(self, context: PodContext, snapshot: Snapshot, feasible: Feasible) -> PreScored:
        """Nothing to do where the pod requests none of the configured resources."""
        del feasible  # scores are absolute: nothing is compared between nodes
        pod = context.pod
        request = self._request.of(pod) if pod.resize is None else balanced_request(pod)
        if not any(request.get(name) for name in self._resources):
            return SKIP
        asked = tuple(request.get(name, 0) for name in self._resources)
        nodes = snapshot.nodes
        return FinalScores(snapshot.scores_per_row((self, asked), partial(self._scores, nodes, request)))

    def _scores(self, nodes: NodeTable, request: Mapping[str, int], rows: Where) -> Amounts:
        """Return scores from 50 to 100 at the rows."""
        columns = []
        for name in self._resources:
            asked, allocatable, used = request.get(name, 0), nodes.allocatable(name), nodes.requested(name)
            if allocatable is not None and used is not None and counts_in_score(name, asked):
                columns.append((allocatable[rows], used[rows], asked))
        has = [allocatable > 0 for allocatable, _, _ in columns]
        before = [used_fraction(used, allocatable) for allocatable, used, _ in columns]
        after = [used_fraction(used + asked, allocatable) for allocatable, used, asked in columns]
        n_rows = len(nodes.alive[rows])
        change = balance(deviation(after, has, n_rows)) - balance(deviation(before, has, n_rows))
        # Never negative, so that flooring is Go's truncation.
        return 50 + (50 + change) // 2


def used_fraction(used: Amounts, allocatable: Amounts) -> Fractions:
    """Return used / allocatable, at most 1; anything where nothing is allocatable."""
    return np.minimum(used / np.maximum(allocatable, 1), 1.0)


def balance(deviations: Fractions) -> Amounts:
    """Return 50 to 100, the higher the more evenly used."""
    return ((1.0 - deviations) * 100.0).astype(np.int64)


def deviation(fractions: Sequence[Fractions], has: Sequence[Mask], n_rows: int) -> Fractions:
    """
    Return the standard deviation over the resources that each node has: float64 array of shape (n_rows,).

    Args:
        fractions: per resource the used fractions.
        has: per resource whether a node has it.
        n_rows: length of all these arrays.

    Half the difference where a node has two, 0 where it has fewer. Upstream computes these apart, and sums in the
    order of the configuration: any other way would differ in the last bit.
    """
    if len(fractions) < 2:
        return np.zeros(n_rows)
    if len(fractions) == 2:
        return _half_apart(fractions, has)
    n_resources = reduce(add, [there.astype(np.int64) for there in has])
    n_divisor = np.maximum(n_resources, 1)
    mean = _summed(fractions, has) / n_divisor
    variance = _summed([(fraction - mean) * (fraction - mean) for fraction in fractions], has) / n_divisor
    # Of all pairs only one is there on a node that has two.
    pairs = zip(combinations(fractions, 2), combinations(has, 2), strict=True)
    apart = reduce(add, [_half_apart(pair, there) for pair, there in pairs])
    return np.where(n_resources > 2, np.sqrt(variance), apart * (n_resources == 2))


def _half_apart(pair: Sequence[Fractions], has: Sequence[Mask]) -> Fractions:
    return np.abs(pair[0] - pair[1]) / 2.0 * (has[0] & has[1])


def _summed(fractions: Sequence[Fractions], has: Sequence[Mask]) -> Fractions:
    """Add one after the other in their order, as upstream's loop does; leave out what a node does not have."""
    return reduce(add, [fraction * there for fraction, there in zip(fractions, has, strict=True)])

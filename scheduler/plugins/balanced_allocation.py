"""
NodeResourcesBalancedAllocation: prefer nodes whose resources the pod makes more evenly used.

The score is the change of balance that the pod brings: 75 where it changes nothing, up to 100 where it evens out,
down to 50 where it tips. Balance is 100 less the standard deviation of the used fractions.

Source: plugins/noderesources/balanced_allocation.go (kubernetes 1.36). float64 throughout, no fused multiply-add.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import combinations
from operator import add
from typing import Final

import numpy as np

from scheduler.framework.caching import PerRow, PerSpec
from scheduler.framework.interface import Candidate, Feasible, PreScored, Rescored
from scheduler.framework.plugin_args import NodeResourcesBalancedAllocationArgs
from scheduler.framework.verdicts import SKIP
from scheduler.model.requests import CPU, EPHEMERAL_STORAGE, MEMORY, balanced_request, is_scalar
from scheduler.state.arrays import Amount, Fraction, Scores, Truth, Where, at_least, whole
from scheduler.state.snapshot import Snapshot

NAME: Final = "NodeResourcesBalancedAllocation"

_PLAIN: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)


class NodeResourcesBalancedAllocation:
    """Evenness of use. It never refuses, so no event concerns it."""

    name = NAME

    def __init__(self, args: NodeResourcesBalancedAllocationArgs) -> None:
        self._resources = tuple(resource.name for resource in args.resources)
        self._request = PerSpec(balanced_request)
        #: By what is requested of the configured resources.
        self._kept: PerRow[np.signedinteger] = PerRow(np.int16, wide=np.int64)

    def prescore(self, candidate: Candidate, snapshot: Snapshot, feasible: Feasible) -> PreScored:
        """Nothing to do where the pod requests none of the configured resources."""
        del feasible  # scores are absolute: nothing is compared between nodes
        pod = candidate.pod
        request = self._request.of(pod) if pod.resize is None else balanced_request(pod)
        if not any(request.get(name) for name in self._resources):
            return SKIP
        return _BalanceScorer(snapshot, self._resources, request, self._kept)


class _BalanceScorer:
    """Balance with the pod against balance without it."""

    def __init__(
        self,
        snapshot: Snapshot,
        resources: Sequence[str],
        request: Mapping[str, int],
        kept: PerRow[np.signedinteger],
    ) -> None:
        self._snapshot = snapshot
        self._resources = resources
        self._request = request
        self._kept = kept

    def raw(self) -> Scores:
        """From 50 to 100: int16 array of shape (n_rows,). O(changed rows) per configured resource."""
        asked = tuple(self._request.get(name, 0) for name in self._resources)
        return self._kept.of(asked, self._snapshot, self._balances)

    def _balances(self, rows: Where) -> Amount:
        columns = [columns for name in self._resources if (columns := self._columns(name, rows)) is not None]
        has = [allocatable > 0 for allocatable, _, _ in columns]
        before = [used_fraction(used, allocatable) for allocatable, used, _ in columns]
        after = [used_fraction(used + asked, allocatable) for allocatable, used, asked in columns]
        change = balance(deviation(after, has)) - balance(deviation(before, has))
        # Never negative, so that flooring is Go's truncation.
        return 50 + (50 + change) // 2

    def normalized(self, raw: Scores) -> Scores:
        """As they are."""
        return raw

    def again(self, rows: Sequence[int]) -> Rescored:
        """See `NodeScorer`: what a node has left decides about it alone."""
        return self.raw(), rows

    def _columns(self, name: str, rows: Where) -> tuple[Amount, Amount, int] | None:
        """Allocatable, requested and the pod's amount; None where the resource counts on no node."""
        nodes, asked = self._snapshot.nodes, self._request.get(name, 0)
        if name not in _PLAIN and (asked == 0 or not is_scalar(name)):
            return None
        used = nodes.used(name, rows)
        return None if used is None else (used[1], used[0], asked)


def used_fraction(used: Amount, allocatable: Amount) -> Fraction:
    """Used / allocatable, at most 1; anything where nothing is allocatable."""
    fraction = used / at_least(1, allocatable)
    return np.minimum(fraction, 1.0) if isinstance(fraction, np.ndarray) else min(fraction, 1.0)


def balance(deviations: Fraction) -> Amount:
    """From 50 to 100, the higher the more evenly used."""
    return whole((1.0 - deviations) * 100.0)


def deviation(fractions: Sequence[Fraction], has: Sequence[Truth]) -> Fraction:
    """
    Standard deviation over the resources that each node has.

    Args:
        fractions: per resource the used fraction, of one node or of several.
        has: per resource whether a node has it.

    Half the difference where a node has two, 0 where it has fewer. Upstream computes these apart, and sums in the
    order of the configuration: any other way would differ in the last bit.
    """
    if len(fractions) < 2:
        return 0.0
    if len(fractions) == 2:
        return _half_apart(fractions, has)
    n_resources: Amount = 0
    for there in has:
        n_resources = n_resources + there
    n_divisor = at_least(1, n_resources)
    mean = _summed(fractions, has) / n_divisor
    variance = _summed([(fraction - mean) * (fraction - mean) for fraction in fractions], has) / n_divisor
    # Of all pairs only one is there on a node that has two.
    pairs = zip(combinations(fractions, 2), combinations(has, 2), strict=True)
    apart = reduce(add, [_half_apart(pair, there) for pair, there in pairs])
    return np.sqrt(variance) * (n_resources > 2) + apart * (n_resources == 2)


def _half_apart(pair: Sequence[Fraction], has: Sequence[Truth]) -> Fraction:
    apart = pair[0] - pair[1]
    distance: Fraction = np.abs(apart) if isinstance(apart, np.ndarray) else abs(apart)
    return distance / 2.0 * (has[0] & has[1])


def _summed(fractions: Sequence[Fraction], has: Sequence[Truth]) -> Fraction:
    """Added one after the other in their order, as upstream's loop does; what a node does not have is left out."""
    total: Fraction = 0.0
    for fraction, there in zip(fractions, has, strict=True):
        total = total + fraction * there
    return total

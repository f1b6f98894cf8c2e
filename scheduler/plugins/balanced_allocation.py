"""
NodeResourcesBalancedAllocation: prefer nodes whose resources the pod makes more evenly used.

The score is the change of balance that the pod brings: 75 where it changes nothing, up to 100 where it evens out,
down to 50 where it tips. Balance is 100 less the standard deviation of the used fractions.

Source: plugins/noderesources/balanced_allocation.go (kubernetes 1.36). float64 throughout, no fused multiply-add.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler.framework.caching import PerRow, PerSpec
from scheduler.framework.interface import Candidate, Feasible, PreScored
from scheduler.framework.plugin_args import NodeResourcesBalancedAllocationArgs
from scheduler.framework.verdicts import SKIP
from scheduler.model.requests import CPU, EPHEMERAL_STORAGE, MEMORY, balanced_request, is_scalar
from scheduler.state.arrays import Amounts, Mask, Rows
from scheduler.state.snapshot import Snapshot

NAME: Final = "NodeResourcesBalancedAllocation"

_PLAIN: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)

#: float64 per node row.
Fractions = npt.NDArray[np.float64]


class NodeResourcesBalancedAllocation:
    """Evenness of use. It never refuses, so no event concerns it."""

    name = NAME

    def __init__(self, args: NodeResourcesBalancedAllocationArgs) -> None:
        self._resources = tuple(resource.name for resource in args.resources)
        self._request = PerSpec(balanced_request)
        #: By what is requested of the configured resources.
        self._kept: PerRow[np.int64] = PerRow()

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
        kept: PerRow[np.int64],
    ) -> None:
        self._snapshot = snapshot
        self._resources = resources
        self._request = request
        self._kept = kept

    def raw(self) -> Amounts:
        """From 50 to 100: int64 array of shape (n_rows,). O(changed rows) per configured resource."""
        asked = tuple(self._request.get(name, 0) for name in self._resources)
        return self._kept.of(asked, self._snapshot, self._balances)

    def _balances(self, rows: Rows | slice) -> Amounts:
        columns = [columns for name in self._resources if (columns := self._columns(name, rows)) is not None]
        has = [allocatable > 0 for allocatable, _, _ in columns]
        before = [used_fraction(used, allocatable) for allocatable, used, _ in columns]
        after = [used_fraction(used + asked, allocatable) for allocatable, used, asked in columns]
        n_rows = len(self._snapshot.alive[rows])
        change = balance(deviation(after, has, n_rows)) - balance(deviation(before, has, n_rows))
        # Never negative, so that flooring is Go's truncation.
        return 50 + (50 + change) // 2

    def normalized(self, raw: Amounts) -> Amounts:
        """As they are."""
        return raw

    def _columns(self, name: str, rows: Rows | slice) -> tuple[Amounts, Amounts, int] | None:
        """Allocatable, requested and the pod's amount; None where the resource counts on no node."""
        nodes, asked = self._snapshot.nodes, self._request.get(name, 0)
        if name not in _PLAIN and (asked == 0 or not is_scalar(name)):
            return None
        allocatable, requested = nodes.allocatable(name), nodes.requested(name)
        if allocatable is None or requested is None:
            return None
        return allocatable[rows], requested[rows], asked


def used_fraction(used: Amounts, allocatable: Amounts) -> Fractions:
    """Used / allocatable, at most 1: float64 array of shape (n_rows,); anything where nothing is allocatable."""
    return np.minimum(used / np.maximum(allocatable, 1), 1.0)


def balance(deviations: Fractions) -> Amounts:
    """From 50 to 100, the higher the more evenly used: int64 array of shape (n_rows,)."""
    return ((1.0 - deviations) * 100.0).astype(np.int64)


def deviation(fractions: Sequence[Fractions], has: Sequence[Mask], n_rows: int) -> Fractions:
    """
    Standard deviation over the resources that each node has: float64 array of shape (n_rows,).

    Args:
        fractions: per resource a float64 array of shape (n_rows,), used fractions.
        has: per resource a bool array of shape (n_rows,), nodes that have the resource.
        n_rows: for pods whose resources no node has.

    Half the difference where a node has two, 0 where it has fewer. Upstream computes these apart, and sums in the
    order of the configuration: any other way would differ in the last bit.
    """
    if len(fractions) < 2:
        return np.zeros(n_rows, dtype=np.float64)
    if len(fractions) == 2:
        half_apart: Fractions = np.abs(fractions[0] - fractions[1]) / 2.0
        return np.where(has[0] & has[1], half_apart, 0.0)
    return _deviation_of_many(np.stack(fractions), np.stack(has))


def _deviation_of_many(fractions: Fractions, has: npt.NDArray[np.bool_]) -> Fractions:
    """As `deviation`, for arrays of shape (n_resources, n_rows)."""
    n_resources = has.sum(axis=0)
    highest = np.where(has, fractions, -np.inf).max(axis=0)
    lowest = np.where(has, fractions, np.inf).min(axis=0)
    n_divisor = np.maximum(n_resources, 1).astype(np.float64)
    apart = fractions - _summed(np.where(has, fractions, 0.0)) / n_divisor
    spread = np.sqrt(_summed(np.where(has, apart * apart, 0.0)) / n_divisor)
    return np.select([n_resources > 2, n_resources == 2], [spread, (highest - lowest) / 2.0], 0.0)


def _summed(values: Fractions) -> Fractions:
    """The sum over resources, added one after the other in their order, as upstream's loop does."""
    total = np.zeros(values.shape[1], dtype=np.float64)
    for row in values:
        total = total + row
    return total

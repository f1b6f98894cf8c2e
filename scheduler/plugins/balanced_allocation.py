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

from scheduler.framework.caching import PerSpec
from scheduler.framework.interface import Candidate, Feasible, PreScored
from scheduler.framework.plugin_args import NodeResourcesBalancedAllocationArgs
from scheduler.framework.verdicts import SKIP
from scheduler.model.requests import CPU, EPHEMERAL_STORAGE, MEMORY, balanced_request, is_scalar
from scheduler.state.arrays import Amounts
from scheduler.state.snapshot import Snapshot

NAME: Final = "NodeResourcesBalancedAllocation"

_PLAIN: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)

#: float64 per resource and node row.
Fractions = npt.NDArray[np.float64]


class NodeResourcesBalancedAllocation:
    """Evenness of use. It never refuses, so no event concerns it."""

    name = NAME

    def __init__(self, args: NodeResourcesBalancedAllocationArgs) -> None:
        self._resources = tuple(resource.name for resource in args.resources)
        self._request = PerSpec(balanced_request)

    def prescore(self, candidate: Candidate, snapshot: Snapshot, feasible: Feasible) -> PreScored:
        """Nothing to do where the pod requests none of the configured resources."""
        del feasible  # scores are absolute: nothing is compared between nodes
        pod = candidate.pod
        request = self._request.of(pod) if pod.resize is None else balanced_request(pod)
        if not any(request.get(name) for name in self._resources):
            return SKIP
        return _BalanceScorer(snapshot, self._resources, request)


class _BalanceScorer:
    """Balance with the pod against balance without it."""

    def __init__(self, snapshot: Snapshot, resources: Sequence[str], request: Mapping[str, int]) -> None:
        self._snapshot = snapshot
        self._resources = resources
        self._request = request

    def raw(self) -> Amounts:
        """From 50 to 100: int64 array of shape (n_rows,). O(n_rows) per configured resource."""
        columns = [columns for name in self._resources if (columns := self._columns(name)) is not None]
        if not columns:
            return np.full(self._snapshot.n_rows, 75, dtype=np.int64)
        allocatable = np.stack([a for a, _, _ in columns])
        used = np.stack([u for _, u, _ in columns])
        asked = np.array([[amount] for _, _, amount in columns], dtype=np.int64)
        change = balance(used + asked, allocatable) - balance(used, allocatable)
        # Never negative, so flooring is Go's truncation.
        return 50 + (50 + change) // 2

    def normalized(self, raw: Amounts) -> Amounts:
        """As they are."""
        return raw

    def _columns(self, name: str) -> tuple[Amounts, Amounts, int] | None:
        """Allocatable, requested and the pod's amount; None where the resource counts on no node."""
        nodes, asked = self._snapshot.nodes, self._request.get(name, 0)
        if name not in _PLAIN and (asked == 0 or not is_scalar(name)):
            return None
        allocatable, requested = nodes.allocatable(name), nodes.requested(name)
        if allocatable is None or requested is None:
            return None
        return allocatable, requested, asked


def balance(used: Amounts, allocatable: Amounts) -> Amounts:
    """
    From 50 to 100, the higher the more evenly used: int64 array of shape (n_rows,).

    Args:
        used: int64 array of shape (n_resources, n_rows).
        allocatable: likewise; a resource that a node has not got is left out of its balance.
    """
    has = allocatable > 0
    fractions = np.minimum(1.0, used.astype(np.float64) / np.maximum(allocatable, 1).astype(np.float64))
    return ((1.0 - deviation(fractions, has)) * 100.0).astype(np.int64)


def deviation(fractions: Fractions, has: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """
    Standard deviation over the resources that each node has: float64 array of shape (n_rows,).

    Half the difference where there are two, 0 where there are fewer; upstream computes both apart, and summing in
    another order would differ in the last bit.
    """
    n_resources = has.sum(axis=0)
    highest = np.where(has, fractions, -np.inf).max(axis=0)
    lowest = np.where(has, fractions, np.inf).min(axis=0)
    half_apart = np.where(n_resources == 2, np.abs(highest - lowest) / 2.0, 0.0)
    if len(has) <= 2:
        return half_apart
    n_divisor = np.maximum(n_resources, 1).astype(np.float64)
    mean = _summed(np.where(has, fractions, 0.0)) / n_divisor
    apart = fractions - mean
    spread = np.sqrt(_summed(np.where(has, apart * apart, 0.0)) / n_divisor)
    return np.where(n_resources > 2, spread, half_apart)


def _summed(values: Fractions) -> npt.NDArray[np.float64]:
    """The sum over resources, added one after the other in their order, as upstream's loop does."""
    total = np.zeros(values.shape[1], dtype=np.float64)
    for row in values:
        total = total + row
    return total

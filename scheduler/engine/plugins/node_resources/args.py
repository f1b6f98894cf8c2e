"""
The arguments of NodeResourcesFit and NodeResourcesBalancedAllocation, with defaults filled in and values validated.

Source: staging/src/k8s.io/kube-scheduler/config/v1/types_pluginargs.go and
pkg/scheduler/apis/config/v1/defaults.go (kubernetes 1.36).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from scheduler.engine.framework.shape import ShapePoint

ScoringStrategyType = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]


@dataclass(frozen=True, slots=True)
class ResourceWeight:
    """A resource that counts in a score, and its weight from 1 to 100."""

    name: str
    weight: int = 1


CPU_AND_MEMORY: Final = (ResourceWeight("cpu"), ResourceWeight("memory"))


@dataclass(frozen=True, slots=True)
class ScoringStrategy:
    """
    How NodeResourcesFit scores a node.

    `shape` is empty unless `type` is RequestedToCapacityRatio; then it has at least one point, in strictly increasing
    order of utilization. Scores are as configured (0 to 10), not yet scaled to 100.
    """

    type: ScoringStrategyType = "LeastAllocated"
    resources: tuple[ResourceWeight, ...] = CPU_AND_MEMORY
    shape: tuple[ShapePoint, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeResourcesFitArgs:
    """Extended resources that the filter ignores, by name or by the part before the slash, and the scoring strategy."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy()


@dataclass(frozen=True, slots=True)
class NodeResourcesBalancedAllocationArgs:
    """The resources whose utilisation should be even; names are unique and every weight is 1."""

    resources: tuple[ResourceWeight, ...] = CPU_AND_MEMORY

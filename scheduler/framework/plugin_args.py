"""
The arguments of the in-tree plugins, complete: defaults are filled in and every rule was checked on reading.

Source: staging/src/k8s.io/kube-scheduler/config/v1/types_pluginargs.go and
pkg/scheduler/apis/config/v1/defaults.go (kubernetes 1.36).
"""

from dataclasses import dataclass
from typing import Final, Literal

ScoringStrategyType = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]
DefaultingType = Literal["System", "List"]
WhenUnsatisfiable = Literal["DoNotSchedule", "ScheduleAnyway"]


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


@dataclass(frozen=True, slots=True)
class InterPodAffinityArgs:
    """
    `hard_pod_affinity_weight` (0 to 100): what a required affinity counts as a preference in reverse.

    `exempt_namespaces`: pods there are invisible to required anti-affinity, in both directions. Not upstream's.
    """

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False
    exempt_namespaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeAffinityArgs:
    """`added_affinity`: a v1 NodeAffinity as JSON values, whose terms parse; ANDed to every pod's own."""

    added_affinity: dict[str, object] | None = None


@dataclass(frozen=True, slots=True)
class DefaultConstraint:
    """
    A topology spread constraint for pods that have none; its selector is deduced per pod.

    `min_domains`, the policies and `match_label_keys` are as written (None or empty where absent): upstream
    does not check them either.
    """

    max_skew: int
    topology_key: str
    when_unsatisfiable: WhenUnsatisfiable
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


SYSTEM_DEFAULT_CONSTRAINTS: Final = (
    DefaultConstraint(3, "kubernetes.io/hostname", "ScheduleAnyway"),
    DefaultConstraint(5, "topology.kubernetes.io/zone", "ScheduleAnyway"),
)


@dataclass(frozen=True, slots=True)
class PodTopologySpreadArgs:
    """Where default constraints come from; `default_constraints` is empty if `defaulting_type` is System."""

    defaulting_type: DefaultingType = "System"
    default_constraints: tuple[DefaultConstraint, ...] = ()

    @property
    def effective_default_constraints(self) -> tuple[DefaultConstraint, ...]:
        """
        The constraints of a pod that declares none, in order.

        Source: podtopologyspread/plugin.go, systemDefaultConstraints (kubernetes 1.36).
        """
        return SYSTEM_DEFAULT_CONSTRAINTS if self.defaulting_type == "System" else self.default_constraints


PluginArgs = (
    InterPodAffinityArgs
    | NodeAffinityArgs
    | NodeResourcesBalancedAllocationArgs
    | NodeResourcesFitArgs
    | PodTopologySpreadArgs
)

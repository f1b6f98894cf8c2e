"""
The version of Kubernetes whose decisions these are, and the feature gates that change them.

Source: pkg/features/kube_features.go, component-base/featuregate/feature_gate.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class Version(NamedTuple):
    """A minor version of Kubernetes."""

    major: int
    minor: int

    def __str__(self) -> str:
        """Return the version as upstream writes it, such as 1.36."""
        return f"{self.major}.{self.minor}"


class Stage(Enum):
    """How mature a feature is."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = "GA"


class Gate(StrEnum):
    """The feature gates that pkg/scheduler reads, with upstream's names."""

    DRA_ADMIN_ACCESS = "DRAAdminAccess"
    DRA_CONSUMABLE_CAPACITY = "DRAConsumableCapacity"
    DRA_DEVICE_BINDING_CONDITIONS = "DRADeviceBindingConditions"
    DRA_DEVICE_TAINT_RULES = "DRADeviceTaintRules"
    DRA_DEVICE_TAINTS = "DRADeviceTaints"
    DRA_EXTENDED_RESOURCE = "DRAExtendedResource"
    DRA_FRACTIONAL_CAPACITY_RANGE = "DRAFractionalCapacityRange"
    DRA_LIST_TYPE_ATTRIBUTES = "DRAListTypeAttributes"
    DRA_NODE_ALLOCATABLE_RESOURCES = "DRANodeAllocatableResources"
    DRA_PARTITIONABLE_DEVICES = "DRAPartitionableDevices"
    DRA_PRIORITIZED_LIST = "DRAPrioritizedList"
    DRA_RESOURCE_CLAIM_DEVICE_STATUS = "DRAResourceClaimDeviceStatus"
    DRA_SCHEDULER_FILTER_TIMEOUT = "DRASchedulerFilterTimeout"
    DRA_WORKLOAD_RESOURCE_CLAIMS = "DRAWorkloadResourceClaims"
    DYNAMIC_RESOURCE_ALLOCATION = "DynamicResourceAllocation"
    GANG_SCHEDULING = "GangScheduling"
    GENERIC_WORKLOAD = "GenericWorkload"
    IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING = "InPlacePodLevelResourcesVerticalScaling"
    IN_PLACE_POD_VERTICAL_SCALING = "InPlacePodVerticalScaling"
    MATCH_LABEL_KEYS_IN_POD_AFFINITY = "MatchLabelKeysInPodAffinity"
    MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD = "MatchLabelKeysInPodTopologySpread"
    MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD_SELECTOR_MERGE = "MatchLabelKeysInPodTopologySpreadSelectorMerge"
    NODE_DECLARED_FEATURES = "NodeDeclaredFeatures"
    NODE_INCLUSION_POLICY_IN_POD_TOPOLOGY_SPREAD = "NodeInclusionPolicyInPodTopologySpread"
    NOMINATED_NODE_NAME_FOR_EXPECTATION = "NominatedNodeNameForExpectation"
    OPPORTUNISTIC_BATCHING = "OpportunisticBatching"
    POD_LEVEL_RESOURCES = "PodLevelResources"
    SCHEDULER_ASYNC_API_CALLS = "SchedulerAsyncAPICalls"
    SCHEDULER_ASYNC_PREEMPTION = "SchedulerAsyncPreemption"
    SCHEDULER_POP_FROM_BACKOFF_Q = "SchedulerPopFromBackoffQ"
    SCHEDULER_QUEUEING_HINTS = "SchedulerQueueingHints"
    SIDECAR_CONTAINERS = "SidecarContainers"
    STORAGE_CAPACITY_SCORING = "StorageCapacityScoring"
    TAINT_TOLERATION_COMPARISON_OPERATORS = "TaintTolerationComparisonOperators"
    TOPOLOGY_AWARE_WORKLOAD_SCHEDULING = "TopologyAwareWorkloadScheduling"
    VOLUME_ATTRIBUTES_CLASS = "VolumeAttributesClass"
    VOLUME_LIMIT_SCALING = "VolumeLimitScaling"
    WORKLOAD_AWARE_PREEMPTION = "WorkloadAwarePreemption"


class GateChange(NamedTuple):
    """The default and the stage of a gate from a version on; upstream refuses to switch a locked gate."""

    since: Version
    default: bool
    stage: Stage
    is_locked: bool = False


def _alpha(minor: int) -> GateChange:
    return GateChange(Version(1, minor), False, Stage.ALPHA)


def _beta(minor: int, *, default: bool = True) -> GateChange:
    return GateChange(Version(1, minor), default, Stage.BETA)


def _ga(minor: int, *, is_locked: bool = False) -> GateChange:
    return GateChange(Version(1, minor), True, Stage.GA, is_locked)


#: The changes of each gate, oldest first. Before the first one the gate is unknown and off. 1.37: its changelog, since
#: its source was not read; a stage that it does not name is beta.
GATE_CHANGES: Final[Mapping[Gate, tuple[GateChange, ...]]] = MappingProxyType(
    {
        Gate.DRA_ADMIN_ACCESS: (_alpha(32), _beta(34), _ga(36, is_locked=True)),
        Gate.DRA_CONSUMABLE_CAPACITY: (_alpha(34), _beta(36)),
        Gate.DRA_DEVICE_BINDING_CONDITIONS: (_alpha(34), _beta(36)),
        Gate.DRA_DEVICE_TAINT_RULES: (_alpha(35), _beta(36, default=False), _ga(37)),
        Gate.DRA_DEVICE_TAINTS: (_alpha(33), _beta(36), _ga(37)),
        Gate.DRA_EXTENDED_RESOURCE: (_alpha(34), _beta(36), _ga(37)),
        Gate.DRA_FRACTIONAL_CAPACITY_RANGE: (_beta(37),),
        Gate.DRA_LIST_TYPE_ATTRIBUTES: (_alpha(36),),
        Gate.DRA_NODE_ALLOCATABLE_RESOURCES: (_alpha(36),),
        Gate.DRA_PARTITIONABLE_DEVICES: (_alpha(33), _beta(36)),
        Gate.DRA_PRIORITIZED_LIST: (_alpha(33), _beta(34), _ga(36)),
        Gate.DRA_RESOURCE_CLAIM_DEVICE_STATUS: (_alpha(32), _beta(33), _ga(37)),
        Gate.DRA_SCHEDULER_FILTER_TIMEOUT: (_beta(34),),
        Gate.DRA_WORKLOAD_RESOURCE_CLAIMS: (_alpha(36),),
        Gate.DYNAMIC_RESOURCE_ALLOCATION: (
            _alpha(26),
            _beta(32, default=False),
            _ga(34),
            _ga(35, is_locked=True),
        ),
        Gate.GANG_SCHEDULING: (_alpha(35),),
        Gate.GENERIC_WORKLOAD: (_alpha(35), _beta(37, default=False)),
        Gate.IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING: (_alpha(35), _beta(36)),
        Gate.IN_PLACE_POD_VERTICAL_SCALING: (_alpha(27), _beta(33), _ga(35, is_locked=True)),
        Gate.MATCH_LABEL_KEYS_IN_POD_AFFINITY: (_alpha(29), _beta(31), _ga(33, is_locked=True)),
        Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD: (_alpha(25), _beta(27)),
        Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD_SELECTOR_MERGE: (_beta(34),),
        Gate.NODE_DECLARED_FEATURES: (_alpha(35), _beta(36), _ga(37)),
        Gate.NODE_INCLUSION_POLICY_IN_POD_TOPOLOGY_SPREAD: (_alpha(25), _beta(26), _ga(33, is_locked=True)),
        Gate.NOMINATED_NODE_NAME_FOR_EXPECTATION: (_alpha(34), _beta(35)),
        Gate.OPPORTUNISTIC_BATCHING: (_beta(35),),
        Gate.POD_LEVEL_RESOURCES: (_alpha(32), _beta(34)),
        Gate.SCHEDULER_ASYNC_API_CALLS: (_beta(34, default=False),),
        Gate.SCHEDULER_ASYNC_PREEMPTION: (_alpha(32), _beta(33)),
        Gate.SCHEDULER_POP_FROM_BACKOFF_Q: (_beta(33),),
        Gate.SCHEDULER_QUEUEING_HINTS: (_beta(28, default=False), _beta(32), _ga(34, is_locked=True)),
        Gate.SIDECAR_CONTAINERS: (_alpha(28), _beta(29), _ga(33, is_locked=True)),
        Gate.STORAGE_CAPACITY_SCORING: (_alpha(33), _beta(37)),
        Gate.TAINT_TOLERATION_COMPARISON_OPERATORS: (_alpha(35),),
        Gate.TOPOLOGY_AWARE_WORKLOAD_SCHEDULING: (_alpha(36),),
        Gate.VOLUME_ATTRIBUTES_CLASS: (
            _alpha(29),
            _beta(31, default=False),
            _ga(34),
            _ga(36, is_locked=True),
        ),
        Gate.VOLUME_LIMIT_SCALING: (_alpha(35), _beta(37)),
        Gate.WORKLOAD_AWARE_PREEMPTION: (_alpha(36),),
    }
)


#: The gates that have to be on for a gate to be on.
GATE_DEPENDENCIES: Final[Mapping[Gate, tuple[Gate, ...]]] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                Gate.DRA_ADMIN_ACCESS,
                Gate.DRA_CONSUMABLE_CAPACITY,
                Gate.DRA_DEVICE_TAINTS,
                Gate.DRA_EXTENDED_RESOURCE,
                Gate.DRA_LIST_TYPE_ATTRIBUTES,
                Gate.DRA_NODE_ALLOCATABLE_RESOURCES,
                Gate.DRA_PARTITIONABLE_DEVICES,
                Gate.DRA_PRIORITIZED_LIST,
                Gate.DRA_SCHEDULER_FILTER_TIMEOUT,
            ),
            (Gate.DYNAMIC_RESOURCE_ALLOCATION,),
        ),
        Gate.DRA_DEVICE_BINDING_CONDITIONS: (
            Gate.DRA_RESOURCE_CLAIM_DEVICE_STATUS,
            Gate.DYNAMIC_RESOURCE_ALLOCATION,
        ),
        Gate.DRA_DEVICE_TAINT_RULES: (Gate.DRA_DEVICE_TAINTS,),
        Gate.DRA_WORKLOAD_RESOURCE_CLAIMS: (Gate.DYNAMIC_RESOURCE_ALLOCATION, Gate.GENERIC_WORKLOAD),
        Gate.GANG_SCHEDULING: (Gate.GENERIC_WORKLOAD,),
        Gate.IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING: (
            Gate.IN_PLACE_POD_VERTICAL_SCALING,
            Gate.NODE_DECLARED_FEATURES,
            Gate.POD_LEVEL_RESOURCES,
        ),
        Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD_SELECTOR_MERGE: (
            Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD,
        ),
        Gate.TOPOLOGY_AWARE_WORKLOAD_SCHEDULING: (Gate.GENERIC_WORKLOAD,),
        Gate.WORKLOAD_AWARE_PREEMPTION: (Gate.GANG_SCHEDULING,),
    }
)
#: The gates that nothing here reads: accepted as upstream's, and never reported to be on. Some need no reading, since
#: an API server without the gate drops its fields (VolumeAttributesClass).
WITHOUT_EFFECT: Final = frozenset(
    {
        Gate.DRA_LIST_TYPE_ATTRIBUTES,
        Gate.DRA_NODE_ALLOCATABLE_RESOURCES,
        Gate.DRA_SCHEDULER_FILTER_TIMEOUT,
        Gate.DRA_WORKLOAD_RESOURCE_CLAIMS,
        Gate.GANG_SCHEDULING,
        Gate.GENERIC_WORKLOAD,
        Gate.IN_PLACE_POD_VERTICAL_SCALING,
        Gate.OPPORTUNISTIC_BATCHING,
        Gate.SCHEDULER_ASYNC_API_CALLS,
        Gate.SCHEDULER_QUEUEING_HINTS,
        Gate.SIDECAR_CONTAINERS,
        Gate.TOPOLOGY_AWARE_WORKLOAD_SCHEDULING,
        Gate.VOLUME_ATTRIBUTES_CLASS,
        Gate.WORKLOAD_AWARE_PREEMPTION,
    }
)


@dataclass(frozen=True, slots=True)
class Semantics:
    """A version of Kubernetes, and the gates that are on."""

    version: Version
    gates: frozenset[Gate]

    def enabled(self, gate: Gate) -> bool:
        """Return whether the gate is on."""
        return gate in self.gates

    @property
    def minimum_compatibility(self) -> Version:
        """Upstream's default: one version before the emulated one, and no older than the oldest."""
        return max(OLDEST, Version(self.version.major, self.version.minor - 1))

    @property
    def frees_claims_beside_missing_devices(self) -> bool:
        """
        Whether a claim that is not available on a node is given up though the node lacks devices for another one.

        Source: kubernetes/kubernetes#139017, mended in 1.37.
        """
        return self.version >= Version(1, 37)

    @property
    def queues_groups_as_one(self) -> bool:
        """
        Whether a group is one entry of the queue, so that its members back off together, and new members with them.

        Source: kubernetes/kubernetes#138567 (1.37).
        """
        return self.version >= Version(1, 37)

    @property
    def stages(self) -> Mapping[Gate, Stage]:
        """The gates that the version has and that have an effect here, with their stages."""
        changes = {gate: change_at(gate, self.version) for gate in Gate if gate not in WITHOUT_EFFECT}
        return {gate: change.stage for gate, change in changes.items() if change is not None}


def semantics_of(version: Version, switched: Mapping[Gate, bool] = MappingProxyType({})) -> Semantics:
    """Return the version with its defaults, but for the gates that are switched on or off."""
    return Semantics(version, frozenset(gate for gate in Gate if switched.get(gate, _default(gate, version))))


def change_at(gate: Gate, version: Version) -> GateChange | None:
    """Return the default and the stage of a gate in this version, None if the version does not have the gate."""
    return next((each for each in reversed(GATE_CHANGES[gate]) if each.since <= version), None)


def _default(gate: Gate, version: Version) -> bool:
    change = change_at(gate, version)
    return change is not None and change.default


#: The versions that can be emulated.
OLDEST: Final = Version(1, 33)
NEWEST: Final = Version(1, 37)
#: Where neither a flag nor an API server says it: the version beside which the decisions were recorded.
DEFAULT_SEMANTICS: Final = semantics_of(Version(1, 36))

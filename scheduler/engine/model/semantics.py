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


class FeatureStage(Enum):
    """How mature a feature is."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = "GA"


class Gate(StrEnum):
    """The feature gates that change what is decided here, with upstream's names."""

    DRA_DEVICE_TAINT_RULES = "DRADeviceTaintRules"
    IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING = "InPlacePodLevelResourcesVerticalScaling"
    MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD = "MatchLabelKeysInPodTopologySpread"
    MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD_SELECTOR_MERGE = "MatchLabelKeysInPodTopologySpreadSelectorMerge"
    NODE_DECLARED_FEATURES = "NodeDeclaredFeatures"
    NOMINATED_NODE_NAME_FOR_EXPECTATION = "NominatedNodeNameForExpectation"
    POD_LEVEL_RESOURCES = "PodLevelResources"
    SCHEDULER_POP_FROM_BACKOFF_Q = "SchedulerPopFromBackoffQ"
    STORAGE_CAPACITY_SCORING = "StorageCapacityScoring"
    TAINT_TOLERATION_COMPARISON_OPERATORS = "TaintTolerationComparisonOperators"
    VOLUME_LIMIT_SCALING = "VolumeLimitScaling"


#: The other gates that upstream's pkg/scheduler reads: accepted whatever they are set to. Most need no reading, since
#: an API server without the gate drops its fields.
WITHOUT_EFFECT: Final = frozenset(
    {
        "DRAAdminAccess", "DRAConsumableCapacity", "DRADeviceBindingConditions", "DRADeviceTaints",
        "DRAExtendedResource", "DRAFractionalCapacityRange", "DRAListTypeAttributes",
        "DRANodeAllocatableResources", "DRAPartitionableDevices", "DRAPrioritizedList",
        "DRAResourceClaimDeviceStatus", "DRASchedulerFilterTimeout", "DRAWorkloadResourceClaims",
        "DynamicResourceAllocation", "GangScheduling", "GenericWorkload", "InPlacePodVerticalScaling",
        "MatchLabelKeysInPodAffinity", "NodeInclusionPolicyInPodTopologySpread", "OpportunisticBatching",
        "SchedulerAsyncAPICalls", "SchedulerAsyncPreemption", "SchedulerQueueingHints", "SidecarContainers",
        "TopologyAwareWorkloadScheduling", "VolumeAttributesClass", "WorkloadAwarePreemption",
    }
)  # fmt: skip


class GateChange(NamedTuple):
    """The default and the stage of a gate from a version on."""

    since: Version
    default: bool
    stage: FeatureStage


def _alpha(minor: int) -> GateChange:
    return GateChange(Version(1, minor), False, FeatureStage.ALPHA)


def _beta(minor: int, *, default: bool = True) -> GateChange:
    return GateChange(Version(1, minor), default, FeatureStage.BETA)


def _ga(minor: int) -> GateChange:
    return GateChange(Version(1, minor), True, FeatureStage.GA)


#: The changes of each gate, oldest first. Before the first one the gate is unknown and off. 1.37: its changelog, since
#: its source was not read; a stage that it does not name is beta.
GATE_CHANGES: Final[Mapping[Gate, tuple[GateChange, ...]]] = MappingProxyType(
    {
        Gate.DRA_DEVICE_TAINT_RULES: (_alpha(35), _beta(36, default=False), _ga(37)),
        Gate.IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING: (_alpha(35), _beta(36)),
        Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD: (_beta(27),),
        Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD_SELECTOR_MERGE: (_beta(34),),
        Gate.NODE_DECLARED_FEATURES: (_alpha(35), _beta(36), _ga(37)),
        Gate.NOMINATED_NODE_NAME_FOR_EXPECTATION: (_alpha(34), _beta(35)),
        Gate.POD_LEVEL_RESOURCES: (_beta(34),),
        Gate.SCHEDULER_POP_FROM_BACKOFF_Q: (_beta(33),),
        Gate.STORAGE_CAPACITY_SCORING: (_alpha(33), _beta(37)),
        Gate.TAINT_TOLERATION_COMPARISON_OPERATORS: (_alpha(35),),
        Gate.VOLUME_LIMIT_SCALING: (_alpha(35), _beta(37)),
    }
)


#: The gates that have to be on for a gate to be on.
GATE_DEPENDENCIES: Final[Mapping[Gate, tuple[Gate, ...]]] = MappingProxyType(
    {
        Gate.IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING: (
            Gate.NODE_DECLARED_FEATURES,
            Gate.POD_LEVEL_RESOURCES,
        ),
        Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD_SELECTOR_MERGE: (
            Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD,
        ),
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
    def stages(self) -> Mapping[Gate, FeatureStage]:
        """The gates that the version has, with their stages."""
        changes = {gate: change_at(gate, self.version) for gate in Gate}
        return {gate: change.stage for gate, change in changes.items() if change is not None}


def semantics_of(version: Version, switched: Mapping[Gate, bool] = MappingProxyType({})) -> Semantics:
    """Return the version with its defaults, but for the gates that are switched on or off."""
    changes = {gate: change_at(gate, version) for gate in Gate}
    by_default = {gate: change is not None and change.default for gate, change in changes.items()}
    return Semantics(version, frozenset(gate for gate in Gate if switched.get(gate, by_default[gate])))


def change_at(gate: Gate, version: Version) -> GateChange | None:
    """Return the default and the stage of a gate in this version, None if the version does not have the gate."""
    return next((each for each in reversed(GATE_CHANGES[gate]) if each.since <= version), None)


#: The versions that can be emulated.
OLDEST: Final = Version(1, 34)
NEWEST: Final = Version(1, 37)
#: Where neither a flag nor an API server says it: the version beside which the decisions were recorded.
DEFAULT_SEMANTICS: Final = semantics_of(Version(1, 36))

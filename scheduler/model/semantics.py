"""
The version of Kubernetes whose decisions these are, and the feature gates that change them.

Source: pkg/features/kube_features.go (kubernetes 1.36).
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
    """The feature gates that are honoured here, with upstream's names."""

    MATCH_LABEL_KEYS_IN_POD_AFFINITY = "MatchLabelKeysInPodAffinity"
    MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD = "MatchLabelKeysInPodTopologySpread"
    MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD_SELECTOR_MERGE = "MatchLabelKeysInPodTopologySpreadSelectorMerge"
    NODE_INCLUSION_POLICY_IN_POD_TOPOLOGY_SPREAD = "NodeInclusionPolicyInPodTopologySpread"
    POD_LEVEL_RESOURCES = "PodLevelResources"
    SCHEDULER_ASYNC_PREEMPTION = "SchedulerAsyncPreemption"
    SCHEDULER_POP_FROM_BACKOFF_Q = "SchedulerPopFromBackoffQ"


class GateChange(NamedTuple):
    """The default and the stage of a gate from a version on; upstream refuses to switch a locked gate."""

    since: Version
    default: bool
    stage: Stage
    is_locked: bool = False


#: The changes of each gate, oldest first. Before the first one the gate is off.
GATE_CHANGES: Final[Mapping[Gate, tuple[GateChange, ...]]] = MappingProxyType(
    {
        Gate.MATCH_LABEL_KEYS_IN_POD_AFFINITY: (
            GateChange(Version(1, 29), False, Stage.ALPHA),
            GateChange(Version(1, 31), True, Stage.BETA),
            GateChange(Version(1, 33), True, Stage.GA, is_locked=True),
        ),
        Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD: (
            GateChange(Version(1, 25), False, Stage.ALPHA),
            GateChange(Version(1, 27), True, Stage.BETA),
        ),
        Gate.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD_SELECTOR_MERGE: (
            GateChange(Version(1, 34), True, Stage.BETA),
        ),
        Gate.NODE_INCLUSION_POLICY_IN_POD_TOPOLOGY_SPREAD: (
            GateChange(Version(1, 25), False, Stage.ALPHA),
            GateChange(Version(1, 26), True, Stage.BETA),
            GateChange(Version(1, 33), True, Stage.GA, is_locked=True),
        ),
        Gate.POD_LEVEL_RESOURCES: (
            GateChange(Version(1, 32), False, Stage.ALPHA),
            GateChange(Version(1, 34), True, Stage.BETA),
        ),
        Gate.SCHEDULER_ASYNC_PREEMPTION: (
            GateChange(Version(1, 32), False, Stage.ALPHA),
            GateChange(Version(1, 33), True, Stage.BETA),
        ),
        Gate.SCHEDULER_POP_FROM_BACKOFF_Q: (GateChange(Version(1, 33), True, Stage.BETA),),
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


def semantics_of(version: Version, switched: Mapping[Gate, bool] = MappingProxyType({})) -> Semantics:
    """Return the version with its defaults, but for the gates that are switched on or off."""
    return Semantics(version, frozenset(gate for gate in Gate if switched.get(gate, _default(gate, version))))


def _default(gate: Gate, version: Version) -> bool:
    defaults = [change.default for change in GATE_CHANGES[gate] if change.since <= version]
    return bool(defaults and defaults[-1])


DEFAULT_SEMANTICS: Final = semantics_of(Version(1, 36))

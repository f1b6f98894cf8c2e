"""pluginConfig: defaulting and validation of arguments."""

import json

import msgspec
import pytest

from scheduler.daemon.settings.loading import parse_settings
from scheduler.daemon.settings.writing import resolved_yaml
from scheduler.engine.framework.shape import ShapePoint
from scheduler.engine.model.pod_wire import WireNodeAffinity
from scheduler.engine.model.semantics import Gate, Semantics, Version, semantics_of
from scheduler.engine.plugins.default_preemption.search import DefaultPreemptionArgs
from scheduler.engine.plugins.dynamic_resources.filtering import DynamicResourcesArgs
from scheduler.engine.plugins.gang_scheduling import GangSchedulingArgs
from scheduler.engine.plugins.inter_pod_affinity.plugin import InterPodAffinityArgs
from scheduler.engine.plugins.node_affinity import NodeAffinityArgs
from scheduler.engine.plugins.node_resources.resource_allocation import (
    CPU_AND_MEMORY,
    RATIO,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    RequestedToCapacityRatio,
    ResourceWeight,
    ScoringStrategy,
)
from scheduler.engine.plugins.pod_topology_spread.constraints import (
    SYSTEM_DEFAULT_CONSTRAINTS,
    DefaultConstraint,
    PodTopologySpreadArgs,
)
from scheduler.engine.plugins.volume_binding.plugin import VolumeBindingArgs
from scheduler.errors import SettingsError
from tests.daemon.settings.configurations import in_upstreams_words, lines_of, one_profile, profile_of
from tests.support.case_blocks import case_blocks

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def config(name: str, args: str) -> str:
    return f"pluginConfig: [{{name: {name}, args: {args}}}]"


def test_every_configurable_plugin_has_upstreams_defaults():
    assert profile_of("").args_by_plugin == {
        "DefaultPreemption": DefaultPreemptionArgs(10, 100),
        "DynamicResources": DynamicResourcesArgs(10, 600, preempt_for_devices=True),
        "GangScheduling": GangSchedulingArgs(500),
        "InterPodAffinity": InterPodAffinityArgs(1, False),
        "NodeAffinity": NodeAffinityArgs(None),
        "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs(CPU_AND_MEMORY),
        "NodeResourcesFit": NodeResourcesFitArgs((), (), ScoringStrategy("LeastAllocated", CPU_AND_MEMORY)),
        "PodTopologySpread": PodTopologySpreadArgs("System", ()),
        "VolumeBinding": VolumeBindingArgs(600),
    }


def test_system_defaulting_spreads_over_hosts_and_zones():
    assert PodTopologySpreadArgs().effective_default_constraints == SYSTEM_DEFAULT_CONSTRAINTS
    assert PodTopologySpreadArgs("List").effective_default_constraints == ()


SHAPE = (ShapePoint(0, 0), ShapePoint(70, 10))
WEIGHTED = (ResourceWeight("cpu", 3), ResourceWeight("memory", 1))
COMPLETED = {
    "no args": ("", InterPodAffinityArgs()),
    "no time to bind": ("{bindTimeoutSeconds: 0}", VolumeBindingArgs(0)),
    "zero is not unset": ("{hardPodAffinityWeight: 0}", InterPodAffinityArgs(0)),
    "null is unset": (
        "{apiVersion: kubescheduler.config.k8s.io/v1, kind: InterPodAffinityArgs, "
        "hardPodAffinityWeight: null, ignorePreferredTermsOfExistingPods: true}",
        InterPodAffinityArgs(1, True),
    ),
    "ignored resources": (
        "{ignoredResources: [example.com/gpu], ignoredResourceGroups: [example.org]}",
        NodeResourcesFitArgs(("example.com/gpu",), ("example.org",)),
    ),
    "weight 0 is 1": (
        "{scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 3}, {name: memory, weight: 0}]}}",
        NodeResourcesFitArgs((), (), ScoringStrategy("MostAllocated", WEIGHTED)),
    ),
    "shape": (
        "{scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: "
        "{shape: [{utilization: 0, score: 0}, {utilization: 70, score: 10}]}}}",
        NodeResourcesFitArgs(
            (),
            (),
            ScoringStrategy(RATIO, CPU_AND_MEMORY, RequestedToCapacityRatio(SHAPE)),
        ),
    ),
    "balanced resources": (
        "{resources: [{name: cpu}, {name: example.com/gpu, weight: 1}]}",
        NodeResourcesBalancedAllocationArgs((ResourceWeight("cpu"), ResourceWeight("example.com/gpu"))),
    ),
    "default constraints": (
        "{defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone, "
        "whenUnsatisfiable: DoNotSchedule, minDomains: 2, nodeTaintsPolicy: Honor, matchLabelKeys: [a]}]}",
        PodTopologySpreadArgs(
            "List",
            (
                DefaultConstraint(
                    max_skew=1,
                    topology_key="zone",
                    when_unsatisfiable="DoNotSchedule",
                    min_domains=2,
                    node_taints_policy="Honor",
                    match_label_keys=("a",),
                ),
            ),
        ),
    ),
}


@pytest.mark.parametrize(("args", "expected"), COMPLETED.values(), ids=COMPLETED)
def test_arguments_are_completed(args, expected):
    name = type(expected).__name__.removesuffix("Args")
    assert profile_of(config(name, args)).args_by_plugin[name] == expected


IN = {"key": "pool", "operator": "In", "values": ["a", "b"]}
TERM = {"matchExpressions": [IN, {"key": "old", "operator": "DoesNotExist"}]}
FIELDS = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}


@pytest.mark.parametrize(
    "affinity",
    [{REQUIRED: {"nodeSelectorTerms": [TERM]}}, {PREFERRED: [{"weight": 5, "preference": FIELDS}]}],
    ids=["required", "preferred"],
)
def test_added_affinity_stays_as_it_is(affinity):
    args = json.dumps({"addedAffinity": affinity})
    assert profile_of(config("NodeAffinity", args)).args_by_plugin["NodeAffinity"] == NodeAffinityArgs(
        msgspec.convert(affinity, WireNodeAffinity)
    )


REFUSED = """
# weight too large
InterPodAffinity {hardPodAffinityWeight: 101}
=> .args.hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]
# wrong type, unknown field
InterPodAffinity {hardPodAffinityWeight: 'much', foo: 1}
# a misspelt type, and a whole number with a point
InterPodAffinity {Kind: InterPodAffinityArgs, ignorePreferredTermsOfExistingPods: 2.0}
# annotation namespaces
InterPodAffinity {annotationNamespaces: {selector: {matchExpressions: [{key: a, operator: Near}]}, name: x}}
=> .args.annotationNamespaces.selector: "Near" is not a valid label selector operator
# args of another plugin
InterPodAffinity {kind: NodeAffinityArgs}
=> .args: Invalid value: "kubescheduler.config.k8s.io/v1, Kind=NodeAffinityArgs": has to match plugin args
# args are a list
InterPodAffinity [1]
# no strategy type
NodeResourcesFit {scoringStrategy: {}}
=> .args.scoringStrategy.type: Unsupported value: "": supported values: "LeastAllocated", "MostAllocated",
   "RequestedToCapacityRatio"
# weights out of range
NodeResourcesFit {scoringStrategy: {type: LeastAllocated, resources: [{name: cpu, weight: 101}, {name: b,
  weight: -1}]}}
=> .args.scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]
=> .args.scoringStrategy.resources[1].weight: Invalid value: -1: resource weight of b not in valid range (0, 100]
# shape missing
NodeResourcesFit {scoringStrategy: {type: RequestedToCapacityRatio}}
=> .args.scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is
   RequestedToCapacityRatio
# shape with another type
NodeResourcesFit {scoringStrategy: {type: LeastAllocated, requestedToCapacityRatio: {}}}
=> .args.scoringStrategy.requestedToCapacityRatio: Forbidden: must be nil when type is not RequestedToCapacityRatio
# empty shape
NodeResourcesFit {scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {}}}
=> .args.scoringStrategy.requestedToCapacityRatio.shape: Required value: at least one point must be specified
# bad shape
NodeResourcesFit {scoringStrategy: {type: RequestedToCapacityRatio,
  requestedToCapacityRatio: {shape: [{utilization: 5, score: 11}, {utilization: 5, score: -1}, {utilization: 101}]}}}
=> .args.scoringStrategy.requestedToCapacityRatio.shape[1].utilization: Invalid value: 5: values must be sorted in
   increasing order
=> .args.scoringStrategy.requestedToCapacityRatio.shape[0].score: Invalid value: 11: not in valid range [0, 10]
=> .args.scoringStrategy.requestedToCapacityRatio.shape[1].score: Invalid value: -1: not in valid range [0, 10]
=> .args.scoringStrategy.requestedToCapacityRatio.shape[2].utilization: Invalid value: 101: not in valid range [0,
   100]
# group with a slash
NodeResourcesFit {ignoredResourceGroups: [a/b]}
=> .args.ignoredResourceGroups[0]: Invalid value: "a/b": resource group name can't contain '/'
# balanced: weight and repeated name
NodeResourcesBalancedAllocation {resources: [{name: cpu, weight: 2}, {name: cpu}]}
=> .args.resources[0].weight: Invalid value: 2: must be 1
=> .args.resources[1].name: Duplicate value: "cpu"
# System with constraints
PodTopologySpread {defaultConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}]}
=> .args.defaultingType: Invalid value: "System": when .defaultConstraints are not empty
# unknown defaulting type
PodTopologySpread {defaultingType: Zone}
=> .args.defaultingType: Unsupported value: "Zone": supported values: "System", "List"
# bad constraints
PodTopologySpread {defaultingType: List, defaultConstraints: [{labelSelector: {}}, {maxSkew: 1, topologyKey: a,
  whenUnsatisfiable: Never}, {maxSkew: 1, topologyKey: b, whenUnsatisfiable: DoNotSchedule}, {maxSkew: 2,
  topologyKey: b, whenUnsatisfiable: DoNotSchedule}]}
=> .args.defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)
=> .args.defaultConstraints[0].topologyKey: Required value: can not be empty
=> .args.defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty
=> .args.defaultConstraints[0].labelSelector: Forbidden: constraint must not define a selector, as they deduced for
   each pod
=> .args.defaultConstraints[1].whenUnsatisfiable: Unsupported value: "Never": supported values: "DoNotSchedule",
   "ScheduleAnyway"
=> .args.defaultConstraints[3]: Duplicate value: "{b, DoNotSchedule}"
# added affinity that does not parse; a term of weight 0 is never parsed
NodeAffinity {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{},
  {matchExpressions: [{key: a, operator: Is}], matchFields: [{key: metadata.name, operator: In}]}]},
  preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a,
  operator: Gt, values: [x]}]}}, {preference: {matchExpressions: [{key: a, operator: Is}]}}]}}
=> .args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[1].matchExpressions[0].operator:
   Unsupported value: "Is"
=> .args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[1].matchFields[0].values:
   Invalid value: must have one element
=> .args.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].matchExpressions[0].values[0]: Invalid
   value: for 'Gt', 'Lt' operators, the value must be an integer
# preemption without candidates
DefaultPreemption {minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}
=> .args.minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as minCandidateNodesAbsolute
=> .args.minCandidateNodesAbsolute: Invalid value: 0: cannot be zero at the same time as minCandidateNodesPercentage
# a setting of preemption that ended
DefaultPreemption {preferFewerVictims: true}
=> .args.preferFewerVictims: has ended; give pods that are to stay a higher priority or a PodDisruptionBudget

# preemption out of range
DefaultPreemption {minCandidateNodesPercentage: 101, minCandidateNodesAbsolute: -1}
=> .args.minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]
=> .args.minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)
# volume binding
VolumeBinding {bindTimeoutSeconds: -1, shape: []}
=> .args.bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value
=> .args.shape: Invalid value: []: unexpected field `shape`, remove it or turn on the feature gate
   StorageCapacityScoring
# dynamic resources
DynamicResources {filterTimeout: -1s, bindingTimeout: 500ms, preemptForDevices: 1}
=> .args.filterTimeout: Invalid value: "-1s": must be zero or positive
=> .args.bindingTimeout: Invalid value: "500ms": must be at least 1 second
# unknown plugin
Foo {}
=> .name: plugin "Foo" does not exist
# removed plugin
EBSLimits {}
=> : Invalid value: "EBSLimits": was invalid in version "v1" (KubeSchedulerConfiguration is version
   "kubescheduler.config.k8s.io/v1")
"""


@pytest.mark.parametrize(("text", "upstreams"), case_blocks(REFUSED))
def test_arguments_are_refused_with_upstreams_messages(text, upstreams, snapshot):
    name, args = text.split(maxsplit=1)
    lines = lines_of(one_profile(config(name, args)))
    assert lines == snapshot
    assert in_upstreams_words(lines) == [f"profiles[0].pluginConfig[0]{line}" for line in upstreams]


def test_a_plugin_is_configured_once():
    assert lines_of(one_profile("pluginConfig: [{name: NodeAffinity}, {name: NodeAffinity}]")) == [
        'profiles[0].pluginConfig[1]: Duplicate value: "NodeAffinity"'
    ]


WITHOUT_EFFECT = {
    "a plugin takes no arguments": config("TaintToleration", "{a: 1}"),
    "the search is bounded otherwise": config("DynamicResources", "{filterTimeout: 5s}"),
    "of plugins that are disabled one does not exist": (
        "plugins: {filter: {disabled: [{name: Foo}, {name: CinderLimits}, {name: NodeName}]}}"
    ),
}


@pytest.mark.parametrize("body", WITHOUT_EFFECT.values(), ids=WITHOUT_EFFECT)
def test_what_is_valid_without_effect_is_noted(body, snapshot):
    (note,) = parse_settings(one_profile(body), "f").notes
    assert note == snapshot


SHAPED = one_profile(
    config("VolumeBinding", "{shape: [{utilization: 0, score: 0}, {utilization: 70, score: 10}]}")
)


@pytest.mark.parametrize(
    "semantics",
    [semantics_of(Version(1, 37)), semantics_of(Version(1, 36), {Gate.STORAGE_CAPACITY_SCORING: True})],
)
def test_a_shape_of_volume_binding_is_read_with_its_gate(semantics: Semantics):
    settings = parse_settings(SHAPED, "f", semantics)
    assert settings.profiles[0].args_by_plugin["VolumeBinding"] == VolumeBindingArgs(600, SHAPE)
    assert parse_settings(resolved_yaml(settings), "again", semantics) == settings


def test_a_shape_of_volume_binding_is_refused_without_its_gate():
    with pytest.raises(SettingsError, match="turn on the feature gate StorageCapacityScoring"):
        parse_settings(SHAPED, "f", semantics_of(Version(1, 37), {Gate.STORAGE_CAPACITY_SCORING: False}))


def test_a_shape_of_volume_binding_is_checked():
    text = one_profile(config("VolumeBinding", "{shape: [{utilization: 101}]}"))
    with pytest.raises(SettingsError, match=r"shape\[0\].utilization: Invalid value: 101"):
        parse_settings(text, "f", semantics_of(Version(1, 37)))

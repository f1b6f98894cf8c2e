"""pluginConfig: defaulting and validation of arguments."""

import pytest

from scheduler.plugins.default_preemption.args import DefaultPreemptionArgs
from scheduler.plugins.gang_scheduling import GangSchedulingArgs
from scheduler.plugins.inter_pod_affinity.args import InterPodAffinityArgs
from scheduler.plugins.node_affinity import NodeAffinityArgs
from scheduler.plugins.node_resources.args import (
    CPU_AND_MEMORY,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    ResourceWeight,
    ScoringStrategy,
    ShapePoint,
)
from scheduler.plugins.pod_topology_spread.args import (
    SYSTEM_DEFAULT_CONSTRAINTS,
    DefaultConstraint,
    PodTopologySpreadArgs,
)
from scheduler.plugins.volume_binding.args import VolumeBindingArgs
from scheduler.settings.loading import parse_settings
from tests.settings.configurations import lines_of, one_profile, profile_of

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ARGS = "profiles[0].pluginConfig[0].args"


def config(name: str, args: str) -> str:
    return f"pluginConfig: [{{name: {name}, args: {args}}}]"


def test_every_configurable_plugin_has_upstreams_defaults():
    assert profile_of("").args_by_plugin == {
        "DefaultPreemption": DefaultPreemptionArgs(10, 100),
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


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        pytest.param("InterPodAffinity", "", InterPodAffinityArgs(), id="no args"),
        pytest.param("VolumeBinding", "{bindTimeoutSeconds: 0}", VolumeBindingArgs(0), id="no time to bind"),
        pytest.param(
            "InterPodAffinity", "{hardPodAffinityWeight: 0}", InterPodAffinityArgs(0), id="zero is not unset"
        ),
        pytest.param(
            "InterPodAffinity",
            "{apiVersion: kubescheduler.config.k8s.io/v1, kind: InterPodAffinityArgs, "
            "hardPodAffinityWeight: null, ignorePreferredTermsOfExistingPods: true}",
            InterPodAffinityArgs(1, True),
            id="null is unset",
        ),
        pytest.param(
            "NodeResourcesFit",
            "{ignoredResources: [example.com/gpu], ignoredResourceGroups: [example.org]}",
            NodeResourcesFitArgs(("example.com/gpu",), ("example.org",)),
            id="ignored resources",
        ),
        pytest.param(
            "NodeResourcesFit",
            "{scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 3}, {name: memory, weight: 0}]}}",
            NodeResourcesFitArgs(
                (),
                (),
                ScoringStrategy("MostAllocated", (ResourceWeight("cpu", 3), ResourceWeight("memory", 1))),
            ),
            id="weight 0 is 1",
        ),
        pytest.param(
            "NodeResourcesFit",
            "{scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: "
            "{shape: [{utilization: 0, score: 0}, {utilization: 70, score: 10}]}}}",
            NodeResourcesFitArgs(
                (),
                (),
                ScoringStrategy(
                    "RequestedToCapacityRatio", CPU_AND_MEMORY, (ShapePoint(0, 0), ShapePoint(70, 10))
                ),
            ),
            id="shape",
        ),
        pytest.param(
            "NodeResourcesBalancedAllocation",
            "{resources: [{name: cpu}, {name: example.com/gpu, weight: 1}]}",
            NodeResourcesBalancedAllocationArgs((ResourceWeight("cpu"), ResourceWeight("example.com/gpu"))),
            id="balanced resources",
        ),
        pytest.param(
            "PodTopologySpread",
            "{defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone, "
            "whenUnsatisfiable: DoNotSchedule, minDomains: 2, nodeTaintsPolicy: Honor, matchLabelKeys: [a]}]}",
            PodTopologySpreadArgs(
                "List",
                (DefaultConstraint(1, "zone", "DoNotSchedule", 2, None, "Honor", ("a",)),),
            ),
            id="default constraints",
        ),
        pytest.param(
            "NodeAffinity",
            f"{{addedAffinity: {{{REQUIRED}: {{nodeSelectorTerms: [{{matchExpressions: "
            "[{key: pool, operator: In, values: [a, b]}, {key: old, operator: DoesNotExist}]}]}}}",
            NodeAffinityArgs(
                {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "pool", "operator": "In", "values": ["a", "b"]},
                                    {"key": "old", "operator": "DoesNotExist"},
                                ]
                            }
                        ]
                    }
                }
            ),
            id="added required affinity",
        ),
        pytest.param(
            "NodeAffinity",
            f"{{addedAffinity: {{{PREFERRED}: [{{weight: 5, preference: {{matchFields: "
            "[{key: metadata.name, operator: In, values: [n]}]}}]}}",
            NodeAffinityArgs(
                {
                    PREFERRED: [
                        {
                            "weight": 5,
                            "preference": {
                                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]
                            },
                        }
                    ]
                }
            ),
            id="added preferred affinity",
        ),
    ],
)
def test_arguments_are_completed(name, args, expected):
    assert profile_of(config(name, args)).args_by_plugin[name] == expected


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        pytest.param(
            "InterPodAffinity",
            "{hardPodAffinityWeight: 101}",
            [f"{ARGS}.hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]"],
            id="weight too large",
        ),
        pytest.param(
            "InterPodAffinity",
            "{hardPodAffinityWeight: 'much', foo: 1}",
            [
                f'{ARGS}.hardPodAffinityWeight: found "much", expected an integer',
                f"{ARGS}.foo: found an unknown field, expected one of "
                "annotationNamespaces, apiVersion, exemptNamespaces, hardPodAffinityWeight, "
                "ignorePreferredTermsOfExistingPods, kind",
            ],
            id="wrong type, unknown field",
        ),
        pytest.param(
            "InterPodAffinity",
            "{annotationNamespaces: {selector: {matchExpressions: [{key: a, operator: Near}]}, name: x}}",
            [
                f'{ARGS}.annotationNamespaces.selector: "Near" is not a valid label selector operator',
                f"{ARGS}.annotationNamespaces.name: found an unknown field, expected one of names, selector",
            ],
            id="annotation namespaces",
        ),
        pytest.param(
            "InterPodAffinity",
            "{kind: NodeAffinityArgs}",
            [
                f'{ARGS}: Invalid value: "kubescheduler.config.k8s.io/v1, Kind=NodeAffinityArgs": '
                "has to match plugin args"
            ],
            id="args of another plugin",
        ),
        pytest.param(
            "InterPodAffinity", "[1]", [f"{ARGS}: found a list, expected an object"], id="args are a list"
        ),
        pytest.param(
            "NodeResourcesFit",
            "{scoringStrategy: {}}",
            [
                f'{ARGS}.scoringStrategy.type: Unsupported value: "": supported values: '
                '"LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"'
            ],
            id="no strategy type",
        ),
        pytest.param(
            "NodeResourcesFit",
            "{scoringStrategy: {type: LeastAllocated, resources: [{name: cpu, weight: 101}, {name: b, weight: -1}]}}",
            [
                f"{ARGS}.scoringStrategy.resources[0].weight: Invalid value: 101: "
                "resource weight of cpu not in valid range (0, 100]",
                f"{ARGS}.scoringStrategy.resources[1].weight: Invalid value: -1: "
                "resource weight of b not in valid range (0, 100]",
            ],
            id="weights out of range",
        ),
        pytest.param(
            "NodeResourcesFit",
            "{scoringStrategy: {type: RequestedToCapacityRatio}}",
            [
                f"{ARGS}.scoringStrategy.requestedToCapacityRatio: Required value: "
                "must be specified when type is RequestedToCapacityRatio"
            ],
            id="shape missing",
        ),
        pytest.param(
            "NodeResourcesFit",
            "{scoringStrategy: {type: LeastAllocated, requestedToCapacityRatio: {}}}",
            [
                f"{ARGS}.scoringStrategy.requestedToCapacityRatio: Forbidden: "
                "must be nil when type is not RequestedToCapacityRatio"
            ],
            id="shape with another type",
        ),
        pytest.param(
            "NodeResourcesFit",
            "{scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {}}}",
            [
                f"{ARGS}.scoringStrategy.requestedToCapacityRatio.shape: Required value: "
                "at least one point must be specified"
            ],
            id="empty shape",
        ),
        pytest.param(
            "NodeResourcesFit",
            "{scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: "
            "[{utilization: 5, score: 11}, {utilization: 5, score: -1}, {utilization: 101}]}}}",
            [
                f"{ARGS}.scoringStrategy.requestedToCapacityRatio.shape{rest}"
                for rest in (
                    "[1].utilization: Invalid value: 5: values must be sorted in increasing order",
                    "[0].score: Invalid value: 11: not in valid range [0, 10]",
                    "[1].score: Invalid value: -1: not in valid range [0, 10]",
                    "[2].utilization: Invalid value: 101: not in valid range [0, 100]",
                )
            ],
            id="bad shape",
        ),
        pytest.param(
            "NodeResourcesFit",
            "{ignoredResourceGroups: [a/b]}",
            [
                f"{ARGS}.ignoredResourceGroups[0]: Invalid value: \"a/b\": resource group name can't contain '/'"
            ],
            id="group with a slash",
        ),
        pytest.param(
            "NodeResourcesBalancedAllocation",
            "{resources: [{name: cpu, weight: 2}, {name: cpu}]}",
            [
                f"{ARGS}.resources[0].weight: Invalid value: 2: must be 1",
                f'{ARGS}.resources[1].name: Duplicate value: "cpu"',
            ],
            id="balanced: weight and repeated name",
        ),
        pytest.param(
            "PodTopologySpread",
            "{defaultConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}]}",
            [f'{ARGS}.defaultingType: Invalid value: "System": when .defaultConstraints are not empty'],
            id="System with constraints",
        ),
        pytest.param(
            "PodTopologySpread",
            "{defaultingType: Zone}",
            [f'{ARGS}.defaultingType: Unsupported value: "Zone": supported values: "System", "List"'],
            id="unknown defaulting type",
        ),
        pytest.param(
            "PodTopologySpread",
            "{defaultingType: List, defaultConstraints: [{labelSelector: {}}, "
            "{maxSkew: 1, topologyKey: a, whenUnsatisfiable: Never}, "
            "{maxSkew: 1, topologyKey: b, whenUnsatisfiable: DoNotSchedule}, "
            "{maxSkew: 2, topologyKey: b, whenUnsatisfiable: DoNotSchedule}]}",
            [
                f"{ARGS}.defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)",
                f"{ARGS}.defaultConstraints[0].topologyKey: Required value: can not be empty",
                f"{ARGS}.defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty",
                f"{ARGS}.defaultConstraints[0].labelSelector: Forbidden: "
                "constraint must not define a selector, as they deduced for each pod",
                f'{ARGS}.defaultConstraints[1].whenUnsatisfiable: Unsupported value: "Never": '
                'supported values: "DoNotSchedule", "ScheduleAnyway"',
                f'{ARGS}.defaultConstraints[3]: Duplicate value: "{{b, DoNotSchedule}}"',
            ],
            id="bad constraints",
        ),
        pytest.param(
            "NodeAffinity",
            f"{{addedAffinity: {{{REQUIRED}: {{nodeSelectorTerms: [{{}}, {{matchExpressions: "
            "[{key: a, operator: Is}], matchFields: [{key: metadata.name, operator: In}]}]}, "
            f"{PREFERRED}: [{{weight: 1, preference: {{matchExpressions: [{{key: a, operator: Gt, values: [x]}}]}}}}, "
            "{preference: {matchExpressions: [{key: a, operator: Is}]}}]}}",
            [
                f"{ARGS}.addedAffinity.{REQUIRED}.nodeSelectorTerms[1].matchExpressions[0].operator: "
                'Unsupported value: "Is"',
                f"{ARGS}.addedAffinity.{REQUIRED}.nodeSelectorTerms[1].matchFields[0].values: "
                "Invalid value: must have one element",
                f"{ARGS}.addedAffinity.{PREFERRED}[0].matchExpressions[0].values[0]: "
                "Invalid value: for 'Gt', 'Lt' operators, the value must be an integer",
            ],
            id="added affinity that does not parse; a term of weight 0 is never parsed",
        ),
        pytest.param(
            "DefaultPreemption",
            "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}",
            [
                f"{ARGS}.minCandidateNodesPercentage: Invalid value: 0: "
                "cannot be zero at the same time as minCandidateNodesAbsolute",
                f"{ARGS}.minCandidateNodesAbsolute: Invalid value: 0: "
                "cannot be zero at the same time as minCandidateNodesPercentage",
            ],
            id="preemption without candidates",
        ),
        pytest.param(
            "DefaultPreemption",
            "{minCandidateNodesPercentage: 101, minCandidateNodesAbsolute: -1}",
            [
                f"{ARGS}.minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]",
                f"{ARGS}.minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)",
            ],
            id="preemption out of range",
        ),
        pytest.param(
            "VolumeBinding",
            "{bindTimeoutSeconds: -1, shape: []}",
            [
                f"{ARGS}.bindTimeoutSeconds: Invalid value: -1: "
                "invalid BindTimeoutSeconds, should not be a negative value",
                f"{ARGS}.shape: Invalid value: []: unexpected field `shape`, "
                "remove it or turn on the feature gate StorageCapacityScoring",
            ],
            id="volume binding",
        ),
        pytest.param(
            "DynamicResources",
            "{filterTimeout: -1s, bindingTimeout: 500ms}",
            [
                f'{ARGS}.filterTimeout: Invalid value: "-1s": must be zero or positive',
                f'{ARGS}.bindingTimeout: Invalid value: "500ms": must be at least 1 second',
            ],
            id="dynamic resources",
        ),
        pytest.param(
            "Foo",
            "{}",
            ['profiles[0].pluginConfig[0].name: plugin "Foo" does not exist'],
            id="unknown plugin",
        ),
        pytest.param(
            "EBSLimits",
            "{}",
            [
                'profiles[0].pluginConfig[0]: Invalid value: "EBSLimits": was invalid in version "v1" '
                '(KubeSchedulerConfiguration is version "kubescheduler.config.k8s.io/v1")'
            ],
            id="removed plugin",
        ),
    ],
)
def test_arguments_are_refused_with_upstreams_messages(name, args, expected):
    assert lines_of(one_profile(config(name, args))) == expected


def test_a_plugin_is_configured_once():
    assert lines_of(one_profile("pluginConfig: [{name: NodeAffinity}, {name: NodeAffinity}]")) == [
        'profiles[0].pluginConfig[1]: Duplicate value: "NodeAffinity"'
    ]


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        pytest.param(
            "DynamicResources",
            "{filterTimeout: 10s}",
            f"{ARGS}: DynamicResources is not built (resource claims are not supported yet), so this has no effect",
            id="not built",
        ),
        pytest.param(
            "TaintToleration",
            "{a: 1}",
            f"{ARGS}: TaintToleration takes no arguments, so these have no effect",
            id="takes no arguments",
        ),
    ],
)
def test_valid_arguments_without_effect_are_noted(name, args, expected):
    assert parse_settings(one_profile(config(name, args)), "f").notes == (expected,)


def test_disabling_an_unknown_plugin_is_noted():
    text = one_profile("plugins: {filter: {disabled: [{name: Foo}, {name: CinderLimits}, {name: NodeName}]}}")
    assert parse_settings(text, "f").notes == (
        'profiles[0].plugins.filter.disabled[0].name: "Foo" does not exist, so nothing is disabled',
    )

"""The registry of plugins, and the profiles built from it."""

from dataclasses import replace

import pytest

from scheduler.daemon.settings.plugin_table import DEFAULT_PLUGINS, IN_TREE_BY_NAME
from scheduler.engine.framework.events import never
from scheduler.engine.framework.interface import (
    FilterPlugin,
    Plugin,
    PluginContext,
    PreEnqueuePlugin,
    ScorePlugin,
)
from scheduler.engine.plugins.dynamic_resources.filtering import DynamicResourcesArgs
from scheduler.engine.plugins.inter_pod_affinity.plugin import InterPodAffinityArgs
from scheduler.engine.plugins.node_resources.resource_allocation import (
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    ResourceWeight,
    ScoringStrategy,
)
from scheduler.engine.plugins.registry import (
    ALWAYS_FIRST,
    ALWAYS_LAST,
    ALWAYS_LAST_TO_ADMIT,
    IN_TREE,
    build_profile,
)
from scheduler.engine.plugins.volume_binding.plugin import VolumeBindingArgs
from tests.support.plugins import plugin_named

#: Of the plugins without a file of their own here: the queue sorts, the daemon binds.
ELSEWHERE = {"PrioritySort", "DefaultBinder"}

#: Source: the interfaces that each plugin implements (kubernetes 1.36).
OF_UPSTREAM = """
SchedulingGates preEnqueue
NodeUnschedulable filter
NodeName filter
TaintToleration filter preScore score
NodeAffinity preFilter filter preScore score
NodePorts preFilter filter
NodeResourcesFit preFilter filter preScore score placementScore
VolumeRestrictions preFilter filter
NodeVolumeLimits preFilter filter
VolumeBinding preFilter filter preScore score reserve preBind
VolumeZone preFilter filter
PodTopologySpread preFilter filter preScore score
InterPodAffinity preFilter filter preScore score
DynamicResources preEnqueue preFilter filter postFilter score reserve preBind
DefaultPreemption preEnqueue postFilter
NodeResourcesBalancedAllocation preScore score
ImageLocality score
NodeDeclaredFeatures preFilter filter
GangScheduling preEnqueue permit
"""

STAGES = {"preEnqueue": PreEnqueuePlugin, "filter": FilterPlugin, "score": ScorePlugin}


def test_every_plugin_that_settings_call_built_is_registered():
    assert (set(DEFAULT_PLUGINS) - ELSEWHERE) | {ALWAYS_LAST_TO_ADMIT} == IN_TREE.keys()


def test_a_plugin_can_be_named_at_upstream_s_points():
    expected = {name: tuple(points) for name, *points in map(str.split, OF_UPSTREAM.strip().splitlines())}
    assert {name: plugin.extension_points for name, plugin in IN_TREE.items()} == expected


@pytest.mark.parametrize(
    ("plugin", "point"),
    [(name, point) for name in DEFAULT_PLUGINS for point in STAGES if point in IN_TREE_BY_NAME[name].points],
)
def test_a_plugin_has_the_stages_that_settings_let_it_run_at(plugin: str, point: str):
    assert isinstance(plugin_named(plugin), STAGES[point])


@pytest.mark.parametrize("name", sorted(IN_TREE))
def test_a_plugin_that_can_refuse_says_what_may_lift_the_refusal(name: str):
    plugin = plugin_named(name)
    refuses = isinstance(plugin, FilterPlugin | PreEnqueuePlugin)
    assert (type(plugin).events_to_register is not Plugin.events_to_register) is refuses


def test_of_our_own_plugins_only_the_last_waits_for_events():
    """Nothing lifts a refusal of the first: the needs of a pod never change."""
    assert not ALWAYS_FIRST().events_to_register()
    assert ALWAYS_LAST().events_to_register()


def test_a_profile_runs_its_plugins_in_order_between_our_own():
    profile = build_profile(
        "mine",
        filters=["NodeResourcesFit", "TaintToleration"],
        scorers=[("TaintToleration", 3), ("ImageLocality", 1)],
        pre_enqueue=["SchedulingGates"],
        context=PluginContext(),
        percentage_of_nodes_to_score=30,
    )
    assert profile.scheduler_name == "mine"
    assert [plugin.name for plugin in profile.filters] == [
        "Unsupported",
        "NodeResourcesFit",
        "TaintToleration",
        "KubeletRefusal",
    ]
    assert [(w.plugin.name, w.weight) for w in profile.scorers] == [
        ("TaintToleration", 3),
        ("ImageLocality", 1),
    ]
    assert [plugin.name for plugin in profile.pre_enqueue] == ["SchedulingGates", "GangScheduling"]
    assert profile.percentage_of_nodes_to_score == 30


def test_a_filter_that_is_switched_off_alone_still_runs_at_prefilter():
    profile = build_profile(
        "mine", filters=["NodePorts"], prefilter_only=["NodeAffinity"], scorers=[], context=PluginContext()
    )
    assert [(type(plugin).__name__, plugin.name) for plugin in profile.filters] == [
        ("Unsupported", "Unsupported"),
        ("PreFilterOnly", "NodeAffinity"),
        ("NodePorts", "NodePorts"),
        ("KubeletRefusal", "KubeletRefusal"),
    ]
    events = {plugin.name: plugin.events_to_register() for plugin in profile.rejecting_plugins()}
    own = plugin_named("NodeAffinity").events_to_register()
    assert any(event.hint for event in own)
    assert events["NodeAffinity"] == [
        replace(event, hint=None, reads_labels=never, needs=None) for event in own
    ]


def test_a_plugin_that_filters_and_scores_is_one_object():
    profile = build_profile(
        "mine", filters=["TaintToleration"], scorers=[("TaintToleration", 3)], context=PluginContext()
    )
    filtering: object = profile.filters[1]
    assert filtering is profile.scorers[0].plugin


@pytest.mark.parametrize(
    ("plugin", "defaults"),
    [
        ("InterPodAffinity", InterPodAffinityArgs(1, ignore_preferred_terms_of_existing_pods=False)),
        ("VolumeBinding", VolumeBindingArgs(600)),
        ("DynamicResources", DynamicResourcesArgs(10.0, 600.0, preempt_for_devices=True)),
        (
            "NodeResourcesFit",
            NodeResourcesFitArgs(
                scoring_strategy=ScoringStrategy(
                    "LeastAllocated", (ResourceWeight("cpu", 1), ResourceWeight("memory", 1))
                )
            ),
        ),
        (
            "NodeResourcesBalancedAllocation",
            NodeResourcesBalancedAllocationArgs((ResourceWeight("cpu", 1), ResourceWeight("memory", 1))),
        ),
    ],
)
def test_a_plugin_without_arguments_has_upstream_s_defaults(plugin: str, defaults: object):
    """Source: pkg/scheduler/apis/config/v1/defaults.go (kubernetes 1.36); preemptForDevices is ours."""
    assert IN_TREE[plugin].args_type() == defaults

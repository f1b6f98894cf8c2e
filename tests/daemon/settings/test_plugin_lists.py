"""Merging of plugin lists, expansion of multiPoint, weights: upstream's rules by example."""

import pytest

from scheduler.daemon.settings.plugin_table import DEFAULT_PLUGINS, IN_TREE_BY_NAME, POINTS
from tests.daemon.settings.configurations import in_upstreams_words, lines_of, one_profile, profile_of
from tests.support.case_blocks import case_blocks

# Point and plugins.
DEFAULTS = """
preEnqueue SchedulingGates DynamicResources DefaultPreemption
queueSort PrioritySort
preFilter NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone \
PodTopologySpread InterPodAffinity DynamicResources NodeDeclaredFeatures
filter NodeUnschedulable NodeName TaintToleration NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions \
NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread InterPodAffinity DynamicResources NodeDeclaredFeatures
postFilter DynamicResources DefaultPreemption
preScore TaintToleration NodeAffinity NodeResourcesFit VolumeBinding PodTopologySpread InterPodAffinity \
NodeResourcesBalancedAllocation
score TaintToleration NodeAffinity NodeResourcesFit VolumeBinding PodTopologySpread InterPodAffinity \
DynamicResources NodeResourcesBalancedAllocation ImageLocality
reserve VolumeBinding DynamicResources
permit
preBind VolumeBinding DynamicResources
bind DefaultBinder
postBind
"""
DEFAULTS_BY_POINT = {point: tuple(names) for point, *names in map(str.split, DEFAULTS.strip().splitlines())}
DEFAULT_WEIGHTS = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "VolumeBinding": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "DynamicResources": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}


def test_by_default_everything_that_is_built_runs_in_upstreams_order():
    profile = profile_of("")
    assert profile.plugins_by_point == DEFAULTS_BY_POINT
    assert profile.weight_by_plugin == DEFAULT_WEIGHTS


# `...` stands for the defaults that are not named; a default with a minus is not among them.
MERGED = """
# a point disables one default
filter: {disabled: [{name: NodeName}]}
=> filter: ... -NodeName
# a point disables all
filter: {disabled: [{name: '*'}]}
=> filter:
# a point disables all and enables some, in its own order
filter: {disabled: [{name: '*'}], enabled: [{name: NodePorts}, {name: NodeName}]}
=> filter: NodePorts NodeName
# plugins that a point and multiPoint list come first
filter: {enabled: [{name: NodePorts}, {name: NodeName}]}
=> filter: NodePorts NodeName ...
# plugins that only the point lists come last
multiPoint: {disabled: [{name: NodeName}]}
filter: {enabled: [{name: NodeName}]}
=> filter: ... NodeName
# enabled beats disabled, but the place among the overriding is lost
filter: {enabled: [{name: NodePorts}], disabled: [{name: NodePorts}]}
=> filter: ... NodePorts
# multiPoint disables all and enables some
multiPoint: {disabled: [{name: '*'}], enabled: [{name: InterPodAffinity}, {name: NodeName}]}
queueSort: {enabled: [{name: PrioritySort}]}
bind: {enabled: [{name: DefaultBinder}]}
=> filter: InterPodAffinity NodeName
# a default listed again in multiPoint keeps its place
multiPoint: {enabled: [{name: NodePorts}, {name: NodeName}]}
=> filter: ...
# disabled and enabled in multiPoint moves a default to the end
multiPoint: {disabled: [{name: NodeName}], enabled: [{name: NodeName}]}
=> filter: ... NodeName
# other points are left alone
filter: {disabled: [{name: InterPodAffinity}]}
=> score: ...
"""


def plugins_of(text):
    """Return the profile with these plugins."""
    indented = text.replace("\n", "\n  ")
    return profile_of(f"plugins:\n  {indented}\n")


@pytest.mark.parametrize(("text", "expected"), case_blocks(MERGED))
def test_a_point_runs_the_merged_plugins_in_order(text, expected):
    point, *names = expected[0].replace(":", "").split()
    others = [name for name in DEFAULTS_BY_POINT[point] if name not in names and f"-{name}" not in names]
    ordered = [name for shown in names for name in (others if shown == "..." else [shown])]
    assert list(plugins_of(text).plugins_by_point[point]) == [name for name in ordered if name[0] != "-"]


WEIGHTS = """
# at score
score: {enabled: [{name: NodeAffinity, weight: 7}]}
=> 7
# listing resets to 1
score: {enabled: [{name: NodeAffinity}]}
=> 1
# 0 is 1
score: {enabled: [{name: NodeAffinity, weight: 0}]}
=> 1
# in multiPoint too
multiPoint: {enabled: [{name: NodeAffinity}]}
=> 1
# multiPoint
multiPoint: {enabled: [{name: NodeAffinity, weight: 9}]}
=> 9
# score before multiPoint
multiPoint: {enabled: [{name: NodeAffinity, weight: 9}]}
score: {enabled: [{name: NodeAffinity, weight: 4}]}
=> 4
# a weight at another point means nothing
filter: {enabled: [{name: NodeAffinity, weight: 50}]}
=> 2
"""


@pytest.mark.parametrize(("text", "expected"), case_blocks(WEIGHTS))
def test_weights_come_from_score_then_multipoint(text, expected):
    assert plugins_of(text).weight_by_plugin == DEFAULT_WEIGHTS | {"NodeAffinity": int(expected[0])}


def test_a_plugin_that_does_not_score_has_no_weight():
    profile = profile_of("plugins: {score: {disabled: [{name: '*'}], enabled: [{name: ImageLocality}]}}")
    assert profile.weight_by_plugin == {"ImageLocality": 1}
    assert profile.plugins_by_point["score"] == ("ImageLocality",)


REFUSED = """
# unknown
filter: {enabled: [{name: NodeName}, {name: Foo}]}
=> filter.enabled[1].name: FilterPlugin "Foo" does not exist
# unknown in multiPoint
multiPoint: {enabled: [{name: Foo}]}
=> multiPoint.enabled[0].name: plugin "Foo" does not exist
# no name
filter: {enabled: [{weight: 1}]}
=> filter.enabled[0].name: FilterPlugin "" does not exist
# does not run there
filter: {enabled: [{name: ImageLocality}]}
=> filter.enabled[0].name: plugin "ImageLocality" does not extend FilterPlugin plugin
# not built in multiPoint
multiPoint: {enabled: [{name: DynamicResources}, {name: PodGroupPodsCount}]}
# a point of pod groups
placementScore: {enabled: [{name: NodeResourcesFit}]}
# removed
preFilter: {enabled: [{name: GCEPDLimits}]}
=> preFilter.enabled[0]: Invalid value: "GCEPDLimits": was invalid in version "v1" (KubeSchedulerConfiguration is
   version "kubescheduler.config.k8s.io/v1")
# twice at a point
filter: {enabled: [{name: NodeName}, {name: NodeName}]}
=> filter.enabled[1].name: plugin "NodeName" already registered as "FilterPlugin"
# twice in multiPoint: the last replaces the default, the first is too much
multiPoint: {enabled: [{name: NodePorts}, {name: NodePorts}]}
=> multiPoint.enabled[0].name: plugin "NodePorts" already registered as "PreFilterPlugin"
# no queue sort
queueSort: {disabled: [{name: PrioritySort}]}
=> queueSort: only one queue sort plugin required for profile with scheduler name "p", but got 0
# no bind
bind: {disabled: [{name: '*'}]}
=> bind: at least one bind plugin is needed for profile with scheduler name "p"
"""


@pytest.mark.parametrize(("plugins", "upstreams"), case_blocks(REFUSED))
def test_a_plugin_that_cannot_run_is_named_with_its_place(plugins, upstreams, snapshot):
    lines = lines_of(one_profile(f"plugins:\n  {plugins}\n"))
    assert lines == snapshot
    assert in_upstreams_words(lines) == [f"profiles[0].plugins.{line}" for line in upstreams]


def test_a_duplicate_in_multipoint_is_valid_if_every_point_overrides_it():
    double = "multiPoint: {enabled: [{name: NodeName}, {name: NodeName}]}"
    assert (
        "NodeName"
        in profile_of(
            f"plugins:\n  {double}\n  filter: {{enabled: [{{name: NodeName}}]}}\n"
        ).plugins_by_point["filter"]
    )


def test_the_table_names_every_plugin_once_and_only_known_points():
    assert len(set(DEFAULT_PLUGINS)) == len(DEFAULT_PLUGINS)
    points = {point for name in DEFAULT_PLUGINS for point in IN_TREE_BY_NAME[name].points}
    assert points - {"placementScore"} <= set(POINTS)

"""Merging of plugin lists, expansion of multiPoint, weights: upstream's rules by example."""

import pytest

from scheduler.settings.plugin_table import DEFAULT_PLUGINS, POINTS
from tests.settings.configurations import lines_of, one_profile, profile_of

DEFAULT_FILTERS = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeDeclaredFeatures",
)
DEFAULT_WEIGHTS = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "VolumeBinding": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}
NOT_BUILT = ("DynamicResources",)


def test_by_default_everything_that_is_built_runs_in_upstreams_order():
    profile = profile_of("")
    assert profile.plugins_by_point == {
        "preEnqueue": ("SchedulingGates", "DefaultPreemption"),
        "queueSort": ("PrioritySort",),
        "preFilter": (
            "NodeAffinity",
            "NodePorts",
            "NodeResourcesFit",
            "VolumeRestrictions",
            "NodeVolumeLimits",
            "VolumeBinding",
            "VolumeZone",
            "PodTopologySpread",
            "InterPodAffinity",
            "NodeDeclaredFeatures",
        ),
        "filter": DEFAULT_FILTERS,
        "postFilter": ("DefaultPreemption",),
        "preScore": (
            "TaintToleration",
            "NodeAffinity",
            "NodeResourcesFit",
            "VolumeBinding",
            "PodTopologySpread",
            "InterPodAffinity",
            "NodeResourcesBalancedAllocation",
        ),
        "score": tuple(DEFAULT_WEIGHTS),
        "reserve": ("VolumeBinding",),
        "permit": (),
        "preBind": ("VolumeBinding",),
        "bind": ("DefaultBinder",),
        "postBind": (),
    }
    assert profile.weight_by_plugin == DEFAULT_WEIGHTS
    assert profile.not_built == NOT_BUILT


@pytest.mark.parametrize(
    ("plugins", "point", "expected"),
    [
        pytest.param(
            "filter: {disabled: [{name: NodeName}]}",
            "filter",
            tuple(name for name in DEFAULT_FILTERS if name != "NodeName"),
            id="a point disables one default",
        ),
        pytest.param("filter: {disabled: [{name: '*'}]}", "filter", (), id="a point disables all"),
        pytest.param(
            "filter: {disabled: [{name: '*'}], enabled: [{name: NodePorts}, {name: NodeName}]}",
            "filter",
            ("NodePorts", "NodeName"),
            id="a point disables all and enables some, in its own order",
        ),
        pytest.param(
            "filter: {enabled: [{name: NodePorts}, {name: NodeName}]}",
            "filter",
            ("NodePorts", "NodeName", *(n for n in DEFAULT_FILTERS if n not in ("NodePorts", "NodeName"))),
            id="plugins that a point and multiPoint list come first",
        ),
        pytest.param(
            "multiPoint: {disabled: [{name: NodeName}]}\nfilter: {enabled: [{name: NodeName}]}",
            "filter",
            (*(n for n in DEFAULT_FILTERS if n != "NodeName"), "NodeName"),
            id="plugins that only the point lists come last",
        ),
        pytest.param(
            "filter: {enabled: [{name: NodePorts}], disabled: [{name: NodePorts}]}",
            "filter",
            (*(n for n in DEFAULT_FILTERS if n != "NodePorts"), "NodePorts"),
            id="enabled beats disabled, but the place among the overriding is lost",
        ),
        pytest.param(
            "multiPoint: {disabled: [{name: '*'}], enabled: [{name: InterPodAffinity}, {name: NodeName}]}\n"
            "queueSort: {enabled: [{name: PrioritySort}]}\nbind: {enabled: [{name: DefaultBinder}]}",
            "filter",
            ("InterPodAffinity", "NodeName"),
            id="multiPoint disables all and enables some",
        ),
        pytest.param(
            "multiPoint: {enabled: [{name: NodePorts}, {name: NodeName}]}",
            "filter",
            DEFAULT_FILTERS,
            id="a default listed again in multiPoint keeps its place",
        ),
        pytest.param(
            "multiPoint: {disabled: [{name: NodeName}], enabled: [{name: NodeName}]}",
            "filter",
            (*(n for n in DEFAULT_FILTERS if n != "NodeName"), "NodeName"),
            id="disabled and enabled in multiPoint moves a default to the end",
        ),
        pytest.param(
            "filter: {disabled: [{name: InterPodAffinity}]}",
            "score",
            tuple(DEFAULT_WEIGHTS),
            id="other points are left alone",
        ),
    ],
)
def test_a_point_runs_the_merged_plugins_in_order(plugins, point, expected):
    indented = plugins.replace("\n", "\n  ")
    assert profile_of(f"plugins:\n  {indented}\n").plugins_by_point[point] == expected


@pytest.mark.parametrize(
    ("plugins", "changed"),
    [
        pytest.param(
            "score: {enabled: [{name: NodeAffinity, weight: 7}]}", {"NodeAffinity": 7}, id="at score"
        ),
        pytest.param(
            "score: {enabled: [{name: NodeAffinity}]}", {"NodeAffinity": 1}, id="listing resets to 1"
        ),
        pytest.param("score: {enabled: [{name: NodeAffinity, weight: 0}]}", {"NodeAffinity": 1}, id="0 is 1"),
        pytest.param(
            "multiPoint: {enabled: [{name: NodeAffinity}]}", {"NodeAffinity": 1}, id="in multiPoint too"
        ),
        pytest.param(
            "multiPoint: {enabled: [{name: NodeAffinity, weight: 9}]}", {"NodeAffinity": 9}, id="multiPoint"
        ),
        pytest.param(
            "multiPoint: {enabled: [{name: NodeAffinity, weight: 9}]}\n"
            "  score: {enabled: [{name: NodeAffinity, weight: 4}]}",
            {"NodeAffinity": 4},
            id="score before multiPoint",
        ),
        pytest.param(
            "filter: {enabled: [{name: NodeAffinity, weight: 50}]}",
            {},
            id="a weight at another point means nothing",
        ),
    ],
)
def test_weights_come_from_score_then_multipoint(plugins, changed):
    assert profile_of(f"plugins:\n  {plugins}\n").weight_by_plugin == {**DEFAULT_WEIGHTS, **changed}


def test_a_plugin_that_does_not_score_has_no_weight():
    profile = profile_of("plugins: {score: {disabled: [{name: '*'}], enabled: [{name: ImageLocality}]}}")
    assert profile.weight_by_plugin == {"ImageLocality": 1}
    assert profile.plugins_by_point["score"] == ("ImageLocality",)


def test_a_disabled_plugin_that_is_not_built_is_not_listed():
    profile = profile_of("plugins: {multiPoint: {disabled: [{name: DynamicResources}]}}")
    assert profile.not_built == ()


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        pytest.param(
            "filter: {enabled: [{name: NodeName}, {name: Foo}]}",
            ['profiles[0].plugins.filter.enabled[1].name: FilterPlugin "Foo" does not exist'],
            id="unknown",
        ),
        pytest.param(
            "multiPoint: {enabled: [{name: Foo}]}",
            ['profiles[0].plugins.multiPoint.enabled[0].name: plugin "Foo" does not exist'],
            id="unknown in multiPoint",
        ),
        pytest.param(
            "filter: {enabled: [{weight: 1}]}",
            ['profiles[0].plugins.filter.enabled[0].name: FilterPlugin "" does not exist'],
            id="no name",
        ),
        pytest.param(
            "filter: {enabled: [{name: ImageLocality}]}",
            [
                'profiles[0].plugins.filter.enabled[0].name: plugin "ImageLocality" does not extend FilterPlugin plugin'
            ],
            id="does not run there",
        ),
        pytest.param(
            "filter: {enabled: [{name: NodeName}, {name: DynamicResources}]}",
            [
                'profiles[0].plugins.filter.enabled[1].name: found "DynamicResources", '
                "expected a plugin that is built (resource claims are not supported yet)"
            ],
            id="not built",
        ),
        pytest.param(
            "multiPoint: {enabled: [{name: DynamicResources}, {name: PodGroupPodsCount}]}",
            [
                'profiles[0].plugins.multiPoint.enabled[0].name: found "DynamicResources", '
                "expected a plugin that is built (resource claims are not supported yet)",
                'profiles[0].plugins.multiPoint.enabled[1].name: found "PodGroupPodsCount", '
                "expected a plugin that is built (groups are placed by a search that calls no plugin there)",
            ],
            id="not built in multiPoint",
        ),
        pytest.param(
            "placementScore: {enabled: [{name: NodeResourcesFit}]}",
            [
                'profiles[0].plugins.placementScore.enabled[0].name: found "NodeResourcesFit", '
                "expected none (groups are placed by a search that calls no plugin there)"
            ],
            id="a point of pod groups",
        ),
        pytest.param(
            "preFilter: {enabled: [{name: GCEPDLimits}]}",
            [
                'profiles[0].plugins.preFilter.enabled[0]: Invalid value: "GCEPDLimits": was invalid in version "v1" '
                '(KubeSchedulerConfiguration is version "kubescheduler.config.k8s.io/v1")'
            ],
            id="removed",
        ),
        pytest.param(
            "filter: {enabled: [{name: NodeName}, {name: NodeName}]}",
            [
                'profiles[0].plugins.filter.enabled[1].name: plugin "NodeName" already registered as "FilterPlugin"'
            ],
            id="twice at a point",
        ),
        pytest.param(
            "multiPoint: {enabled: [{name: NodePorts}, {name: NodePorts}]}",
            [
                'profiles[0].plugins.multiPoint.enabled[0].name: plugin "NodePorts" '
                'already registered as "PreFilterPlugin"'
            ],
            id="twice in multiPoint: the last replaces the default, the first is too much",
        ),
        pytest.param(
            "queueSort: {disabled: [{name: PrioritySort}]}",
            [
                "profiles[0].plugins.queueSort: only one queue sort plugin required for profile "
                'with scheduler name "p", but got 0'
            ],
            id="no queue sort",
        ),
        pytest.param(
            "bind: {disabled: [{name: '*'}]}",
            [
                'profiles[0].plugins.bind: at least one bind plugin is needed for profile with scheduler name "p"'
            ],
            id="no bind",
        ),
    ],
)
def test_a_plugin_that_cannot_run_is_named_with_its_place(plugins, expected):
    assert lines_of(one_profile(f"plugins:\n  {plugins}\n")) == expected


def test_a_duplicate_in_multipoint_is_valid_if_every_point_overrides_it():
    double = "multiPoint: {enabled: [{name: NodeName}, {name: NodeName}]}"
    assert (
        "NodeName"
        in profile_of(
            f"plugins:\n  {double}\n  filter: {{enabled: [{{name: NodeName}}]}}\n"
        ).plugins_by_point["filter"]
    )


def test_the_table_names_every_plugin_once_and_only_known_points():
    assert len({plugin.name for plugin in DEFAULT_PLUGINS}) == len(DEFAULT_PLUGINS)
    assert {point for plugin in DEFAULT_PLUGINS for point in plugin.points} - {"placementScore"} <= set(
        POINTS
    )

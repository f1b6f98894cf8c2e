"""A plugin that `explain` does not know takes part if it has `explain`, and is shown with its reason if it has not."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from scheduler.daemon.assembly.profiles import build_profiles
from scheduler.engine.framework.explaining import (
    BlockingRule,
    ExplainContext,
    PluginExplanation,
    PodsPerRow,
    Repair,
    Where,
)
from scheduler.engine.framework.interface import FilterPlugin, PodContext, PreFiltered, RuleFilter
from scheduler.engine.framework.profile import Profile
from scheduler.engine.framework.status import unschedulable
from scheduler.engine.model.changes import LabelNode, RemovePod
from scheduler.engine.state.arrays import Rows
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.columns import ABSENT
from scheduler.engine.state.matching import NamespaceRule, PodMatcher
from scheduler.engine.syntax.selectors import NOTHING, parse_selector
from scheduler.tools.explain.explainer import explain
from scheduler.tools.explain.formats.explanation import Explanation
from scheduler.tools.explain.formats.terminal import Style
from scheduler.tools.explain.report import report_lines
from scheduler.tools.explain.sentences import rule_text
from tests.support import build
from tests.support.driving import NAME
from tests.support.json_cluster import SETTINGS, Cluster, groups, web, zoned

INSPECTED = "inspected"


class OnlyInspected(FilterPlugin):
    """Refuses nodes without a label, and explains nothing."""

    name = "OnlyInspected"

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        del context
        has_label = view.column(INSPECTED).ids[: view.n_rows] != ABSENT
        return RuleFilter(view.n_rows, (has_label, unschedulable("not inspected")))


class OnlyInspectedExplained(OnlyInspected):
    """The same, with the node's zone and the label to add."""

    def explain(self, context: ExplainContext) -> PluginExplanation:
        name_of = context.view.nodes.name_of

        def where(rows: Rows) -> list[str]:
            return [name_of(row)[0] for row in rows.tolist()]

        repair = Repair(lambda row: [(LabelNode(name_of(row), INSPECTED, "yes"),)])
        return PluginExplanation(where=where, repair=repair)


class OnePerZone(FilterPlugin):
    """Refuses zones that have a pod with app=web, and explains that by a rule of its own kind."""

    name = "OnePerZone"

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        del context
        has_none = ~view.pods_by_domain(_web(), build.ZONE).at_least(1)
        return RuleFilter(view.n_rows, (has_none, unschedulable("zone is taken")))

    def explain(self, context: ExplainContext) -> PluginExplanation:
        view = context.view
        n_to_remove = view.pods_by_domain(_web(), build.ZONE).on_nodes()
        rule = BlockingRule(
            kind="onePerZone",
            topology_key=build.ZONE,
            column=view.column(build.ZONE),
            selects="app=web",
            namespaces="namespace default",
            refused=view.alive & (n_to_remove > 0),
            eligible=view.eligible((build.ZONE,)),
            pods=PodsPerRow(
                view.selected(_web()).by_row.astype(np.int64), partial(context.selected_on, _web())
            ),
            n_to_remove=n_to_remove,
            max_existing=0,
        )
        return PluginExplanation([rule])


def _web() -> PodMatcher:
    return PodMatcher(
        ((NamespaceRule(frozenset({"default"}), NOTHING), parse_selector({"app": "web"}, None)),)
    )


def explained(cluster: Cluster, plugin: FilterPlugin) -> Explanation:
    state = cluster.state()

    def new_profile(view: ClusterView) -> Profile:
        profile = build_profiles(SETTINGS, view)[NAME]
        return replace(profile, filters=(*profile.filters, plugin))

    return explain(replace(cluster.request(web("p"), state), new_profile=new_profile))


def test_a_plugin_that_explains_nothing_is_one_group_without_a_remedy() -> None:
    answer = explained(Cluster(zoned("a1 a2 b1")), OnlyInspected())
    assert groups(answer) == [(3, "OnlyInspected", "")]
    assert answer.groups[0].reason == "not inspected"
    assert (answer.rules, answer.suggestions) == ((), ())


def test_a_plugin_says_where_it_refuses_and_what_would_help() -> None:
    answer = explained(Cluster(zoned("a1 a2 b1")), OnlyInspectedExplained())
    assert groups(answer) == [(2, "OnlyInspected", "a"), (1, "OnlyInspected", "b")]
    remedies = [suggestion.changes for suggestion in answer.suggestions]
    assert remedies == [(LabelNode(name, INSPECTED, "yes"),) for name in ("a1", "a2")]


def test_groups_remedies_and_a_sentence_follow_from_a_plugins_rules() -> None:
    cluster = Cluster(zoned("a1 a2 b1"), [web("one", "a1"), web("two", "b1")])
    answer = explained(cluster, OnePerZone())
    assert groups(answer) == [(2, "OnePerZone", f"{build.ZONE}=a"), (1, "OnePerZone", f"{build.ZONE}=b")]
    (rule,) = answer.rules
    assert rule_text(rule) == f"onePerZone: app=web in namespace default, by {build.ZONE}; closes 3 nodes"
    removed = {
        change.pod for s in answer.suggestions for change in s.changes if isinstance(change, RemovePod)
    }
    assert removed == {"one", "two"}


class OnlyInspectedInWords(OnlyInspected):
    """The same, with something to say about every node."""

    said: str | Where = ""

    def explain(self, context: ExplainContext) -> PluginExplanation:
        del context
        return PluginExplanation(where=lambda rows: [self.said] * len(rows))


@pytest.mark.parametrize(
    ("said", "nowhere", "misspelt"),
    [
        ("no node has been seen; did you mean to?", False, False),
        (Where("keine Maschine", is_nowhere=True), True, False),
        (Where("keine Maschine; meintest du rack?", is_nowhere=True, is_misspelt=True), True, True),
    ],
)
def test_a_plugin_says_by_fields_rather_than_by_words_that_no_node_has_it(
    said: str | Where, nowhere: bool, misspelt: bool
) -> None:
    plugin = OnlyInspectedInWords()
    plugin.said = said
    answer = explained(Cluster(zoned("a1 b1")), plugin)
    assert [(group.nowhere, group.misspelt) for group in answer.groups] == [(nowhere, misspelt)]
    lines = report_lines(answer, Style(io.StringIO(), {}))
    assert ("No small change would help." in lines) != misspelt

"""The ready tests let a plugin pass that keeps the contract, and catch each way of breaking it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from scheduler.sdk.plugin import (
    SKIP,
    Action,
    ClusterEventWithHint,
    FinalScores,
    Hint,
    NodeByNode,
    NodeView,
    Pod,
    Resource,
    RuleFilter,
    unschedulable,
)
from scheduler.sdk.testing import PluginTests, make_pod

ZONE = "topology.kubernetes.io/zone"
CROWDED = unschedulable("node(s) had two pods")
EVENTS = (
    ClusterEventWithHint(Resource.POD, Action.DELETE),
    ClusterEventWithHint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
)


class Crowded:
    """Refuses nodes with two pods or more; over all nodes at once."""

    name = "Crowded"

    def events_to_register(self) -> Any:
        return EVENTS

    def prefilter(self, context: Any, view: Any) -> Any:
        return RuleFilter(view.n_rows, (view.nodes.pod_count < 2, CROWDED))


class CrowdedByNode(NodeByNode):
    """The same, node by node."""

    name = "CrowdedByNode"
    reason = "node(s) had two pods"

    def fits(self, pod: Pod, node: NodeView) -> bool:
        return node.requested("pods") < 2


class TestCrowded(PluginTests):
    plugin = Crowded
    other_form = CrowdedByNode


class TestCrowdedByNode(PluginTests):
    plugin = CrowdedByNode
    other_form = Crowded


class _Forgetting(Crowded):
    kept: Any = None

    def prefilter(self, context: Any, view: Any) -> Any:
        if _Forgetting.kept is None or len(_Forgetting.kept) != view.n_rows:
            _Forgetting.kept = view.nodes.pod_count < 2
        return RuleFilter(view.n_rows, (_Forgetting.kept.copy(), CROWDED))


class _Remembering(Crowded):
    def prefilter(self, context: Any, view: Any) -> Any:
        if len(getattr(self, "kept", ())) != view.n_rows:
            self.kept = view.nodes.pod_count < 2
        return RuleFilter(view.n_rows, (self.kept, CROWDED))


class _Lonely(NodeByNode):
    """Wants company, and does not hear of pods that come."""

    name = "Lonely"
    reason = "node(s) had no pod"

    def fits(self, pod: Pod, node: NodeView) -> bool:
        return bool(node.pods)

    def events_to_register(self) -> Any:
        return EVENTS


class _Drawing(Crowded):
    draw = np.random.default_rng(1)

    def prefilter(self, context: Any, view: Any) -> Any:
        return RuleFilter(view.n_rows, (self.draw.random(view.n_rows) < 0.5, CROWDED))


class _Silent(Crowded):
    def prefilter(self, context: Any, view: Any) -> Any:
        return RuleFilter(view.n_rows, (view.nodes.pod_count < 2, unschedulable()))


class _Deaf(Crowded):
    def events_to_register(self) -> Any:
        return (ClusterEventWithHint(Resource.NODE, Action.ADD),)


class _Sleepy(Crowded):
    def events_to_register(self) -> Any:
        return [ClusterEventWithHint(one.resource, one.actions, lambda *_: Hint.SKIP) for one in EVENTS]


class _Wild(Crowded):
    def prescore(self, context: Any, view: Any, feasible: Any) -> Any:
        return FinalScores(np.full(view.n_rows, 1000))


class _Raising(Crowded):
    def prefilter(self, context: Any, view: Any) -> Any:
        assert context.pod.labels["team"]
        return SKIP


class _Slow(Crowded):
    """Looks at the nodes in a loop, every time."""

    def prefilter(self, context: Any, view: Any) -> Any:
        counts = [len(view.view_at(row).pods) for row in range(view.n_rows)]
        return RuleFilter(view.n_rows, (np.array(counts) < 2, CROWDED))


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        pytest.param(_Forgetting, PluginTests.test_answers_follow_changes, id="keeps what it saw"),
        pytest.param(_Remembering, PluginTests.test_answers_follow_changes, id="keeps it in itself"),
        pytest.param(_Lonely, PluginTests.test_events_wake_the_pods_that_were_refused, id="hears of no pods"),
        pytest.param(_Drawing, PluginTests.test_the_same_question_has_the_same_answer, id="draws answers"),
        pytest.param(_Silent, PluginTests.test_refused_nodes_have_reasons, id="gives no reason"),
        pytest.param(_Deaf, PluginTests.test_events_wake_the_pods_that_were_refused, id="lacks an event"),
        pytest.param(_Sleepy, PluginTests.test_events_wake_the_pods_that_were_refused, id="has a wrong hint"),
        pytest.param(_Wild, PluginTests.test_every_pod_is_decided, id="scores above 100"),
        pytest.param(_Wild, PluginTests.test_scores_are_from_0_to_100, id="has such a score"),
        pytest.param(_Raising, PluginTests.test_every_pod_is_decided, id="raises"),
        pytest.param(_Silent, PluginTests.test_both_forms_agree, id="differs from its other form"),
    ],
)
def test_a_broken_plugin_is_caught(broken: Any, test: Callable[[PluginTests], None]):
    class Tests(PluginTests):
        plugin = broken
        other_form = CrowdedByNode
        pods = (make_pod(),)

    with pytest.raises(AssertionError):
        test(Tests())


def test_a_slow_plugin_is_caught(record_property: Any):
    class Tests(PluginTests):
        plugin = _Slow
        longest_decision_s = 0.0005

    with pytest.raises(AssertionError):
        Tests().test_a_decision_at_5000_nodes_is_fast(record_property)

"""Rules that look at nodes one by one, and how often they are asked."""

from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.sdk.plugin import NodeByNode, NodeView, Pod, Status, unresolvable
from scheduler.sdk.testing import Cluster, make_node, make_pod
from tests.support import build


class Counting(NodeByNode):
    """Refuses red nodes and full ones, prefers empty ones, and notes which nodes it was asked about."""

    name = "Counting"
    reason = "node(s) were red"
    node_annotations = ("example.com/owner",)
    asked: ClassVar[list[str]] = []

    def fits(self, pod: Pod, node: NodeView) -> bool | Status:
        self.asked.append(node.name)
        if node.requested("pods") >= 2:
            return unresolvable("node(s) had two pods")
        return node.labels.get("color") != "red"

    def score(self, pod: Pod, node: NodeView) -> int:
        return 100 - 50 * len(node.pods)


def _cluster() -> Cluster:
    cluster = Cluster(plugins=[Counting], alone=True)
    cluster.add(make_node("a", labels={"color": "red"}), make_node("b"), make_node("c"))
    return cluster.add(make_pod("one", node="b"))


def _asked(cluster: Cluster, pod: Any) -> list[str]:
    Counting.asked.clear()
    cluster.decide(pod)
    return sorted(Counting.asked)


def test_it_is_asked_again_only_about_nodes_that_changed():
    cluster, pod = _cluster(), make_pod("new")
    assert _asked(cluster, pod) == ["a", "b", "c"]
    assert _asked(cluster, pod) == []
    cluster.add(make_pod("two", node="b"))
    assert _asked(cluster, pod) == ["b"]
    assert cluster.decide(pod).refused["b"] == "node(s) had two pods"
    cluster.remove_pod("two")
    assert _asked(cluster, pod) == ["b"]
    assert "b" in cluster.decide(pod).feasible


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"labels": {"color": "red"}}, id="label"),
        pytest.param({"taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]}, id="taint"),
        pytest.param({"annotations": {"example.com/owner": "us"}}, id="annotation"),
        pytest.param({"unschedulable": True}, id="cordoned"),
        pytest.param({"allocatable": {"cpu": "1"}}, id="amounts"),
    ],
)
def test_it_is_asked_again_only_about_a_node_that_came_or_changed(changed: Any):
    cluster, pod = _cluster(), make_pod("new")
    cluster.decide(pod)
    cluster.add(make_node("d"))
    assert _asked(cluster, pod) == ["d"]
    cluster.add(make_node("d", **changed))
    assert _asked(cluster, pod) == ["d"]
    cluster.remove_node("d")
    assert _asked(cluster, pod) == []
    cluster.add(make_node("d"))
    assert _asked(cluster, pod) == ["d"]
    assert "d" in cluster.decide(pod).feasible


def test_what_changed_before_another_node_came_is_asked_again():
    """Also where so much happened in between that no log has it."""
    cluster, pod = _cluster(), make_pod("new")
    cluster.decide(pod)
    for number in range(1100):
        cluster.add(make_pod(f"p{number}", node="c"))
        cluster.remove_pod(f"p{number}")
    cluster.add(make_pod("two", node="b"), make_node("d"))
    assert _asked(cluster, pod) == ["b", "c", "d"]


def test_score_is_asked_only_about_nodes_that_fit():
    """A rule need not score what it refuses itself, nor what another filter refused."""

    class Priced(NodeByNode):
        name = "Priced"

        def fits(self, pod: Pod, node: NodeView) -> bool:
            return "price" in node.labels

        def score(self, pod: Pod, node: NodeView) -> int:
            return int(node.labels["price"])

    cluster = Cluster(plugins=[Priced]).add(
        make_node("a", labels={"price": "1"}),
        make_node("b", labels={"price": "7"}),
        make_node("c"),
        make_node("d", labels={"price": "dear"}, unschedulable=True),
    )
    scores = cluster.decide(make_pod()).scores
    assert {node: by["Priced"] for node, by in scores.items()} == {"a": 1, "b": 7}


@pytest.mark.parametrize("score", [-1, 101, 65_536 + 50, 1 << 70])
def test_a_score_out_of_range_fails_the_cycle_and_names_the_node(score: int):
    """Also one that would be in range after it was cut to 16 bits."""

    class Wild(NodeByNode):
        name = "Wild"

        def score(self, pod: Pod, node: NodeView) -> int:
            return score

    decision = Cluster(plugins=[Wild]).add(make_node("a"), make_node("b")).decide(make_pod())
    assert decision.error
    assert f"ValueError: score {score} of node a, expected 0 to 100" in decision.message


def test_pods_that_differ_in_what_a_rule_may_read_are_told_apart():
    """Those that are equal but in name share the answers."""
    cluster = _cluster()
    specs: list[Any] = [{}, {"labels": {"a": "b"}}, {"priority": 5}, {"requests": {"cpu": "1"}}]
    assert [_asked(cluster, make_pod(**spec)) for spec in specs] == [["a", "b", "c"]] * 4
    assert _asked(cluster, make_pod("another")) == []


def test_a_rule_may_read_amounts_taints_annotations_and_age():
    class Reading(NodeByNode):
        name = "Reading"
        node_annotations = ("example.com/owner",)

        def fits(self, pod: Pod, node: NodeView) -> Status:
            cpu = f"{node.requested('cpu')}/{node.allocatable('cpu')}"
            return unresolvable(
                f"{cpu} {node.taints[0].key} {dict(node.annotations)} {node.created} {node.unschedulable}"
            )

    cluster = Cluster(plugins=[Reading], alone=True)
    annotations = {"example.com/owner": "us", "example.com/other": "x"}
    taint = {"key": "gpu", "effect": "NoSchedule"}
    cluster.add(make_node("n", taints=[taint], annotations=annotations, created="2026-02-03T00:00:00Z"))
    cluster.add(make_pod("running", node="n", requests={"cpu": "1500m"}))
    expected = "1500/32000 gpu {'example.com/owner': 'us'} 2026-02-03T00:00:00Z False"
    assert cluster.decide(make_pod()).refused == {"n": expected}


def test_thousands_of_reasons_end_in_the_rule_s_own():
    """Statuses are numbers in a cached array: a rule that names nodes in its reasons cannot exhaust them."""

    class Naming(NodeByNode):
        name = "Naming"
        reason = "node(s) were not named"

        def fits(self, pod: Pod, node: NodeView) -> Status:
            return unresolvable(f"node {node.name} was refused")

    cluster = Cluster(plugins=[Naming], alone=True)
    refused = cluster.add(*(make_node(f"n{number}") for number in range(1200))).decide(make_pod()).refused
    assert refused["n0"] == "node n0 was refused"
    assert len(set(refused.values())) == 1000
    assert "node(s) were not named" in refused.values()


NODES, COLORS = ("a", "b", "c", "d"), ("red", "green")
CHANGES = st.one_of(
    st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from(COLORS)),
    st.tuples(st.just("no node"), st.sampled_from(NODES), st.none()),
    st.tuples(st.just("pod"), st.sampled_from(NODES), st.integers(0, 5)),
    st.tuples(st.just("no pod"), st.none(), st.integers(0, 5)),
    st.tuples(st.just("namespace"), st.sampled_from(NODES), st.sampled_from(COLORS)),
)


def _change(cluster: Cluster, kind: str, name: Any, value: Any) -> None:
    known = {(one["kind"], one["metadata"]["name"]) for one in cluster.objects}
    match kind:
        case "node":
            cluster.add(make_node(name, labels={"color": value}))
        case "no node" if ("Node", name) in known:
            cluster.remove_node(name)
        case "pod":
            cluster.add(make_pod(f"pod-{value}", node=name))
        case "no pod" if ("Pod", f"pod-{value}") in known:
            cluster.remove_pod(f"pod-{value}")
        case "namespace":
            cluster.add(build.namespace(name, labels={"c": value}))


@settings(max_examples=25, deadline=None)
@given(st.lists(CHANGES, min_size=1, max_size=15))
def test_after_any_changes_the_answers_are_those_of_a_cluster_that_was_made_so(changes: Any):
    cluster, pod = Cluster(plugins=[Counting], alone=True), make_pod("new")
    for kind, name, value in changes:
        _change(cluster, kind, name, value)
        kept = cluster.decide(pod)
    fresh = Cluster(plugins=[Counting], alone=True).add(*cluster.objects).decide(pod)
    assert (kept.refused, kept.scores) == (fresh.refused, fresh.scores)

"""Explanations compared with the machine, the plugins and the messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from scheduler.daemon.assembly.profiles import build_profiles
from scheduler.engine.framework.explaining import Repair
from scheduler.engine.model.changes import Changes
from scheduler.engine.model.instructions import Bind
from scheduler.engine.model.stimuli import PodSeen
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.tools.explain import suggestions
from scheduler.tools.explain.explainer import explain
from scheduler.tools.explain.inspection import Inspection, inspect_pod
from tests.support import build
from tests.support.driving import NAME, each_of
from tests.support.json_cluster import SETTINGS, Cluster, as_json, decoded, web
from tests.support.messages import refusals
from tests.tools.explain.random_clusters import random_cluster


def bound_node(cluster: Cluster, pod: build.Json) -> str | None:
    """Return the node to which a machine binds the pod; None if it does not."""
    driver = cluster.driver()
    subject = {**pod, "spec": {**pod["spec"], "schedulerName": NAME}}
    driver.handle(PodSeen(decoded(subject)))
    binds = each_of(driver.cycle(), Bind)
    driver.audit()
    return binds[0].node_name if binds else None


def test_every_suggestion_makes_the_pod_schedulable() -> None:
    """The changes are made on the API objects. None of them can be left out."""
    n_refused = n_suggested = 0
    for seed in range(60):
        cluster, pod = random_cluster(seed)
        answer = cluster.explain(pod)
        real = bound_node(cluster, pod)
        assert (answer.state == "schedulable") == (real is not None), seed
        if answer.state != "unschedulable":
            continue
        n_refused += 1
        assert len(answer.suggestions) <= 5
        sizes = [len(suggestion.changes) for suggestion in answer.suggestions]
        assert sizes == sorted(sizes)
        for suggestion in as_json(answer)["suggestions"]:
            n_suggested += 1
            changes = suggestion["changes"]
            assert bound_node(*cluster.changed(changes, pod)) is not None, (seed, changes)
            for left_out in range(len(changes)) if 1 < len(changes) <= 6 else ():
                fewer = changes[:left_out] + changes[left_out + 1 :]
                assert bound_node(*cluster.changed(fewer, pod)) is None, (seed, fewer)
    assert n_refused >= 15
    assert n_suggested >= n_refused


def test_steps_are_told_also_where_thousands_of_rules_refuse_a_node() -> None:
    """The 51st pod that would have to leave ends the search on a node; every rule is on one topology key."""
    labels = {"app": "web"}
    alone = [build.term(build.ZONE, build.selector("app=web", f"!absent-{number}")) for number in range(60)]
    pods = [
        build.pod(f"p{number}", node="n", affinity=build.affinity(anti_required=[term]))
        for number, term in enumerate(alone)
    ]
    steps: list[str] = []
    cluster = Cluster([build.node("n", labels={build.ZONE: "a"})], pods)
    answer = cluster.explain(build.pod("subject", labels=labels), on_step=steps.append)
    assert (len(answer.rules), answer.n_more_rules, answer.suggestions) == (10, 50, ())
    assert steps == [
        "running every filter on every node",
        "finding the rules that refuse nodes",
        "looking at 60 rules",
        "looking for changes that would help",
    ]
    few = Cluster(cluster.nodes, pods[:50])
    (suggestion,) = few.explain(build.pod("subject", labels=labels), on_step=steps.append).suggestions
    assert len(suggestion.changes) == 50
    assert steps[-1] == "trying change 1 of 1 on a copy of the cluster"


def test_a_change_that_only_another_change_needs_is_left_out_with_it() -> None:
    """
    A full node would need a disk, a zone, and its pod to go. Where the pod stays, it counts in the new zone, and the
    subject may go to the other one: then the disk is not needed either.
    """
    nodes = [
        build.node("n0", allocatable={"cpu": "1"}),
        build.node("n1", labels={build.ZONE: "a"}, allocatable={"cpu": "2"}),
        build.node("n3", labels={build.ZONE: "b", "disk": "ssd"}, allocatable={"cpu": "1"}),
    ]
    web = {"app": "web"}
    pods = [
        build.pod(name, labels=web, node=node, cpu=cpu)
        for name, node, cpu in (("p0", "n3", "100m"), ("p1", "n0", "1"))
    ]
    subject = build.pod(
        "subject",
        labels=web,
        cpu="500m",
        node_selector={"disk": "ssd"},
        spread=[build.spread(build.ZONE, build.selector("app=web"), max_skew=1, affinity_policy="Ignore")],
    )
    cluster = Cluster(nodes, pods)
    found = as_json(cluster.explain(subject))["suggestions"]
    assert [(each["node"], [change["change"] for change in each["changes"]]) for each in found] == [
        ("n3", ["honorPolicy"]),
        ("n3", ["labelNode"]),
        ("n1", ["labelNode"]),
        ("n3", ["removePod"]),
        ("n3", ["allowSkew"]),
    ]
    for each in found:
        assert bound_node(*cluster.changed(each["changes"], subject)) is not None, each


def test_blocking_rules_refuse_exactly_the_nodes_that_the_plugins_refuse() -> None:
    """The plugin checks all terms together, the explanation each by itself."""
    n_compared = 0
    for seed in range(1000, 1200):
        cluster, pod = random_cluster(seed)
        state = cluster.state()
        profile = build_profiles(SETTINGS, ClusterView(state))[NAME]
        inspection = inspect_pod(decoded(pod), state, profile)
        assert isinstance(inspection, Inspection)
        for plugin, statuses in inspection.refusals:
            if plugin.name not in ("PodTopologySpread", "InterPodAffinity"):
                continue
            refused = (statuses.codes != 0) & state.nodes.alive
            found = np.zeros_like(refused)
            for rule in inspection.explanations[plugin.name].rules:
                found |= rule.refused
            assert found.tolist() == refused.tolist(), (seed, plugin.name)
            n_compared += bool(refused.any())
    assert n_compared >= 40


def test_node_groups_add_up_to_the_counts_of_the_message() -> None:
    for seed in range(2000, 2100):
        cluster, pod = random_cluster(seed)
        answer = cluster.explain(pod, try_changes=False)
        if answer.state != "unschedulable":
            continue
        assert answer.n_more_groups == 0
        assert sum(group.n_nodes for group in answer.groups) == answer.n_nodes
        counts: Counter[str] = Counter()
        for group in answer.groups:
            for reason in group.reason.split(", "):
                counts[reason] += group.n_nodes
        entries = sorted(f"{count} {reason}" for reason, count in counts.items())
        assert refusals(answer.message) == f"0/{answer.n_nodes} nodes are available: {', '.join(entries)}."


def test_of_five_hundred_nodes_few_are_inspected(monkeypatch: pytest.MonkeyPatch) -> None:
    per_zone = build.affinity(anti_required=[build.term(build.ZONE, build.selector("app=web"))])
    nodes = [
        build.node(
            f"n{i}",
            labels={build.ZONE: f"z{i % 50}"},
            allocatable={"cpu": "2"},
            taints=[f"t{i % 7}:NoSchedule"],
        )
        for i in range(500)
    ]
    cluster = Cluster(nodes, [web(f"w{i}", f"n{i}", affinity=per_zone, cpu="1900m") for i in range(500)])
    state = cluster.state()
    subject = build.pod("p", labels={"app": "web"}, affinity=per_zone, cpu="1")
    looked_at: list[int] = []

    def for_node(row: int, repairs: Sequence[Repair]) -> Iterator[Changes]:
        looked_at.append(row)
        return for_a_node(row, repairs)

    for_a_node = suggestions._for_node
    monkeypatch.setattr(suggestions, "_for_node", for_node)
    answer = explain(cluster.request(subject, state))
    assert 0 < len(looked_at) <= suggestions._MAX_NODES
    assert answer.state == "unschedulable"
    assert len(answer.groups) <= 30
    assert all(len(rule.domains) <= 100 for rule in answer.rules)

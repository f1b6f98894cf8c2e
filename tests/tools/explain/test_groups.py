"""Groups without places: the member that is refused beside the others, and what would let all of them schedule."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from scheduler.engine.model.instructions import Bind
from scheduler.engine.model.stimuli import PodSeen
from scheduler.tools.explain.formats.explanation import Explanation
from tests.support import build
from tests.support.driving import NAME, each_of
from tests.support.json_cluster import Cluster, as_json, changes, decoded, groups
from tests.tools.explain.random_clusters import random_cluster

GROUP, MIN_COUNT = "affinity-scheduler.io/pod-group", "affinity-scheduler.io/pod-group-min-count"


def _member(number: int, n_needed: int, template: build.Json) -> build.Json:
    """Return a member of a group like the template."""
    member = copy.deepcopy(template)
    member["metadata"] |= {"name": f"m{number}", "uid": f"m{number}"}
    member["metadata"]["labels"] |= {GROUP: "gang", MIN_COUNT: str(n_needed)}
    member["spec"]["schedulerName"] = NAME
    return member


def _nodes(names: str, cpu: str = "4", **more: Any) -> list[build.Json]:
    return [build.node(name, allocatable={"cpu": cpu}, **more) for name in names.split()]


def _explained(cluster: Cluster, template: build.Json, n_members: int, **more: Any) -> Explanation:
    """Return the explanation of the last member of a group of which all are needed."""
    members = [_member(number, n_members, template) for number in range(n_members)]
    return Cluster(cluster.nodes, cluster.pods + members, cluster.namespaces).explain(members[-1], **more)


def _bound(cluster: Cluster, template: build.Json, n_members: int) -> int:
    """Return how many of the members a machine binds."""
    driver = cluster.driver()
    for number in range(n_members):
        driver.handle(PodSeen(decoded(_member(number, n_members, template))))
    binds = each_of(driver.cycle(), Bind)
    driver.audit()
    return len(binds)


def test_the_member_that_is_refused_beside_the_others_is_explained() -> None:
    answer = _explained(Cluster(_nodes("a b")), build.pod("m", cpu="3"), 3)
    assert answer.member is not None
    placed = {(pod.name, pod.node) for pod in answer.member.placed.shown}
    assert (answer.member.pod, answer.member.placed.n_total, len(placed)) == ("m2", 2, 2)
    assert groups(answer) == [(2, "NodeResourcesFit", "needs 3 cpu, at most 1 free")]
    assert changes(answer) == [["AddRoom"], ["AddRoom"]]


def test_what_would_help_is_enough_for_all_members() -> None:
    """Four of six have no place; to untaint one node, or to give one room for one more, is not enough."""
    tainted = _nodes("t0 t1 t2 t3", taints=["gpu:NoSchedule"])
    answer = _explained(Cluster([*_nodes("a b"), *tainted]), build.pod("m", cpu="3"), 6)
    assert changes(answer)[0] == ["TolerateTaint"]
    assert answer.suggestions[0].texts == ("each such member tolerates the taint gpu:NoSchedule",)
    assert ["RemoveTaint"] * 4 in changes(answer)
    assert ["AddRoom", "AddRoom"] in changes(answer)


def test_no_member_is_to_leave_for_another() -> None:
    """Of the pods on the nodes, only the one that is no member may leave."""
    running = [build.pod("w", node="a", cpu="3")]
    answer = _explained(Cluster(_nodes("a b"), running), build.pod("m", cpu="3"), 2)
    removed = [change for s in as_json(answer)["suggestions"] for change in s["changes"] if "pod" in change]
    assert {change["pod"] for change in removed} == {"w"}


def test_the_domain_in_which_the_group_came_furthest_is_named() -> None:
    near = build.affinity(required=[build.term(build.ZONE, build.selector("app=g"))])
    template = build.pod("m", cpu="3", affinity=near)
    template["metadata"]["labels"]["app"] = "g"
    nodes = [*_nodes("a0 a1", labels={build.ZONE: "a"}), *_nodes("b0", labels={build.ZONE: "b"})]
    answer = _explained(Cluster(nodes), template, 3)
    assert answer.member is not None
    assert (answer.member.domain, answer.member.placed.n_total) == ("a", 2)
    assert sum(group.n_nodes for group in answer.groups) == 2
    # Beside the refused member the others have nodes: none of them is said to lack one.
    (rule,) = [rule for rule in answer.rules if rule.pods.shown]
    assert not {pod.name for pod in rule.pods.shown} & {pod.name for pod in rule.pending.shown}


def test_a_level_that_no_node_has_is_named() -> None:
    """The message of such a group counts no nodes and no reason."""
    template = build.pod("m", cpu="1")
    level = "affinity-scheduler.io/pod-group-part-required-topology"
    template["metadata"]["annotations"] = {"affinity-scheduler.io/pod-group-part": "p", level: "rack"}
    note = "no node has the label rack, which the group, or a part of it, requires"
    assert note in _explained(Cluster(_nodes("a b")), template, 2).notes
    # One node with the label is too small, so that the group still has no places.
    racked = _nodes("c", cpu="1", labels={"rack": "r"})
    answer = _explained(Cluster([*_nodes("a b"), *racked]), template, 2)
    assert (answer.state, [n for n in answer.notes if "label" in n]) == ("unschedulable", [])


def test_without_trials_the_refusals_are_told_all_the_same() -> None:
    answer = _explained(Cluster(_nodes("a b")), build.pod("m", cpu="3"), 3, try_changes=False)
    assert (bool(answer.groups), answer.suggestions) == (True, ())


def test_every_suggestion_binds_the_whole_group() -> None:
    n_refused = n_suggested = 0
    for seed in range(5000, 5040):
        cluster, template = random_cluster(seed)
        n_members = 2 + seed % 3
        answer = _explained(cluster, template, n_members)
        bound = _bound(cluster, template, n_members)
        assert bound in (0, n_members), seed
        assert (answer.state == "schedulable") == bool(bound), seed
        n_refused += not bound
        for suggestion in as_json(answer)["suggestions"]:
            n_suggested += 1
            after, changed = cluster.changed(suggestion["changes"], template)
            assert _bound(after, changed, n_members) == n_members, (seed, suggestion["changes"])
    assert n_refused >= 15
    assert n_suggested >= 10


def test_moves_that_would_make_room_are_named() -> None:
    """The small pod goes to the node that is too small for a member; one without a controller stays."""
    small: build.Json = {
        "containers": [build.container(requests={"cpu": "1"})],
        "spec": {"schedulerName": NAME},
    }
    owned = build.pod("s", node="a", owner=build.owned_by("ReplicaSet", "web"), **copy.deepcopy(small))
    nodes = [*_nodes("a b"), *_nodes("small", cpu="2")]
    answer = _explained(Cluster(nodes, [owned]), build.pod("m", cpu="4"), 2)
    assert "The group would fit after: move default/s from a to small." in answer.notes
    alone = build.pod("s", node="a", **copy.deepcopy(small))
    answer = _explained(Cluster(nodes, [alone]), build.pod("m", cpu="4"), 2)
    assert not any("move" in note for note in answer.notes)


def test_a_member_that_is_deleted_has_no_place_beside_the_others() -> None:
    """With it two members would have places, as many as the group needs; the group's cycle leaves it out."""
    ending = _member(0, 2, build.pod("m", cpu="1"))
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    members = [ending, *(_member(number, 2, build.pod("m", cpu="4")) for number in (1, 2))]
    small = build.pod(
        "s", node="b", owner=build.owned_by("ReplicaSet", "web"), cpu="1", spec={"schedulerName": NAME}
    )
    cluster = Cluster([*_nodes("a b"), *_nodes("small", cpu="2")], [small, *members])
    answer = cluster.explain(members[2])
    assert answer.member is not None
    assert answer.member.placed.n_total == 1
    assert "The group would fit after: move default/s from b to small." in answer.notes
    assert cluster.explain(ending).member is None


def test_a_percentage_of_the_group_is_told_as_one() -> None:
    term = {**build.term(build.ZONE, build.selector("app=n")), "maxPodsPerDomain": "20%"}
    own = {"affinity-scheduler.io/affinity": json.dumps(build.affinity(anti_required=[term]))}
    template = build.pod("m", cpu="0", labels={"app": "n"}, annotations=own)
    nodes = [
        build.node(name, labels={build.ZONE: name}, allocatable={"cpu": "4", "pods": "20"}) for name in "abc"
    ]
    texts = [rule.text for rule in _explained(Cluster(nodes), template, 10).rules]
    assert f"per {build.ZONE} as many pods with app=n" in texts[0]
    assert "as 20% of its group's minimum of 10: a has 2 pods, 20% allows 2;" in texts[0]


def test_members_that_disagree_are_told_so_without_suggestions() -> None:
    members = [_member(number, 2, build.pod("m", cpu="1")) for number in range(2)]
    for member, level in zip(members, ("block", "rack"), strict=True):
        member["metadata"]["annotations"] = {"affinity-scheduler.io/pod-group-required-topology": level}
    answer = Cluster(_nodes("a b"), members, []).explain(members[1])
    assert answer.state == "unschedulable"
    assert 'pod-group-required-topology: m0 says "block", m1 says "rack"' in answer.message
    assert not answer.suggestions


@pytest.mark.parametrize(("n_members", "n_changes"), [(7, [1, 1]), (9, [3]), (12, [])])
def test_room_on_many_nodes_is_no_small_change(n_members: int, n_changes: list[int]) -> None:
    """Each of six nodes has room for one member of three CPU."""
    answer = _explained(Cluster(_nodes("a b c d e f")), build.pod("m", cpu="3"), n_members)
    assert [len(suggestion.changes) for suggestion in answer.suggestions] == n_changes

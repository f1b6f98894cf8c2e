"""Groups without places: the member that is refused beside the others, and what would let all of them schedule."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.engine.model.instructions import Bind
from scheduler.engine.model.stimuli import PodSeen
from scheduler.tools.explain.formats.explanation import Explanation
from tests.support import build
from tests.support.driving import NAME, each_of
from tests.support.json_cluster import Cluster, as_json, decoded
from tests.tools.explain.random_clusters import random_cluster
from tests.tools.explain.told import kinds_of, told

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


def case(
    id_: str, nodes: list[build.Json], template: build.Json, n: int, kinds: str = "", **more: Any
) -> Any:
    return pytest.param(Cluster(nodes, **more), template, n, kinds, id=id_)


def of_spec(cpu: str = "3", **more: Any) -> build.Json:
    return build.pod("m", cpu=cpu, **more)


SIX = _nodes("a b c d e f")
OTHER = build.pod("w", node="a", cpu="3")
TAINTED = _nodes("t0 t1 t2 t3", taints=["gpu:NoSchedule"])
ZONES = [*_nodes("a0 a1", labels={build.ZONE: "a"}), *_nodes("b0", labels={build.ZONE: "b"})]
NEAR = build.affinity(required=[build.term(build.ZONE, build.selector("app=g"))])
LEVEL = "affinity-scheduler.io/pod-group-part-required-topology"
IN_RACKS = {"affinity-scheduler.io/pod-group-part": "p", LEVEL: "rack"}
RACKED = [*_nodes("a b"), *_nodes("c", cpu="1", labels={"rack": "r"})]
SHARE = {**build.term(build.ZONE, build.selector("app=n")), "maxPodsPerDomain": "20%"}
SHARED = {"affinity-scheduler.io/affinity": json.dumps(build.affinity(anti_required=[SHARE]))}
ROOMY = {"cpu": "4", "pods": "20"}
THREE = [build.node(name, labels={build.ZONE: name}, allocatable=ROOMY) for name in "abc"]
SMALL: build.Json = {"node": "a", "cpu": "1", "spec": {"schedulerName": NAME}}
OWNED = build.pod("s", owner=build.owned_by("ReplicaSet", "web"), **SMALL)
WITH_SMALL = [*_nodes("a b"), *_nodes("small", cpu="2")]


@pytest.mark.parametrize(
    ("cluster", "template", "n_members", "kinds"),
    [
        case("the member that is refused beside the others", _nodes("a b"), of_spec(), 3, "AddRoom"),
        # Four of six have no place; to untaint one node, or to give one room for one more, is not enough.
        case("enough for all", [*_nodes("a b"), *TAINTED], of_spec(), 6, "TolerateTaint AddRoom RemoveTaint"),
        case("no member leaves", _nodes("a b"), of_spec(), 2, "RemovePod AddRoom", pods=[OTHER]),
        # Beside the refused member the others have nodes: none of them is said to lack one.
        case("where it came furthest", ZONES, of_spec(labels={"app": "g"}, affinity=NEAR), 3, "AddRoom"),
        case("a level that no node has", _nodes("a b"), of_spec("1", annotations=IN_RACKS), 2),
        case("a level whose node is too small", RACKED, of_spec("1", annotations=IN_RACKS), 2, "AddRoom"),
        # The small pod goes to the node that is too small for a member; one without a controller stays.
        case("a move", WITH_SMALL, of_spec("4"), 2, "RemovePod AddRoom", pods=[OWNED]),
        case("no move", WITH_SMALL, of_spec("4"), 2, "RemovePod AddRoom", pods=[build.pod("s", **SMALL)]),
        case("a percentage", THREE, of_spec("0", labels={"app": "n"}, annotations=SHARED), 10),
        # Each of six nodes has room for one member: more room on many nodes is no small change.
        case("room for one more", SIX, of_spec(), 7, "AddRoom"),
        case("room for three more", SIX, of_spec(), 9, "AddRoom"),
        case("room for six more", SIX, of_spec(), 12),
    ],
)
def test_what_refuses_a_group_is_told_with_what_would_place_all_of_it(
    cluster: Cluster, template: build.Json, n_members: int, kinds: str, snapshot: SnapshotAssertion
) -> None:
    answer = _explained(cluster, template, n_members)
    assert (answer.state, kinds_of(answer)) == ("unschedulable", kinds)
    for suggestion in as_json(answer)["suggestions"]:
        after, changed = cluster.changed(suggestion["changes"], template)
        assert _bound(after, changed, n_members) == n_members, suggestion["texts"]
    assert answer.member is not None
    assert len({pod.name for pod in answer.member.placed.shown}) == answer.member.placed.n_total < n_members
    for rule in answer.rules:
        assert {pod.name for pod in rule.pods.shown}.isdisjoint(pod.name for pod in rule.pending.shown)
    assert told(answer) == snapshot


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


def test_members_that_disagree_are_told_so_without_suggestions() -> None:
    members = [_member(number, 2, build.pod("m", cpu="1")) for number in range(2)]
    for member, level in zip(members, ("block", "rack"), strict=True):
        member["metadata"]["annotations"] = {"affinity-scheduler.io/pod-group-required-topology": level}
    answer = Cluster(_nodes("a b"), members, []).explain(members[1])
    assert answer.state == "unschedulable"
    assert 'pod-group-required-topology: m0 says "block", m1 says "rack"' in answer.message
    assert not answer.suggestions

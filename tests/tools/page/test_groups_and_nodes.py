"""The page's data of waiting groups, and of how full the nodes are."""

from __future__ import annotations

from scheduler.engine.model.stimuli import PodSeen
from scheduler.engine.state.batches import finished
from scheduler.tools.page.groups import waiting_groups
from scheduler.tools.page.nodes import MAX_NODES, node_uses
from tests.support import build
from tests.support.driving import NAME
from tests.support.json_cluster import Cluster, decoded


def _member(name: str) -> build.Json:
    labels = {
        "affinity-scheduler.io/pod-group": "gang",
        "affinity-scheduler.io/pod-group-min-count": "3",
    }
    return build.pod(name, labels=labels, spec={"schedulerName": NAME})


def test_a_waiting_group_is_told_with_its_numbers_and_its_reason() -> None:
    driver = Cluster([build.node("n")]).driver()
    for name in ("m1", "m0"):
        driver.handle(PodSeen(decoded(_member(name))))
    found = finished(waiting_groups(driver.state, {"uid-default-m0": "waits"}))
    (group,) = found.groups
    assert (group.namespace, group.name, group.member) == ("default", "gang", "m0")
    assert (group.n_pending, group.n_placed, group.n_needed) == (2, 0, 3)
    assert found.n_more == 0
    assert group.message == "waits"


def test_the_fullest_nodes_come_first_and_all_are_counted() -> None:
    nodes = [
        build.node(f"n{i}", labels={build.ZONE: "ab"[i % 2]}, allocatable={"cpu": "4", "pods": "10"})
        for i in range(4)
    ]
    pods = [build.pod(f"p{i}", node="n2", cpu="1") for i in range(3)]
    state = Cluster(nodes, pods).state()
    found = node_uses(state, "")
    assert (found.nodes[0].node, found.nodes[0].share) == ("n2", 0.75)
    uses = {use.resource: (use.requested, use.allocatable) for use in found.nodes[0].uses}
    total = {use.resource: (use.requested, use.allocatable) for use in found.total}
    assert (uses["cpu"], uses["pods"], uses["memory"][0]) == ((3000, 4000), (3, 10), 0)
    assert (total["cpu"], total["pods"]) == ((3000, 16000), (3, 40))
    most_free = {use.resource: use.most_free for use in found.total}
    assert (most_free["cpu"], most_free["pods"]) == (4000, 10)
    assert (sum(found.by_share), found.by_share[7]) == (4, 1)
    assert {node.node for node in node_uses(state, "b").nodes} == {"n1", "n3"}


def test_of_many_nodes_the_others_are_counted() -> None:
    state = Cluster([build.node(f"n{i}") for i in range(MAX_NODES + 3)]).state()
    found = node_uses(state, "n")
    assert (len(found.nodes), found.n_more) == (MAX_NODES, 3)


def test_a_cluster_without_nodes_has_no_uses() -> None:
    found = node_uses(Cluster([]).state(), "")
    assert (found.nodes, found.total, sum(found.by_share)) == ((), (), 0)

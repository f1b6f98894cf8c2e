"""Neighbours in rank share the lowest domain that they can."""

from __future__ import annotations

from itertools import pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.core.group_order import distance_note, mean_distance, paths
from scheduler.engine.model.group_topology import PREFERRED_TOPOLOGY, REQUIRED_TOPOLOGY, Topology
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT, RANK, group_reference
from scheduler.engine.model.pods import Pod
from tests.engine.core.test_group_levels import BLOCK, RACK, placed
from tests.support.driving import Driver

INDEX = "batch.kubernetes.io/job-completion-index"
TOPOLOGY = Topology((BLOCK,), (RACK,))


def _ranked(driver: Driver, ranks: list[int], n_needed: int) -> list[Pod]:
    annotations = {REQUIRED_TOPOLOGY: BLOCK, PREFERRED_TOPOLOGY: RACK}
    labels = {GROUP: "g", MIN_COUNT: str(n_needed)}
    return [
        driver.pod(f"m{rank}", labels={**labels, INDEX: str(rank)}, annotations=annotations, cpu="1")
        for rank in ranks
    ]


def _racks(driver: Driver, *places: int) -> None:
    """Create hosts with these places, two in each rack, the racks taking turns."""
    n_racks = (len(places) + 1) // 2
    for index, n in enumerate(places):
        labels = {BLOCK: "b", RACK: f"r{index % n_racks}"}
        driver.node(f"h{index}", labels=labels, allocatable={"cpu": str(n), "pods": "10"})


@settings(max_examples=60)
@given(st.lists(st.integers(1, 2), min_size=2, max_size=4), st.data())
def test_no_other_order_has_neighbours_nearer(places: list[int], data: st.DataObject) -> None:
    driver = Driver()
    _racks(driver, *places)
    n = data.draw(st.integers(2, sum(places)))
    pods = _ranked(driver, data.draw(st.permutations(range(n))), n)
    nodes = placed(driver)
    by_node = paths(nodes.values(), TOPOLOGY, driver.state.nodes)
    mean = mean_distance([(pod.rank, by_node[nodes[pod.name]]) for pod in pods])
    orders = permutations([by_node[node] for node in nodes.values()])
    least = min(
        sum(next((len(a) - i for i in range(len(a)) if a[i] != b[i]), 0) for a, b in pairwise(order))
        for order in orders
    )
    assert mean == pytest.approx(least / (n - 1))
    driver.audit()


def test_the_lowest_ranks_come_first_if_not_all_fit(driver: Driver) -> None:
    _racks(driver, 1, 1)
    _ranked(driver, [3, 2, 0, 1], 2)
    assert sorted(placed(driver)) == ["m0", "m1"]


def test_members_of_unlike_size_keep_their_places(driver: Driver) -> None:
    """By rank alone the small one would be on the first host, and the large one on the other."""
    for index, n in enumerate((2, 1)):
        driver.node(f"h{index}", labels={BLOCK: "b"}, allocatable={"cpu": str(n), "pods": "10"})
    for rank, n in enumerate((1, 2)):
        labels = {GROUP: "g", MIN_COUNT: "2", INDEX: str(rank)}
        driver.pod(f"m{rank}", labels=labels, annotations={REQUIRED_TOPOLOGY: BLOCK}, cpu=str(n))
    assert placed(driver) == {"m0": "h1", "m1": "h0"}


def test_without_levels_no_distance_is_told(driver: Driver) -> None:
    _racks(driver, 2, 2)
    pods = _ranked(driver, [0, 1], 2)
    nodes = placed(driver)
    assert distance_note([(pod, nodes[pod.name]) for pod in pods], Topology(), driver.state.nodes) == ""


def test_racks_of_one_name_in_two_blocks_are_not_near() -> None:
    assert mean_distance([((0,), ("a", "r1", "n0")), ((1,), ("b", "r1", "n1"))]) == 3.0


def test_the_mean_distance_is_told(driver: Driver) -> None:
    _racks(driver, 1, 1, 1)
    pods = _ranked(driver, [0, 1, 2], 3)
    nodes = placed(driver)
    note = distance_note([(pod, nodes[pod.name]) for pod in pods], TOPOLOGY, driver.state.nodes)
    assert note == (
        f"neighbours in rank are 1.50 levels apart on average (0: one node, 1: one {RACK}, 2: one {BLOCK},"
        " 3: none of these)"
    )


KUBEFLOW, LWS = "training.kubeflow.org", "leaderworkerset.sigs.k8s.io"


@pytest.mark.parametrize(
    "ordered",
    [
        [{}, {INDEX: "x"}, {INDEX: "0"}, {INDEX: "7"}, {INDEX: "9" * 5000}],
        [{f"{LWS}/group-index": a, f"{LWS}/worker-index": b} for a, b in ("00", "01", "10")],
        [
            {f"{KUBEFLOW}/replica-type": kind, f"{KUBEFLOW}/replica-index": index}
            for kind, index in (("master", "0"), ("worker", "0"), ("worker", "1"), ("worker", "10"))
        ],
        [{RANK: "0", INDEX: "9"}, {RANK: "2", INDEX: "1"}, {RANK: "10", INDEX: "0"}],
    ],
    ids=["Job", "LeaderWorkerSet", "Kubeflow", "our own"],
)
def test_ranks_are_read(ordered: list[dict[str, str]]) -> None:
    ranks = [group_reference("ns", "g", labels, {}) for labels in ordered]
    told = [one.rank for one in ranks if one is not None and not one.problem]
    assert told == sorted(set(told))
    assert len(told) == len(ordered)


def test_our_own_rank_may_be_an_annotation_and_has_to_be_a_number() -> None:
    first, second = (group_reference("ns", "g", {INDEX: "1"}, {RANK: rank}) for rank in ("0", "x"))
    assert first is not None
    assert first.rank[0] == 0
    assert second is not None
    assert second.problem == f'{RANK} of the pod: found "x", expected 0 to 999999'


def test_a_hierarchy_adds_the_levels_that_a_request_implies() -> None:
    hierarchy = ("hall", "block", "rack", "host")
    assert Topology(("block",), ("host",)).within(hierarchy) == Topology(("hall", "block"), ("rack", "host"))
    assert Topology((), ("rack",)).within(hierarchy) == Topology((), ("hall", "block", "rack"))
    assert Topology(("rack",), ("block",)).within(hierarchy) == Topology(("hall", "block", "rack"))
    assert Topology(("other",), ("rack", "mine")).within(hierarchy) == Topology(("other",), ("rack", "mine"))

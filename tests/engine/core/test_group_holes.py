"""Moves that make room for a waiting group: against every set of at most two moves, on small clusters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from scheduler.engine.core.group_holes import HoleSearch, PodMove, moves_text
from scheduler.engine.model.group_topology import REQUIRED_TOPOLOGY
from scheduler.engine.model.instructions import Bind
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT, GroupKey, GroupKind
from scheduler.engine.model.pods import ContainerResize, Pod, Resize
from scheduler.engine.model.stimuli import PodSeen
from scheduler.engine.state.audit import differences
from scheduler.engine.state.batches import finished
from scheduler.engine.syntax.quantity import parse_quantity
from tests.engine.core.test_group_levels import RACK
from tests.support import build
from tests.support.build import HOSTNAME
from tests.support.driving import Driver, each_of

KEY = GroupKey(GroupKind.OWN, "default", "g")
OWNER = build.owned_by("ReplicaSet", "small")
APART = build.affinity(anti_required=[build.term(HOSTNAME, build.selector("app=apart"))])


def node(driver: Driver, name: str, rack: str, cpu: int) -> None:
    driver.node(name, labels={RACK: rack, HOSTNAME: name}, allocatable={"cpu": str(cpu), "pods": "10"})


def two_racks(driver: Driver) -> None:
    for name, rack in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        node(driver, name, rack, 2)


def small(driver: Driver, name: str, on: str, cpu: int = 1, **more: Any) -> Pod:
    more = {"owner": OWNER, **more}
    return driver.pod(name, node=on, cpu=str(cpu), **more)


def group(driver: Driver, n: int, cpu: int, required: str = RACK, **more: Any) -> list[Pod]:
    more |= {"labels": {GROUP: "g", MIN_COUNT: str(n)}, "cpu": str(cpu)}
    annotations = {REQUIRED_TOPOLOGY: required} if required else {}
    return [driver.pod(f"m{index}", annotations=annotations, **more) for index in range(n)]


def moves(driver: Driver, members: list[Pod], n_most: int = 2) -> tuple[PodMove, ...]:
    search = HoleSearch(driver.state, driver.profiles, KEY, members, n_most)
    before = {uid: each.pod for uid, each in driver.state.placed.items()}
    found = finished(search.moves(list(before)))
    assert {uid: each.pod for uid, each in driver.state.placed.items()} == before
    assert differences(driver.state) == []
    return found


def test_a_small_pod_moves_out_of_the_rack(driver: Driver) -> None:
    two_racks(driver)
    small(driver, "s", "a1")
    (move,) = moves(driver, group(driver, 2, 2))
    assert move.text == "move default/s from a1 to b1"


def test_a_search_comes_in_pieces(driver: Driver) -> None:
    """Of a decision each, so that other tasks run in between."""
    two_racks(driver)
    small(driver, "s", "a1")
    search = HoleSearch(driver.state, driver.profiles, KEY, group(driver, 2, 2), 2)
    assert sum(1 for _ in search.moves(list(driver.state.placed))) > 5


@pytest.mark.parametrize(
    "more",
    [
        {"owner": None},
        {"owner": build.owned_by("DaemonSet", "d")},
        {"priority": 5},
        {"labels": {GROUP: "other", MIN_COUNT: "1"}},
    ],
)
def test_some_pods_stay(driver: Driver, more: dict[str, Any]) -> None:
    two_racks(driver)
    small(driver, "s", "a1", **more)
    assert moves(driver, group(driver, 2, 2)) == ()


def test_no_pod_moves_for_members_that_disagree(driver: Driver) -> None:
    two_racks(driver)
    small(driver, "s", "a1")
    first, second = group(driver, 2, 2)
    annotations = {REQUIRED_TOPOLOGY: HOSTNAME}
    second = driver.pod(second.name, labels=second.labels, annotations=annotations, cpu="2")
    assert moves(driver, [first, second]) == ()


def test_no_more_pods_move_than_may(driver: Driver) -> None:
    for index in range(3):
        node(driver, f"a{index}", "a", 2)
        node(driver, f"b{index}", "b", 1)
        small(driver, f"s{index}", f"a{index}")
    members = group(driver, 3, 2)
    assert moves(driver, members) == ()
    found = moves(driver, members, 3)
    assert sorted(move.pod.name for move in found) == ["s0", "s1", "s2"]
    first, second, third = (move.text for move in found)
    assert moves_text(found) == f"The group would fit after: {first}; {second}; {third}."
    assert moves_text(()) == ""


def test_the_set_that_lets_most_members_have_places_is_tried_with_more_pods(driver: Driver) -> None:
    """A pair makes room for one of the two members. The first of all pods makes room for none: its node is closed."""
    for name in ("a0", "a1"):
        node(driver, name, "a", 2)
        small(driver, f"s-{name}-0", name)
        small(driver, f"s-{name}-1", name)
    driver.node("a2", labels={RACK: "a"}, allocatable={"cpu": "2", "pods": "10"}, unschedulable=True)
    small(driver, "first", "a2")
    for index in range(5):
        node(driver, f"b{index}", "b", 1)
    found = moves(driver, group(driver, 2, 2), 4)
    assert sorted(move.pod.name for move in found) == ["s-a0-0", "s-a0-1", "s-a1-0", "s-a1-1"]


def test_a_pod_moves_before_the_group_takes_the_place_that_it_needs(driver: Driver) -> None:
    """One member alone may be in rack b, where it would take x, the only other node of the pod in the way."""
    for name, rack, cpu, disk in (("a", "a", "2", "ssd"), ("x", "b", "2", "ssd"), ("y", "b", "2", "hdd")):
        labels = {RACK: rack, HOSTNAME: name, "disk": disk}
        driver.node(name, labels=labels, allocatable={"cpu": cpu, "pods": "10"})
    small(driver, "s", "a", node_selector={"disk": "ssd"})
    node(driver, "z", "b", 2)
    driver.pod("kept", node="z", owner=OWNER, phase="Running", labels={"app": "kept"}, cpu="500m")
    driver.budget("kept", build.selector("app=kept"), 0)
    apart = build.affinity(anti_required=[build.term(RACK, build.selector(f"{GROUP}=g"))])
    (move,) = moves(driver, group(driver, 2, 2, "", affinity=apart))
    assert move.text == "move default/s from a to x"


def test_a_search_ends_after_so_many_decisions(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in range(3):
        node(driver, f"a{index}", "a", 2)
        node(driver, f"b{index}", "b", 1)
        small(driver, f"s{index}", f"a{index}")
    # Each kind has its own room, so that every attempt is a search.
    members = [replace(pod, priority=index) for index, pod in enumerate(group(driver, 3, 2))]

    def n_pieces() -> int:
        search = HoleSearch(driver.state, driver.profiles, KEY, members, 2)
        return sum(1 for _ in search.moves(list(driver.state.placed)))

    n_with_default = n_pieces()
    monkeypatch.setattr("scheduler.engine.core.group_holes._MOST_DECISIONS", 10)
    assert n_pieces() < n_with_default


def test_a_pod_that_is_being_resized_takes_no_more_elsewhere_than_its_spec_says(driver: Driver) -> None:
    """Both small pods fit on b1 with what they request, and not with what they still hold."""
    two_racks(driver)
    held = ContainerResize(requests={"cpu": parse_quantity("2")}, allocated={"cpu": parse_quantity("2")})
    for name, on in (("s", "a1"), ("t", "a2")):
        pod = small(driver, name, on)
        resize = Resize({pod.spec.containers[0].name: held}, None, {}, infeasible=False)
        driver.handle(PodSeen(replace(pod, resize=resize, resource_version="2")))
    found = moves(driver, group(driver, 2, 2))
    assert {(each.pod.name, each.node_name) for each in found} == {("s", "b1"), ("t", "b1")}


def test_a_pod_moves_out_of_the_rack_with_most_room_for_the_group(driver: Driver) -> None:
    """Either pod makes room for both members: one has its rack without room, the other beside room for one."""
    for name, rack, cpu in (("a1", "a", 4), ("b1", "b", 2), ("b2", "b", 2), ("c1", "c", 3)):
        node(driver, name, rack, cpu)
    small(driver, "large", "a1", 3)
    small(driver, "s", "b1")
    assert [move.pod.name for move in moves(driver, group(driver, 2, 2))] == ["s"]


def test_a_group_for_which_pods_end_already_needs_no_moves(driver: Driver) -> None:
    two_racks(driver)
    small(driver, "s", "a1", terminating=True)
    small(driver, "t", "a2")
    assert [move.pod.name for move in moves(driver, group(driver, 2, 2))] == ["t"]


@pytest.mark.parametrize(
    ("selectors", "n_allowed"),
    [
        pytest.param([{}], 0, id="an empty selector selects every pod"),
        pytest.param(
            [build.selector("app=s"), build.selector("app=s")], 1, id="of two budgets none is asked"
        ),
    ],
)
def test_no_pod_moves_whose_eviction_the_api_refuses(
    driver: Driver, selectors: list[dict[str, Any]], n_allowed: int
) -> None:
    """The scheduler's own preemption would break neither: it takes an empty selector for one of no pod."""
    two_racks(driver)
    small(driver, "s", "a1", labels={"app": "s"}, phase="Running")
    for number, selector in enumerate(selectors):
        driver.budget(f"b{number}", selector, n_allowed)
    assert moves(driver, group(driver, 2, 2)) == ()


@dataclass(frozen=True)
class Small:
    """A pod: its node, size, whether it is apart from pods with its label, and whether a controller makes it anew."""

    node: str
    cpu: int
    is_labelled: bool
    is_apart: bool
    is_owned: bool

    def create(self, driver: Driver, name: str, **more: Any) -> Pod:
        return driver.pod(
            name,
            cpu=str(self.cpu),
            labels={"app": "apart" if self.is_labelled else "plain"},
            affinity=APART if self.is_apart else None,
            owner=OWNER if self.is_owned else None,
            **more,
        )


@dataclass(frozen=True)
class Cluster:
    """Nodes with rack and cpus, pods by name, disruptions that plain pods allow, and the group."""

    nodes: dict[str, tuple[str, int]]
    pods: dict[str, Small]
    n_allowed: int
    group: tuple[int, int, str]

    def driver(self, moved: dict[str, str]) -> Driver:
        """Return the cluster with its running pods; the moved ones are placed by the machine, where they are to go."""
        driver = Driver()
        for name, (rack, cpu) in self.nodes.items():
            node(driver, name, rack, cpu)
        for name, pod in self.pods.items():
            if name not in moved:
                pod.create(driver, name, node=pod.node, phase="Running")
        for name, node_name in moved.items():
            self.pods[name].create(driver, name, node_selector={HOSTNAME: node_name})
        return driver

    def takes(self, moved: dict[str, str]) -> bool:
        """Return whether the machine places these pods there, and then the whole group; no budget breaks."""
        if sum(not self.pods[name].is_labelled for name in moved) > self.n_allowed:
            return False
        driver = self.driver(moved)
        run(driver)
        members = group(driver, *self.group)
        run(driver)
        return all(
            driver.node_of(uid)
            for uid in [*(pod.uid for pod in members), *(f"uid-default-{name}" for name in moved)]
        )

    def all_moves(self) -> Iterator[dict[str, str]]:
        names = [name for name, pod in self.pods.items() if pod.is_owned]
        for few in [*combinations(names, 1), *combinations(names, 2)]:
            for nodes in product(self.nodes, repeat=len(few)):
                moved = dict(zip(few, nodes, strict=True))
                if all(self.pods[name].node != node_name for name, node_name in moved.items()):
                    yield moved


def run(driver: Driver) -> None:
    while driver.machine.has_work():
        for each in each_of(driver.cycle(), Bind):
            driver.confirm(each.pod, each.node_name)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    nodes = {
        f"n{index}": ("abab"[index], draw(st.integers(2, 3))) for index in range(draw(st.integers(3, 4)))
    }
    free, pods = {name: cpu for name, (_, cpu) in nodes.items()}, dict[str, Small]()
    apart: set[str] = set()
    for index in range(draw(st.integers(2, 5))):
        pod = Small(
            draw(st.sampled_from(sorted(nodes))),
            draw(st.integers(1, 2)),
            is_labelled := draw(st.booleans()),
            is_labelled and draw(st.booleans()),
            draw(st.integers(0, 5)) > 0,
        )
        if free[pod.node] >= pod.cpu and not (is_labelled and pod.node in apart):
            free[pod.node] -= pod.cpu
            pods[f"s{index}"] = pod
            apart |= {pod.node} if is_labelled else set()
    members = draw(st.integers(1, 3)), draw(st.integers(2, 3)), draw(st.sampled_from((RACK, "")))
    return Cluster(nodes, pods, draw(st.integers(0, 2)), members)


@settings(max_examples=20)
@given(clusters())
def test_a_set_of_at_most_two_moves_is_found_if_there_is_one(cluster: Cluster) -> None:
    """The machine accepts every new place, and then the whole group fits; no rule breaks, and no budget."""
    driver = cluster.driver({})
    driver.budget("b", build.selector("app=plain"), cluster.n_allowed)
    members = group(driver, *cluster.group)
    moved = {move.pod.name: move.node_name for move in moves(driver, members)}
    if moved:
        assert len(moved) <= 2
        assert all(cluster.pods[name].is_owned for name in moved)
        assert cluster.takes(moved)
    elif not cluster.takes({}):
        assert not any(map(cluster.takes, cluster.all_moves()))
    else:
        event("the group fits")
    event(f"{len(moved)} moves")


def test_two_pods_of_the_roomiest_rack_are_found_among_many(driver: Driver) -> None:
    """To try every pod and every pair would take too many decisions."""
    for rack in range(10):
        n_free = 8 if rack == 7 else 5
        for index in range(20):
            node(driver, f"r{rack}-{index}", f"r{rack}", 8)
            n_small = 0 if index < n_free else 1 if rack == 7 and index < 10 else 4
            for number in range(n_small):
                small(driver, f"s{rack}-{index}-{number}", f"r{rack}-{index}", 1)
    moved = moves(driver, group(driver, 10, 8))
    assert {move.pod.node_name for move in moved} == {"r7-8", "r7-9"}

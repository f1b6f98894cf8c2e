"""The page's data of the machine room: who sits where, and the hole that a waiting group waits for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.kueue import KueueKind
from scheduler.engine.model.stimuli import ObjectSeen, PodGone
from scheduler.engine.state.batches import finished
from scheduler.tools.page import machine_room
from scheduler.tools.page.machine_room import MachineRoom, RoomQuestion, machine_room_pieces
from tests.engine.core.test_group_levels import BLOCK, RACK, members
from tests.support.driving import Driver

GROUP, MIN_COUNT = "affinity-scheduler.io/pod-group", "affinity-scheduler.io/pod-group-min-count"
HOST = "kubernetes.io/hostname"


@pytest.fixture
def driver() -> Iterator[Driver]:
    """Two blocks of two racks of two hosts with two CPUs; of block b one host is in use by two members of `running`."""
    driver = Driver()
    for block in ("a", "b"):
        for rack in ("r9", "r10"):
            for index in range(2):
                name = f"{block}-{rack}-{index}"
                labels = {BLOCK: block, RACK: rack, HOST: name}
                driver.node(name, labels=labels, allocatable={"cpu": "2", "pods": "10"})
    for index in range(2):
        _member(driver, f"r{index}", "running", node="b-r9-0")
    document = {
        "metadata": {"name": "room"},
        "spec": {"levels": [{"nodeLabel": key} for key in (BLOCK, RACK, HOST)]},
    }
    driver.handle(ObjectSeen(KINDS[KueueKind.TOPOLOGY].decode(json.dumps(document).encode())))
    yield driver
    driver.audit()


def _member(
    driver: Driver, name: str, group: str, namespace: str = "default", n: int = 2, cpu: str = "1", **more: Any
) -> None:
    labels = {GROUP: group, MIN_COUNT: str(n)}
    driver.pod(name, namespace=namespace, labels=labels, cpu=cpu, **more)


def room_of(driver: Driver, **asked: str) -> MachineRoom:
    return finished(machine_room_pieces(driver.state, driver.profiles, RoomQuestion(**asked)))


def test_members_are_shown_on_their_hosts_in_the_order_of_names(driver: Driver) -> None:
    room = room_of(driver)
    assert (room.hierarchies, room.hierarchy, room.levels) == (("room",), "room", (BLOCK, RACK))
    assert [(domain.outer, domain.name) for domain in room.domains] == [
        (("a",), "r9"),
        (("a",), "r10"),
        (("b",), "r9"),
        (("b",), "r10"),
    ]
    (group,) = room.groups
    assert (group.name, group.n_placed) == ("running", 2)
    taken = room.domains[2]
    assert (taken.members, taken.n_nodes, taken.n_others) == (((0, 2),), 2, 0)
    assert [(host.name, host.members) for host in taken.hosts] == [("b-r9-0", ((0, 2),)), ("b-r9-1", ())]
    assert (room.waiting, room.asked) == ((), -1)


def test_a_waiting_group_names_its_hole_and_what_it_lacks(driver: Driver) -> None:
    """Ten places in one block: block a has eight, of which b has six."""
    members(driver, 10, required=BLOCK)
    driver.cycle()
    room = room_of(driver)
    (hole,) = room.waiting
    assert (hole.name, hole.level, hole.domain, hole.n_needed) == ("g", BLOCK, "a", 10)
    assert (hole.n_room, hole.n_lacking, hole.n_missing, room.asked) == (8, 2, 0, 0)
    assert [(domain.n_room, domain.is_hole) for domain in room.domains] == [
        (4, True),
        (4, True),
        (2, False),
        (4, False),
    ]
    assert [host.n_room for host in room.domains[2].hosts] == [0, 2]


@pytest.mark.parametrize("leader", ["1", "500m"])
def test_room_for_parts_is_counted_in_whole_parts(driver: Driver, leader: str) -> None:
    """Parts of three, each in one rack of four CPUs: two fit into block a, one into b."""
    for index in range(9):
        annotations = {
            "affinity-scheduler.io/pod-group-required-topology": BLOCK,
            "affinity-scheduler.io/pod-group-part": f"part-{index // 3}",
            "affinity-scheduler.io/pod-group-part-min-count": "3",
            "affinity-scheduler.io/pod-group-part-required-topology": RACK,
        }
        cpu = "1" if index % 3 else leader
        _member(driver, f"p{index}", "parts", n=9, cpu=cpu, annotations=annotations)
    driver.cycle()
    room = room_of(driver)
    (hole,) = room.waiting
    assert (hole.domain, hole.n_needed, hole.n_room, hole.n_lacking) == ("a", 9, 6, 3)
    assert [domain.n_room for domain in room.domains] == [3, 3, 0, 3]


def test_a_group_without_all_members_has_no_hole_yet(driver: Driver) -> None:
    _member(driver, "early", "later", n=3)
    (hole,) = room_of(driver).waiting
    assert (hole.n_missing, hole.n_room, hole.n_lacking, hole.domain) == (2, 0, 0, "")


def test_pods_that_are_in_no_known_group_have_no_hole(driver: Driver) -> None:
    """Their PodGroup does not exist, or a number does not parse."""
    driver.pod("lost", labels={"scheduling.x-k8s.io/pod-group": "none"})
    driver.pod("odd", labels={GROUP: "odd", MIN_COUNT: "many"})
    assert room_of(driver).waiting == ()


def test_the_group_that_is_asked_for_comes_first(driver: Driver) -> None:
    members(driver, 10, required=BLOCK)
    for index in range(40):
        _member(driver, f"w{index}", "wide", n=40)
    driver.cycle()
    driver.cycle()
    room = room_of(driver, namespace="default", name="wide")
    assert [hole.name for hole in room.waiting] == ["wide", "g"]
    assert (room.waiting[0].level, room.waiting[0].n_room, room.waiting[0].n_lacking) == ("", 14, 26)


def test_an_answer_is_bounded_and_one_block_can_be_asked_for(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    members(driver, 10, required=BLOCK)
    driver.cycle()
    monkeypatch.setattr(machine_room, "MAX_DOMAINS", 2)
    monkeypatch.setattr(machine_room, "MAX_HOSTS", 3)
    monkeypatch.setattr(machine_room, "MAX_GROUPS", 0)
    room = room_of(driver)
    assert [(domain.outer[0], domain.is_hole, domain.hosts) for domain in room.domains] == [
        ("a", True, ())
    ] * 2
    assert (room.n_more_domains, room.outermost, room.groups) == (2, ("a", "b"), ())
    monkeypatch.setattr(machine_room, "MAX_HOSTS", 4)
    within = room_of(driver, within="b")
    assert [(domain.outer[0], len(domain.hosts), domain.n_others) for domain in within.domains] == [
        ("b", 2, 2),
        ("b", 2, 0),
    ]


def test_without_a_hierarchy_the_levels_of_a_group_are_drawn(driver: Driver) -> None:
    """And nodes without its labels are outside; a cluster without either has nothing to draw."""
    driver.handle(
        ObjectSeen(KINDS[KueueKind.TOPOLOGY].decode(json.dumps({"metadata": {"name": "room"}}).encode()))
    )
    assert (room_of(driver).hierarchies, room_of(driver).domains) == ((), ())
    pods = members(driver, 30, required=BLOCK, preferred=f"{RACK},{HOST}")
    driver.node("outside", allocatable={"cpu": "1", "pods": "10"})
    room = room_of(driver)
    assert (room.hierarchy, room.levels, room.n_outside) == ("the group's levels", (BLOCK, RACK), 1)
    assert len(room.domains) == 4
    for pod in pods:
        driver.handle(PodGone(pod.uid))

"""Members that a group loses: told, replaced within its domains and near neighbours in rank, or missed by a restart."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.core.lost_members import REPORT_AFTER_S
from scheduler.engine.model.group_topology import (
    PART,
    PART_MIN_COUNT,
    PART_REQUIRED_TOPOLOGY,
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
)
from scheduler.engine.model.instructions import EmitEvent, PatchCondition
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT, RELEASE_AFTER, GroupKey, GroupKind
from scheduler.engine.model.pods import Pod
from tests.engine.core.test_group_levels import BLOCK, RACK, placed, racks
from tests.support import build
from tests.support.driving import Driver, binds, each_of, evictions

KEY = GroupKey(GroupKind.OWN, "default", "g")
OWNER = build.owned_by("StatefulSet", "g")
INDEX = "batch.kubernetes.io/job-completion-index"


def rack(driver: Driver, name: str, n_hosts: int, block: str = "b") -> None:
    """Create hosts with one cpu each."""
    racks(driver, block, **{name: n_hosts})


def fill(driver: Driver, node: str) -> Pod:
    return driver.pod(f"other-{node}", node=node, cpu="1")


def member(
    driver: Driver,
    index: int,
    n: int,
    annotations: Mapping[str, str],
    node: str | None = None,
    generation: str = "",
    **more: Any,
) -> Pod:
    labels = {GROUP: "g", MIN_COUNT: str(n), INDEX: str(index)}
    name = f"m{index}{generation}"
    return driver.pod(name, labels=labels, annotations=dict(annotations), cpu="1", node=node, **more)


def rack_of(node: str) -> str:
    return node.partition("-")[0]


def test_the_new_member_joins_the_required_rack_of_the_others(driver: Driver) -> None:
    """Another rack is tighter."""
    rack(driver, "r1", 4)
    levels = {REQUIRED_TOPOLOGY: RACK}
    pods = [member(driver, index, 3, levels) for index in range(3)]
    nodes = placed(driver)
    rack(driver, "r2", 1)
    driver.lose(driver.confirm(pods[1], nodes["m1"]))
    member(driver, 1, 3, levels, generation="-new")
    assert {rack_of(node) for node in placed(driver).values()} == {"r1"}


def test_without_room_the_group_is_told_which_domain_lacks_what(driver: Driver) -> None:
    """By an event and the condition of the new member, which `explain` shows as well."""
    rack(driver, "r1", 3)
    levels = {REQUIRED_TOPOLOGY: RACK}
    pods = [member(driver, index, 3, levels) for index in range(3)]
    nodes = placed(driver)
    rack(driver, "r2", 3)
    driver.lose(driver.confirm(pods[1], nodes["m1"]))
    fill(driver, nodes["m1"])
    member(driver, 1, 3, levels, generation="-new")
    told = driver.cycle()
    text = next(each.message for each in each_of(told, PatchCondition))
    assert text == (
        "pod group default/g needs 1 place besides 2 on nodes in one example.com/rack: r1 has room for 0; the"
        " next, m1-new: 0/3 nodes are available: 3 Insufficient cpu."
    )
    assert next(each.note for each in each_of(told, EmitEvent)) == text


@pytest.mark.parametrize("is_full", [False, True])
def test_the_new_member_joins_the_level_of_its_part(driver: Driver, is_full: bool) -> None:
    """Also where the rack of another part has room."""
    for name in ("r1", "r2"):
        rack(driver, name, 3)
    nodes: dict[str, str] = {}
    levels = {REQUIRED_TOPOLOGY: BLOCK, PART_REQUIRED_TOPOLOGY: RACK, PART_MIN_COUNT: "2"}
    pods = [member(driver, index, 4, {**levels, PART: "pq"[index // 2]}) for index in range(4)]
    nodes = placed(driver)
    assert len(nodes) == 4
    driver.lose(driver.confirm(pods[3], nodes["m3"]))
    own = rack_of(nodes["m3"])
    if is_full:
        for node in ("0", "1", "2"):
            if f"{own}-{node}" != nodes["m2"]:
                fill(driver, f"{own}-{node}")
    member(driver, 3, 4, {**levels, PART: "q"}, generation="-new")
    told = driver.cycle()
    nodes = binds(told)
    assert [rack_of(node) for node in nodes.values()] == ([] if is_full else [own])
    if is_full:
        text = next(each.message for each in each_of(told, PatchCondition))
        assert f"m3-new in {own}: 0/3 nodes are available: 3 Insufficient cpu." in text


@settings(max_examples=40)
@given(st.lists(st.integers(0, 2), min_size=2, max_size=6), st.data())
def test_a_single_new_member_is_in_the_rack_of_a_neighbour_in_rank_if_that_has_room(
    racks_of: list[int], data: st.DataObject
) -> None:
    """Among racks of which others hold members too; then in one of these; then anywhere."""
    driver = Driver()
    for number in range(4):
        rack(driver, f"r{number}", 8)
    lost = data.draw(st.integers(0, len(racks_of)))
    ranks = [rank for rank in range(len(racks_of) + 1) if rank != lost]
    levels = {REQUIRED_TOPOLOGY: BLOCK, PREFERRED_TOPOLOGY: RACK}
    where = dict(zip(ranks, racks_of, strict=True))
    taken = [0] * 4
    for rank, number in where.items():
        member(driver, rank, len(ranks) + 1, levels, node=f"r{number}-{taken[number]}")
        taken[number] += 1
    full = data.draw(st.sets(st.integers(0, 3), max_size=3))
    for number in full:
        for index in range(taken[number], 8):
            fill(driver, f"r{number}-{index}")
    member(driver, lost, len(ranks) + 1, levels)
    (node,) = placed(driver).values()
    below, above = [rank for rank in ranks if rank < lost], [rank for rank in ranks if rank > lost]
    near = {where[rank] for rank in (*below[-1:], *above[:1])} - full
    expected = near or set(racks_of) - full or set(range(4)) - full
    assert int(rack_of(node)[1:]) in expected
    driver.audit()


# After a restart.


def of_three(driver: Driver, name: str, node: str | None = None, *, group: str = "g") -> Pod:
    """Show a member of a group of three that is released by choice."""
    annotations = {REQUIRED_TOPOLOGY: RACK, RELEASE_AFTER: "60"}
    labels = {GROUP: group, MIN_COUNT: "3"}
    return driver.pod(name, labels=labels, annotations=annotations, cpu="1", node=node, owner=OWNER)


def test_a_group_that_runs_at_the_start_is_watched(driver: Driver) -> None:
    rack(driver, "r1", 3)
    rack(driver, "r2", 3)
    pods = [of_three(driver, f"m{index}", f"r1-{index}") for index in range(3)]
    assert driver.state.groups.is_whole(KEY, 3)
    driver.live(100.0)
    driver.lose(pods[1])
    fill(driver, "r1-1")
    of_three(driver, "m1-new")
    told = driver.live(REPORT_AFTER_S)
    assert [each.reason for each in told if isinstance(each, EmitEvent) if "lost" in each.note] == [
        "PodGroupNotWhole"
    ]
    assert not evictions(told)
    assert evictions(driver.live(31.0))


@pytest.mark.parametrize("order", list(permutations(("m0", "m1", "m2"))), ids="-".join)
def test_a_group_that_lacks_a_member_at_the_start_has_lost_one_from_then_on(
    driver: Driver, order: tuple[str, ...]
) -> None:
    """In whichever order the caches name its members."""
    rack(driver, "r1", 3)
    rack(driver, "r2", 3)
    fill(driver, "r1-1")
    for name in order:
        of_three(driver, name, None if name == "m1" else f"r1-{name[1]}")
    assert not evictions(driver.live(59.0))
    assert evictions(driver.live(2.0))


def test_a_group_of_which_members_are_missing_at_the_start_has_lost_none(driver: Driver) -> None:
    """They may have finished."""
    rack(driver, "r1", 3)
    fill(driver, "r1-1")
    of_three(driver, "m0", "r1-0")
    of_three(driver, "m1")
    told = driver.live(200.0)
    assert not evictions(told)
    assert not [each for each in told if isinstance(each, EmitEvent) and each.reason == "PodGroupNotWhole"]


def test_a_group_does_not_count_as_placed_before_its_binds_are_shown(driver: Driver) -> None:
    """A bind may still fail."""
    rack(driver, "r1", 3)
    pods = [of_three(driver, f"m{index}") for index in range(3)]
    nodes = binds(driver.cycles())
    for pod in pods[:2]:
        driver.confirm(pod, nodes[pod.name])
        assert not driver.state.groups.is_whole(KEY, 3)
    driver.confirm(pods[2], nodes["m2"])
    assert driver.state.groups.is_whole(KEY, 3)


@pytest.mark.parametrize("apart_s", [0.0, 10.0])
def test_each_group_that_has_lost_a_member_is_told_once(driver: Driver, apart_s: float) -> None:
    for group in "gh":
        rack(driver, group, 3)
        for index in range(3):
            of_three(driver, f"{group}{index}", f"{group}-{index}", group=group)
    driver.lose(driver.state.placed["uid-default-g0"].pod)
    driver.live(apart_s)
    driver.lose(driver.state.placed["uid-default-h0"].pod)
    told = driver.live(2 * REPORT_AFTER_S)
    assert [each.pod.name[0] for each in each_of(told, EmitEvent)] == ["g", "h"]


# Members that come back.


def plain(driver: Driver, name: str, node: str | None = None, *, n: int = 4) -> Pod:
    """Show a member of a group of so many without levels or annotations."""
    return driver.pod(name, labels={GROUP: "g", MIN_COUNT: str(n)}, cpu="1", node=node, owner=OWNER)


def ends(driver: Driver, pod: Pod) -> None:
    """Let the pod be deleted, as a watch shows it."""
    driver.update(pod, terminating=True)
    driver.lose(pod)


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_standby_that_saw_a_group_run_places_a_member_beside_those_that_are_left(
    driver: Driver, *, is_finished: bool
) -> None:
    """The leader that placed the group, and was to place this member, has died; watches told its minimum on nodes."""
    rack(driver, "r1", 4)
    pods = [plain(driver, f"m{index}", f"r1-{index}") for index in range(4)]
    if is_finished:
        driver.update(pods[0], phase="Succeeded")
    else:
        ends(driver, pods[0])
    ends(driver, pods[1])
    plain(driver, "late")
    assert binds(driver.cycles()).keys() == {"late"}


def test_a_group_that_needs_more_than_when_it_was_placed_waits_for_all_that_it_lacks(driver: Driver) -> None:
    rack(driver, "r1", 6)
    for index in range(2):
        plain(driver, f"m{index}", f"r1-{index}", n=2)
    for index in range(2):
        plain(driver, f"m{index}", f"r1-{index}", n=4)
    plain(driver, "m2")
    assert not binds(driver.cycles())
    plain(driver, "m3")
    assert binds(driver.cycles()).keys() == {"m2", "m3"}


def test_a_group_that_needs_fewer_for_a_while_was_placed_with_as_many_as_before(driver: Driver) -> None:
    rack(driver, "r1", 4)
    for n in (4, 1, 4):
        pods = [plain(driver, f"m{index}", f"r1-{index}", n=n) for index in range(4)]
    for pod in pods[:2]:
        ends(driver, pod)
    plain(driver, "late")
    assert binds(driver.cycles()).keys() == {"late"}


def test_a_group_that_has_left_its_nodes_comes_back_whole(driver: Driver) -> None:
    """One is created anew while the others run, and waits for room; once they end, it waits for them."""
    rack(driver, "r1", 4)
    pods = [plain(driver, f"m{index}", f"r1-{index}") for index in range(4)]
    for index, pod in enumerate(pods):
        driver.update(pod, terminating=True)
        if not index:
            plain(driver, "m0-new")
            assert not binds(driver.cycles())
    for index, pod in enumerate(pods):
        driver.lose(pod)
        assert not binds(driver.live(15.0))
        if index:
            plain(driver, f"m{index}-new")
    assert len(binds(driver.live(15.0))) == 4


def test_a_group_that_has_left_its_nodes_comes_back_whole_beside_a_member_that_another_bound(
    driver: Driver,
) -> None:
    """A scheduler that knows no groups binds the first one that is created anew, while this one knows another."""
    rack(driver, "r1", 4)
    pods = [plain(driver, f"m{index}", f"r1-{index}") for index in range(4)]
    gated = driver.pod("gated", labels={GROUP: "g", MIN_COUNT: "4"}, gates=("later",))
    for pod in pods:
        driver.lose(pod)
    plain(driver, "m0-new", "r1-0")
    plain(driver, "m1-new")
    assert not binds(driver.live(15.0))
    plain(driver, "m2-new")
    plain(driver, "m3-new")
    assert len(binds(driver.live(15.0))) == 3
    driver.lose(gated)


def test_of_a_group_of_which_members_have_finished_the_others_come_back_together(driver: Driver) -> None:
    rack(driver, "r1", 4)
    pods = [plain(driver, f"m{index}", f"r1-{index}") for index in range(4)]
    for pod in pods[:2]:
        driver.update(pod, phase="Succeeded")
    # Without a member that exists, nothing would be kept of the group.
    gated = driver.pod("gated", labels={GROUP: "g", MIN_COUNT: "4"}, gates=("later",))
    for pod in pods[2:]:
        ends(driver, pod)
    plain(driver, "m2-new")
    assert not binds(driver.cycles())
    plain(driver, "m3-new")
    assert binds(driver.cycles()).keys() == {"m2-new", "m3-new"}
    driver.lose(gated)

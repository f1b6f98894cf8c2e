"""Groups that lose members: what a restart knows of them, and how they come back."""

from __future__ import annotations

from itertools import permutations

import pytest

from scheduler.engine.core.lost_members import REPORT_AFTER_S
from scheduler.engine.model.group_topology import REQUIRED_TOPOLOGY
from scheduler.engine.model.instructions import EmitEvent
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT, RELEASE_AFTER, GroupKey, GroupKind
from scheduler.engine.model.pods import Pod
from tests.engine.core.test_group_levels import RACK
from tests.engine.core.test_group_replacement import OWNER, fill, rack
from tests.support.driving import Driver, binds, each_of, evictions

KEY = GroupKey(GroupKind.OWN, "default", "g")


def member(driver: Driver, name: str, node: str | None = None, *, group: str = "g") -> Pod:
    """Show a member of a group of three."""
    annotations = {REQUIRED_TOPOLOGY: RACK, RELEASE_AFTER: "60"}
    labels = {GROUP: group, MIN_COUNT: "3"}
    return driver.pod(name, labels=labels, annotations=annotations, cpu="1", node=node, owner=OWNER)


# After a restart.


def test_a_group_that_runs_at_the_start_is_watched(driver: Driver) -> None:
    rack(driver, "r1", 3)
    rack(driver, "r2", 3)
    pods = [member(driver, f"m{index}", f"r1-{index}") for index in range(3)]
    assert driver.state.groups.is_whole(KEY, 3)
    driver.live(100.0)
    driver.lose(pods[1])
    fill(driver, "r1-1")
    member(driver, "m1-new")
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
        member(driver, name, None if name == "m1" else f"r1-{name[1]}")
    assert not evictions(driver.live(59.0))
    assert evictions(driver.live(2.0))


def test_a_group_of_which_members_are_missing_at_the_start_has_lost_none(driver: Driver) -> None:
    """They may have finished."""
    rack(driver, "r1", 3)
    fill(driver, "r1-1")
    member(driver, "m0", "r1-0")
    member(driver, "m1")
    told = driver.live(200.0)
    assert not evictions(told)
    assert not [each for each in told if isinstance(each, EmitEvent) and each.reason == "PodGroupNotWhole"]


def test_a_group_does_not_count_as_placed_before_its_binds_are_shown(driver: Driver) -> None:
    """A bind may still fail."""
    rack(driver, "r1", 3)
    pods = [member(driver, f"m{index}") for index in range(3)]
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
            member(driver, f"{group}{index}", f"{group}-{index}", group=group)
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

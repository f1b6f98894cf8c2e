"""Groups that lose members: what a restart knows of them, and the places that are held for a group that moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from scheduler.engine.core.group_messages import stays_message
from scheduler.engine.core.group_nominations import HOLD_FOR_S
from scheduler.engine.core.lost_members import REPORT_AFTER_S
from scheduler.engine.model.group_topology import REQUIRED_TOPOLOGY
from scheduler.engine.model.instructions import (
    Bind,
    ClearNomination,
    EmitEvent,
    EvictVictim,
    Instruction,
    PatchCondition,
)
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT, MOVE_AFTER, RELEASE_AFTER, GroupKey, GroupKind
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import PodSeen
from tests.engine.core.test_group_levels import RACK
from tests.engine.core.test_group_replacement import OWNER, fill, rack, rack_of, run
from tests.support.build import container
from tests.support.driving import Driver

KEY = GroupKey(GroupKind.OWN, "default", "g")
ONE_CPU = [container(requests={"cpu": "1"})]


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    driver.audit()


def member(
    driver: Driver, name: str, node: str | None = None, *, group: str = "g", asked: str = MOVE_AFTER
) -> Pod:
    """Show a member of a group of three."""
    annotations = {REQUIRED_TOPOLOGY: RACK, asked: "60"}
    labels = {GROUP: group, MIN_COUNT: "3"}
    return driver.pod(
        name, labels=labels, annotations=annotations, containers=ONE_CPU, node=node, owner=OWNER
    )


def evictions(told: Sequence[Instruction]) -> list[EvictVictim]:
    return [each for each in told if isinstance(each, EvictVictim)]


def lose(driver: Driver, pod: Pod) -> Pod:
    """Let the member be lost, its node be full, and a new member wait."""
    driver.lose(pod)
    fill(driver, pod.node_name)
    new = member(driver, f"{pod.name}-new", group="g" if pod.group is None else pod.group.key.name)
    assert not [each for each in run(driver) if isinstance(each, (Bind, EvictVictim))]
    return new


def evict(driver: Driver, first: EvictVictim) -> list[Pod]:
    """Carry out evictions. Return the pods, which have left."""
    waiting, left = [first], list[Pod]()
    while waiting:
        each = waiting.pop()
        waiting += driver.carry_out(each)
        left.append(each.victim)
    return left


# After a restart.


@pytest.mark.parametrize("asked", [MOVE_AFTER, RELEASE_AFTER])
def test_a_group_that_runs_at_the_start_is_watched(driver: Driver, asked: str) -> None:
    rack(driver, "r1", 3)
    rack(driver, "r2", 3)
    pods = [member(driver, f"m{index}", f"r1-{index}", asked=asked) for index in range(3)]
    assert driver.state.groups.is_whole(KEY, 3)
    driver.live(100.0)
    driver.lose(pods[1])
    fill(driver, "r1-1")
    member(driver, "m1-new", asked=asked)
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
    member(driver, "m0", "r1-0", asked=RELEASE_AFTER)
    member(driver, "m1", asked=RELEASE_AFTER)
    told = driver.live(200.0)
    assert not evictions(told)
    assert not [each for each in told if isinstance(each, EmitEvent) and each.reason == "PodGroupNotWhole"]


def test_a_group_does_not_count_as_placed_before_its_binds_are_shown(driver: Driver) -> None:
    """A bind may still fail."""
    rack(driver, "r1", 3)
    pods = [member(driver, f"m{index}") for index in range(3)]
    nodes = {each.pod.name: each.node_name for each in run(driver) if isinstance(each, Bind)}
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
    assert [each.pod.name[0] for each in told if isinstance(each, EmitEvent)] == ["g", "h"]


# Members that come back.


def plain(driver: Driver, name: str, node: str | None = None, *, n: int = 4) -> Pod:
    """Show a member of a group of so many without levels or annotations."""
    return driver.pod(
        name, labels={GROUP: "g", MIN_COUNT: str(n)}, containers=ONE_CPU, node=node, owner=OWNER
    )


def bound(told: Sequence[Instruction]) -> set[str]:
    return {each.pod.name for each in told if isinstance(each, Bind)}


def ends(driver: Driver, pod: Pod) -> None:
    """Let the pod be deleted, as a watch shows it."""
    driver.handle(PodSeen(replace(pod, terminating=True, resource_version=driver.next_version())))
    driver.lose(pod)


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_standby_that_saw_a_group_run_places_a_member_beside_those_that_are_left(
    driver: Driver, *, is_finished: bool
) -> None:
    """The leader that placed the group, and was to place this member, has died; watches told its minimum on nodes."""
    rack(driver, "r1", 4)
    pods = [plain(driver, f"m{index}", f"r1-{index}") for index in range(4)]
    if is_finished:
        driver.handle(PodSeen(replace(pods[0], phase="Succeeded", resource_version=driver.next_version())))
    else:
        ends(driver, pods[0])
    ends(driver, pods[1])
    plain(driver, "late")
    assert bound(run(driver)) == {"late"}


def test_a_group_that_needs_more_than_when_it_was_placed_waits_for_all_that_it_lacks(driver: Driver) -> None:
    rack(driver, "r1", 6)
    for index in range(2):
        plain(driver, f"m{index}", f"r1-{index}", n=2)
    for index in range(2):
        plain(driver, f"m{index}", f"r1-{index}", n=4)
    plain(driver, "m2")
    assert not bound(run(driver))
    plain(driver, "m3")
    assert bound(run(driver)) == {"m2", "m3"}


def test_a_group_that_needs_fewer_for_a_while_was_placed_with_as_many_as_before(driver: Driver) -> None:
    rack(driver, "r1", 4)
    for n in (4, 1, 4):
        pods = [plain(driver, f"m{index}", f"r1-{index}", n=n) for index in range(4)]
    for pod in pods[:2]:
        ends(driver, pod)
    plain(driver, "late")
    assert bound(run(driver)) == {"late"}


def test_a_group_that_has_left_its_nodes_comes_back_whole(driver: Driver) -> None:
    """One is created anew while the others run, and waits for room; once they end, it waits for them."""
    rack(driver, "r1", 4)
    pods = [plain(driver, f"m{index}", f"r1-{index}") for index in range(4)]
    for index, pod in enumerate(pods):
        driver.handle(PodSeen(replace(pod, terminating=True, resource_version=driver.next_version())))
        if not index:
            plain(driver, "m0-new")
            assert not bound(run(driver))
    for index, pod in enumerate(pods):
        driver.lose(pod)
        assert not bound(driver.live(15.0))
        if index:
            plain(driver, f"m{index}-new")
    assert len(bound(driver.live(15.0))) == 4


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
    assert not bound(driver.live(15.0))
    plain(driver, "m2-new")
    plain(driver, "m3-new")
    assert len(bound(driver.live(15.0))) == 3
    driver.lose(gated)


def test_of_a_group_of_which_members_have_finished_the_others_come_back_together(driver: Driver) -> None:
    rack(driver, "r1", 4)
    pods = [plain(driver, f"m{index}", f"r1-{index}") for index in range(4)]
    for pod in pods[:2]:
        driver.handle(PodSeen(replace(pod, phase="Succeeded", resource_version=driver.next_version())))
    # Without a member that exists, nothing would be kept of the group.
    gated = driver.pod("gated", labels={GROUP: "g", MIN_COUNT: "4"}, gates=("later",))
    for pod in pods[2:]:
        ends(driver, pod)
    plain(driver, "m2-new")
    assert not bound(run(driver))
    plain(driver, "m3-new")
    assert bound(run(driver)) == {"m2-new", "m3-new"}
    driver.lose(gated)


# Places that are held for a move.


def two_groups(driver: Driver) -> list[Pod]:
    """Place group g in rack r1 and group h in r2, and let each lose a member; rack r3 is free."""
    for name in ("r1", "r2", "r3"):
        rack(driver, name, 3)
    for group, where in (("g", "r1"), ("h", "r2")):
        for index in range(3):
            member(driver, f"{group}{index}", f"{where}-{index}", group=group)
    return [lose(driver, driver.state.placed[f"uid-default-{name}"].pod) for name in ("g0", "h0")]


def test_a_group_of_another_namespace_for_which_places_are_held_is_not_named() -> None:
    key = GroupKey(GroupKind.OWN, "a", "g")
    for namespace, name in (("a", "pod group a/h"), ("b", "a pod group of another namespace")):
        text = stays_message(key, "no.", [GroupKey(GroupKind.OWN, namespace, "h")])
        assert text == f"The group does not move: no. Places are held for {name}, which moves."
    both = [GroupKey(GroupKind.OWN, "a", name) for name in ("i", "h")]
    assert stays_message(key, "no.", both) == (
        "The group does not move: no. Places are held for pod group a/h, which moves."
        " Places are held for pod group a/i, which moves."
    )


@pytest.mark.parametrize(
    ("lost", "changes", "why"),
    [
        (2, {}, "2 of 3 members exist."),
        (1, {"owner": None}, "default/g1 has no controller, which would create it again."),
        (1, {"scheduler_name": "other"}, "members on nodes are of another scheduler."),
    ],
)
def test_the_message_says_why_a_group_does_not_move(
    driver: Driver, lost: int, changes: dict[str, Any], why: str
) -> None:
    for name in ("r1", "r2"):
        rack(driver, name, 3)
    pods = [member(driver, f"g{index}", f"r1-{index}") for index in range(3)]
    for pod in pods:
        driver.handle(PodSeen(replace(pod, resource_version=driver.next_version(), **changes)))
    for index in (0, 2)[:lost]:
        driver.lose(pods[index])
    for index in (0, 2)[:lost]:
        fill(driver, f"r1-{index}")
    member(driver, "new")
    told = [each for each in driver.live(70.0) if isinstance(each, PatchCondition)]
    assert told[-1].message.endswith(f" The group does not move: {why}")


def test_of_two_groups_that_lose_a_member_one_takes_the_free_rack_and_the_other_stays(driver: Driver) -> None:
    waiting = two_groups(driver)
    told = driver.live(70.0)
    (first,) = evictions(told)
    moves = first.preemptor.name[0]
    (stays,) = (pod for pod in waiting if pod.uid != first.preemptor.uid)
    messages = [
        each.message for each in told if isinstance(each, PatchCondition) if each.pod.uid == stays.uid
    ]
    assert messages[-1].endswith(
        "The group does not move: not all its members have places elsewhere."
        f" Places are held for pod group default/{moves}, which moves."
    )
    assert not evictions(driver.live(130.0))
    assert {pod.name for pod in evict(driver, first)} == {f"{moves}1", f"{moves}2"}
    for index in (1, 2):
        member(driver, f"{moves}{index}-new", group=moves)
    told = driver.live(20.0)
    nodes = {each.pod.name: rack_of(each.node_name) for each in told if isinstance(each, Bind)}
    assert nodes == dict.fromkeys((f"{moves}{index}-new" for index in range(3)), "r3")
    nominated = (pod for _, pods in driver.state.nominated.by_node() for pod in pods)
    assert moves not in {pod.group.key.name for pod in nominated if pod.group is not None}
    assert not evictions(driver.live(400.0))


def test_a_group_that_has_moved_stays_for_a_while_although_another_moves_after_it(driver: Driver) -> None:
    two_groups(driver)
    moved: list[Pod] = []
    for free in ("r4", "r5"):
        (first,) = evictions(driver.live(130.0))
        group = first.preemptor.name[0]
        evict(driver, first)
        for index in (1, 2):
            member(driver, f"{group}{index}-new", group=group)
        binds = [each for each in driver.live(20.0) if isinstance(each, Bind)]
        moved += [driver.confirm(each.pod, each.node_name) for each in binds]
        rack(driver, free, 3)
    assert sorted(pod.name[0] for pod in moved) == [*"ggghhh"]
    lose(driver, moved[0])
    assert not evictions(driver.live(200.0))


def moving(driver: Driver) -> EvictVictim:
    """Let a group begin to move from rack r1 to r2. Return its first eviction."""
    rack(driver, "r1", 3)
    rack(driver, "r2", 3)
    for index in range(3):
        member(driver, f"g{index}", f"r1-{index}")
    lose(driver, driver.state.placed["uid-default-g0"].pod)
    (first,) = evictions(driver.live(61.0))
    return first


def test_no_pod_of_the_same_priority_takes_a_place_while_the_members_leave(driver: Driver) -> None:
    """One of a higher priority does."""
    first = moving(driver)
    driver.pod("same", containers=ONE_CPU)
    assert not [each for each in driver.live(30.0) if isinstance(each, Bind)]
    evict(driver, first)
    told = driver.live(30.0)
    assert {rack_of(each.node_name) for each in told if isinstance(each, Bind)} == {"r1"}
    driver.pod("higher", containers=[container(requests={"cpu": "1"})], priority=1)
    driver.cycle()
    assert rack_of(driver.node_of("uid-default-higher")) in ("r1", "r2")


def test_a_group_that_moves_is_not_moved_again_while_its_members_leave(driver: Driver) -> None:
    """An eviction may take long, and nothing of the group change meanwhile."""
    moving(driver)
    assert not evictions(driver.live(HOLD_FOR_S - 10.0))


def test_the_places_are_held_for_a_bounded_time(driver: Driver) -> None:
    """Here its members are not created anew."""
    evict(driver, moving(driver))
    for index in range(3):
        driver.pod(f"other-{index}", containers=ONE_CPU)
    told = driver.live(HOLD_FOR_S - 10.0)
    assert sorted(rack_of(each.node_name) for each in told if isinstance(each, Bind)) == ["r1", "r1"]
    told = driver.live(20.0)
    assert [rack_of(each.node_name) for each in told if isinstance(each, Bind)] == ["r2"]
    assert not driver.state.nominated


def test_a_node_of_a_held_place_may_go(driver: Driver) -> None:
    """Nothing is written for the stand-ins of members, which the API server does not know."""
    moving(driver)
    on = {name: list(pods) for name, pods in driver.state.nominated.by_node()}
    assert sorted(on) == ["r2-0", "r2-1", "r2-2"]
    driver.lose_node("r2-0")
    told = driver.live(10.0)
    assert not [each for each in told if isinstance(each, ClearNomination)]


def test_no_place_is_held_for_a_group_of_which_no_member_is_left(driver: Driver) -> None:
    evict(driver, moving(driver))
    (pending,) = driver.state.groups.pending(KEY)
    driver.lose(pending)
    assert not driver.state.nominated

"""Groups while instances die between the binds of a group, binds fail, and members come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from scheduler.engine.core import group_requests
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.pods import Pod
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from tests.proof.chaos.group_world import GROUP_SHAPES, GroupWorld
from tests.proof.chaos.groups import Members, as_decided, group_of, placed_in_part, seconds_in_part
from tests.proof.chaos.happenings import AddNamespace, AddNode, AddPod, Happening, Kill, Remove
from tests.proof.chaos.instance import KILL_POINTS, OURS
from tests.proof.chaos.journal import Decided
from tests.proof.chaos.run import Shape, run, virtually
from tests.proof.chaos.test_deaths import Story, deaths_at, told
from tests.proof.chaos.verdicts import Verdict, Wrong
from tests.proof.chaos.virtual import after_turns
from tests.support import build
from tests.support.driving import Driver

_N = 4
_GROUP = "red/train"
#: Two zones with room for four each; the members have to share one.
_CLUSTER: list[Happening] = [
    AddNamespace("red", "x"),
    *(AddNode(f"{zone}{index}", "2", zone) for zone in "ab" for index in range(2)),
]
_MEMBERS: list[Happening] = [
    AddPod(f"red/p{number}", "web", OURS, False, "train", _N) for number in range(_N)
]
#: Longest time for which some members may be on nodes and others not, if there is room: a process is back after a
#: second and lists; a Lease that is not renewed lasts 15 s, and the other instance looks every 2 s.
_IN_PART_S, _IN_PART_AFTER_TAKEOVER_S = 5.0, 25.0


async def _end(story: Story, within_s: float) -> None:
    """Judge the run: the members are in one zone, and were not in part on nodes for longer."""
    nodes = await story.end()
    assert len({node[0] for node in nodes.values()}) == 1, nodes
    assert seconds_in_part(story.journal, _GROUP, _N) <= within_s


@pytest.mark.parametrize("after", range(_N))
@pytest.mark.parametrize("point", KILL_POINTS)
@virtually
async def test_a_standby_completes_the_group(point: str, after: int) -> None:
    """Killed between any two binds of a group; its Lease is taken over by a second instance."""
    async with told(elected=True, cluster=_CLUSTER, pods=_MEMBERS) as story:
        for instance in story.instances:
            await story.stage.perform(Kill(instance.name, point, after))
        await story.begin()
        await _end(story, _IN_PART_AFTER_TAKEOVER_S)
        assert sum(one.n_lives for one in story.instances) > len(story.instances)


def test_there_is_no_moment_at_which_half_a_group_stays() -> None:
    """One alone is killed between any two turns of the loop, from the creation of the members to their last bind."""

    async def play(turn: int) -> bool:
        """Returns whether it died before all were bound."""
        async with told(elected=False, cluster=_CLUSTER, pods=_MEMBERS) as story:
            # One after the other: else the server takes all four in one turn, and none dies in between.
            for number in range(_N):
                late = Fault(action=Effect.DELAY, path=rf"/pods/p{number}/binding$", delay_s=number / 100)
                await story.stage.perform(late)
            await story.begin()

            def die() -> None:
                if sum(bool(one.bound_node) for one in story.journal.written) < _N:
                    story.instances[0].kill()

            with after_turns(turn, die):
                await asyncio.sleep(1.0)
            await _end(story, _IN_PART_S)
            return story.instances[0].n_lives > 1

    assert deaths_at(play, range(1, 1000, 2)) > 15


@pytest.mark.parametrize("after", range(_N))
@pytest.mark.parametrize("action", [Effect.RESPOND, Effect.RESPOND_AFTER, Effect.LOSE_ANSWER, Effect.DROP])
@virtually
async def test_a_bind_that_fails_is_made_up_for(action: Effect, after: int) -> None:
    """One bind of four is refused, loses its answer or its connection; the others are not undone."""
    async with told(elected=False, cluster=_CLUSTER, pods=_MEMBERS) as story:
        path = rf"/pods/p{after}/binding$"
        await story.stage.perform(Fault(action=action, path=path, code=503, times=3))
        await story.begin()
        await _end(story, 20.0)


@virtually
async def test_a_member_that_ends_before_its_bind_is_replaced_in_the_same_zone() -> None:
    async with told(elected=False, cluster=_CLUSTER, pods=_MEMBERS) as story:
        await story.stage.perform(Fault(action=Effect.DELAY, path="/binding$", delay_s=2.0, times=_N))
        await story.begin()
        await asyncio.sleep(1.0)
        await story.stage.perform(Remove("Pod", "red/p1"))
        await story.stage.perform(AddPod("red/late", "web", OURS, False, "train", _N))
        nodes = await story.end()
        assert sorted(nodes) == ["red/late", "red/p0", "red/p2", "red/p3"]
        assert len({node[0] for node in nodes.values()}) == 1, nodes


def _member(name: str, node: str = "", **more: Any) -> Pod:
    labels = {GROUP: "train", MIN_COUNT: str(_N)}
    return replace(Driver().decoded(build.pod(name, node=node or None, labels=labels)), **more)


def _late(members: Members, n_placed: int = 3) -> list[Wrong]:
    """Return what is found if another member is placed now, after which so many are."""
    driver = Driver()
    for index in range(n_placed):
        driver.state.upsert_pod(_member(f"placed-{index}", "n1"))
    pod = _member("late")
    made = Decided(0.0, "second-1", pod.uid, pod.key, "n1", 0, {}, {})
    return list(placed_in_part([as_decided(made, pod, driver.state.groups, members)]))


@pytest.mark.parametrize("ends", ["asked to", "finished"])
def test_a_member_beside_those_left_of_a_group_that_a_life_saw_run_is_no_part_of_a_group(ends: str) -> None:
    """A standby has watched the group with all that it needs; it takes over and places one that came since."""
    members = Members()
    for index in range(_N):
        members.see(_member(f"m{index}", "n1"))
    for index in range(2):
        if ends == "asked to":
            members.see(_member(f"m{index}", "n1", terminating=True))
        members.see_deleted(f"uid-default-m{index}")
    assert not _late(members)


def test_a_group_that_ran_elsewhere_or_has_left_its_nodes_is_placed_as_a_whole() -> None:
    members = Members()
    assert [wrong.verdict for wrong in _late(members)] == [Verdict.HALF]
    for index in range(_N):
        members.see(_member(f"m{index}", "n1"))
    assert not _late(members)
    for index in range(_N):
        members.see(_member(f"m{index}", "n1", terminating=True))
        members.see_deleted(f"uid-default-m{index}")
    assert _late(members)
    assert not _late(members, _N)


def test_members_that_were_decided_and_not_bound_do_not_excuse_a_part() -> None:
    members = Members()
    for index in range(_N):
        members.see(_member(f"m{index}"))
        members.note_decided(f"uid-default-m{index}")
    for index in range(_N):
        assert _late(members)
        members.note_bound(f"uid-default-m{index}")
    assert not _late(members)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("shape", "seed"), [(Shape.ALONE, 1), (Shape.ELECTED, 2), (Shape.RIVALS, 3)])
def test_groups_that_have_room_are_whole_in_the_end(shape: Shape, seed: int) -> None:
    """Faults as in every run, and groups that grow, shrink, lose members and change how many they need."""
    outcome = run(seed, shape, GROUP_SHAPES, GroupWorld)
    assert not outcome.wrongs, outcome.story()
    assert outcome.journal is not None
    n_groups = {group_of(one.obj) for one in outcome.journal.written if one.bound_node and one.obj}
    assert len(n_groups - {""}) > 3, "few groups were placed: choose another seed"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("owner", "attribute", "instead", "verdict"),
    [
        pytest.param(group_requests, "n_needed", lambda *_: 1, Verdict.HALF, id="one member is enough"),
        pytest.param(PodQueue, "take", lambda *_: None, Verdict.LEFT, id="members come alone"),
    ],
)
def test_a_missing_guard_is_found(
    owner: Any, attribute: str, instead: Callable[..., Any], verdict: Verdict
) -> None:
    with mock.patch.object(owner, attribute, instead):
        wrongs = (run(seed, Shape.ALONE, GROUP_SHAPES, GroupWorld).wrongs for seed in range(4))
        assert any(one.verdict is verdict for found in wrongs for one in found)

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
from tests.proof.chaos.groups import Members, as_decided, placed_in_part, seconds_in_part
from tests.proof.chaos.happenings import AddNamespace, AddNode, AddPod, Happening, Kill, Remove
from tests.proof.chaos.instance import KILL_POINTS, OURS
from tests.proof.chaos.journal import Decided, Journal
from tests.proof.chaos.kinds import GROUPS, Shape
from tests.proof.chaos.run import run, virtually
from tests.proof.chaos.scene import Scene
from tests.proof.chaos.test_deaths import begun, deaths_at, ended
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


async def _end(scene: Scene, within_s: float) -> None:
    """Judge the run: the members are in one zone, and were not in part on nodes for longer."""
    nodes = await ended(scene)
    assert len({node[0] for node in nodes.values()}) == 1, nodes
    assert seconds_in_part(scene.journal, _GROUP, _N) <= within_s


@pytest.mark.parametrize("after", [0, _N - 1])
@pytest.mark.parametrize("point", KILL_POINTS)
@virtually
async def test_a_standby_completes_the_group(point: str, after: int) -> None:
    """Killed between any two binds of a group; its Lease is taken over by a second instance."""
    deaths = [Kill(name, point, after) for name in Shape.ELECTED.scheduler_of]
    async with begun([*deaths, *_CLUSTER], *_MEMBERS, shape=Shape.ELECTED) as scene:
        await _end(scene, _IN_PART_AFTER_TAKEOVER_S)
        assert scene.n_lives > len(scene.instances)


def test_there_is_no_moment_at_which_half_a_group_stays() -> None:
    """One alone is killed between any two turns of the loop, from the creation of the members to their last bind."""

    async def play(turn: int) -> bool:
        """Returns whether it died before all were bound."""
        # One after the other: else the server takes all four in one turn, and none dies in between.
        late = [
            Fault(action=Effect.DELAY, path=rf"/pods/p{number}/binding$", delay_s=number / 100)
            for number in range(_N)
        ]
        async with begun([*late, *_CLUSTER], *_MEMBERS) as scene:

            def die() -> None:
                if sum(bool(one.bound_node) for one in scene.journal.written) < _N:
                    scene.instances[0].kill()

            with after_turns(turn, die):
                await asyncio.sleep(1.0)
            await _end(scene, _IN_PART_S)
            return scene.n_lives > 1

    assert deaths_at(play, range(1, 1000, 3)) > 10


@pytest.mark.parametrize("after", [0, _N - 1])
@pytest.mark.parametrize("action", [Effect.RESPOND, Effect.RESPOND_AFTER, Effect.LOSE_ANSWER, Effect.DROP])
@virtually
async def test_a_bind_that_fails_is_made_up_for(action: Effect, after: int) -> None:
    """One bind of four is refused, loses its answer or its connection; the others are not undone."""
    fault = Fault(action=action, path=rf"/pods/p{after}/binding$", code=503, times=3)
    async with begun([fault, *_CLUSTER], *_MEMBERS) as scene:
        await _end(scene, 20.0)


@virtually
async def test_a_member_that_ends_before_its_bind_is_replaced_in_the_same_zone() -> None:
    late = Fault(action=Effect.DELAY, path="/binding$", delay_s=2.0, times=_N)
    async with begun([late, *_CLUSTER], *_MEMBERS) as scene:
        await asyncio.sleep(1.0)
        await scene.stage.perform(
            Remove("Pod", "red/p1"), AddPod("red/late", "web", OURS, False, "train", _N)
        )
        nodes = await ended(scene)
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
    decided = [as_decided(made, pod, driver.state.groups, members)]
    return list(placed_in_part(Journal(lambda: 0.0, decided=decided)))


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
        wrongs = (run(seed, Shape.ALONE, GROUPS).wrongs for seed in range(4))
        assert any(one.verdict is verdict for found in wrongs for one in found)

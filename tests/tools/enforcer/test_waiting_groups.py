"""Pods that move so that a waiting group fits: when, how many, and in which order."""

from __future__ import annotations

from typing import Any

from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.stimuli import PodGone
from scheduler.tools.enforcer.instructions import Move
from scheduler.tools.enforcer.limits import RebalanceLimits
from tests.support import build
from tests.tools.enforcer.test_rebalancing import World

LIMITS = RebalanceLimits(min_gain=10_000, hold_s=30.0, pause_s=60.0, cool_down_s=0.0, for_groups=2)


def group(world: World, n: int, cpu: str = "4", *, is_told: bool = True, **more: Any) -> None:
    """Show the world pending members of one group."""
    for index in range(n):
        world.pod(f"m{index}", owner="", labels={GROUP: "g", MIN_COUNT: str(n)}, cpu=cpu, spec=more)
        if is_told:
            world.patch(f"uid-default-m{index}", None, conditions=[build.unscheduled()])


def room(limits: RebalanceLimits = LIMITS, *, n_full: int = 1, **settings: Any) -> World:
    """Return nodes of 4 cpu: so many with one small pod, and one node that has room for them all."""
    world = World(limits, **settings)
    for index in range(n_full):
        world.in_zone(f"n{index}", "a")
        world.pod(f"s{index}", f"n{index}", cpu="1")
    world.in_zone("z", "b")
    world.pod("z", "z", cpu="1", owner="")
    return world


def moved(world: World, move: Move | None) -> str:
    """Carry out the eviction, as the daemon does; return the pod and its new node."""
    assert move is not None
    world.state.remove_pod(move.pod.uid)
    world.rebalancer.on_result(move, evicted=True, now_s=world.now_s)
    return f"{move.pod.name} to {move.node_name}"


def test_a_pod_moves_for_a_group_once_the_moves_have_held() -> None:
    world = room()
    group(world, 1)
    assert world.check() is None
    assert world.check(29.0) is None
    move = world.check(1.0)
    assert move is not None
    assert move.why == "pod group default/g waits, and fits after: move default/s0 from n0 to z"
    assert moved(world, move) == "s0 to z"
    assert world.check(300.0) is None


def test_the_pods_of_one_group_move_directly_one_after_the_other() -> None:
    world = room(n_full=2)
    group(world, 2)
    world.check()
    first = moved(world, world.check(30.0))
    assert {first, moved(world, world.check(2.0))} == {"s0 to z", "s1 to z"}


def test_no_more_pods_move_for_a_group_than_may() -> None:
    """Other pods take the room twice."""
    world = room()
    group(world, 1)
    world.check()
    for number in range(2):
        moved(world, world.check(100.0 + 60.0 * number))
        world.pod("s0", "n0", cpu="1")
    for _ in range(20):
        assert world.check(100.0) is None


def test_a_dry_run_tells_of_a_group_once() -> None:
    """Nothing moves, so that the same pod would be found as often as pods may move."""
    world = room()
    group(world, 1)
    world.check()
    move = world.check(30.0)
    assert move is not None
    world.rebalancer.on_announced(move, world.now_s)
    for _ in range(10):
        assert world.check(100.0) is None


def test_a_group_that_is_gone_begins_anew() -> None:
    world = room(RebalanceLimits(min_gain=10_000, hold_s=0.0, pause_s=0.0, cool_down_s=0.0, for_groups=1))
    group(world, 1)
    moved(world, world.check())
    world.pod("s0", "n0", cpu="1")
    assert world.check(100.0) is None
    world.rebalancer.waiting.apply(PodGone("uid-default-m0"))
    assert world.check(100.0) is None
    group(world, 1)
    assert moved(world, world.check(100.0)) == "s0 to z"


def test_without_need_nobody_moves() -> None:
    """No flag; no report of the scheduler; too few members; pods that may not move; another scheduler."""
    for limits, settings, asked in (
        (RebalanceLimits(min_gain=10_000, hold_s=0.0, cool_down_s=0.0), {}, {}),
        (LIMITS, {}, {"is_told": False}),
        (LIMITS, {"movable": False}, {}),
        (LIMITS, {}, {"schedulerName": "other"}),
        (LIMITS, {}, {"schedulingGates": [{"name": "hold"}]}),
    ):
        world = room(limits, **settings)
        group(world, 1, **asked)
        for _ in range(4):
            assert world.check(100.0) is None

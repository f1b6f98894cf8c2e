"""Which pods move to clearly better nodes, when, and that every sequence of moves ends."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.model.fallback import FALLBACK, RELAXED
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.state.audit import differences
from scheduler.engine.state.batches import finished
from scheduler.tools.enforcer.instructions import Move
from scheduler.tools.enforcer.limits import RebalanceLimits
from tests.support.build import ZONE, affinity, selector, term
from tests.tools.enforcer.rebalanced_cluster import RebalancedCluster

LIMITS = RebalanceLimits(min_gain=20, hold_s=30.0, pause_s=60.0, cool_down_s=600.0)
#: Nothing to wait for.
AT_ONCE = RebalanceLimits(min_gain=20, hold_s=0.0, pause_s=0.0, cool_down_s=0.0, memory_s=1e9)
APART = affinity(anti_required=[term(ZONE, selector("app=web"))])
ENTRY = json.dumps([{"rule": "podAntiAffinity", "topologyKey": ZONE, "afterSeconds": 60}])
MARK = json.dumps([{"rule": f"podAntiAffinity by {ZONE}", "why": "it waited"}])


class World(RebalancedCluster):
    """A clock that moves by hand; nothing is scheduled."""

    def __init__(self, limits: RebalanceLimits = LIMITS, *, movable: bool = True) -> None:
        super().__init__(limits, movable=movable)
        self.now_s = 0.0

    def in_zone(self, name: str, zone: str) -> None:
        self.node(name, labels={ZONE: zone}, allocatable={"cpu": "4"})

    def check(self, after_s: float = 0.0) -> Move | None:
        self.now_s += after_s
        move = finished(self.rebalancer.check(self.now_s))
        assert differences(self.state) == []
        return move


def crowded(limits: RebalanceLimits = LIMITS, **settings: Any) -> World:
    """Return a full node beside an empty one that came later."""
    world = World(limits, **settings)
    world.in_zone("full", "a")
    for name in ("one", "two", "three"):
        world.pod(name, "full", cpu="1")
    world.check()
    world.in_zone("empty", "b")
    return world


def test_a_pod_moves_once_its_better_place_has_held() -> None:
    """After the cool-down, and 30 s after the place was found; the next one 60 s after the result."""
    world = crowded()
    assert world.check(599.0) is None
    assert world.check(1.0) is None
    assert world.check(29.0) is None
    move = world.check(1.0)
    assert move is not None
    assert (move.node_name, move.why) == ("empty", "its score is 25 points higher there")
    world.rebalancer.on_result(move, evicted=True, now_s=world.now_s)
    world.state.remove_pod(move.pod.uid)
    assert world.check(59.0) is None


def test_a_place_that_did_not_hold_is_no_reason_to_move() -> None:
    """The empty node is gone before the time is over; another one has to hold as long."""
    world = crowded()
    assert world.check(600.0) is None
    world.state.nodes.remove("empty")
    assert world.check(20.0) is None
    world.in_zone("empty", "b")
    assert world.check(20.0) is None
    assert world.check(29.0) is None
    assert world.check(1.0) is not None


def test_a_small_gain_moves_nobody() -> None:
    world = crowded(RebalanceLimits(min_gain=1000, hold_s=0.0))
    assert world.check(10_000.0) is None


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param({"owner": ""}, id="no controller"),
        pytest.param({"spec": {"schedulerName": "another"}}, id="another scheduler's"),
        pytest.param({"terminating": True}, id="terminating"),
        pytest.param(
            {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}}, id="a claim"
        ),
        pytest.param({"labels": {"app": "web", GROUP: "g", MIN_COUNT: "1"}}, id="a group"),
    ],
)
def test_pods_that_are_not_to_move_stay(kept: dict[str, Any]) -> None:
    world = World(AT_ONCE)
    world.in_zone("full", "a")
    world.in_zone("empty", "b")
    world.pod("one", "full", cpu="3", **kept)
    world.pod("two", "full", cpu="1", **kept)
    assert world.check() is None
    assert crowded(AT_ONCE, movable=False).check() is None


def test_a_relaxed_rule_that_can_hold_again_moves_its_pod() -> None:
    """Without a threshold: a third zone came. A pod whose rules hold where it is stays."""
    world = World(AT_ONCE)
    for name, zone in (("a1", "a"), ("b1", "b")):
        world.in_zone(name, zone)
    web: dict[str, Any] = {"labels": {"app": "web"}, "affinity": APART}
    world.pod("first", "a1", cpu="1", annotations={FALLBACK: ENTRY}, **web)
    world.pod("second", "b1", cpu="1", annotations={FALLBACK: ENTRY}, **web)
    world.pod("third", "b1", cpu="1", annotations={FALLBACK: ENTRY, RELAXED: MARK}, **web)
    assert world.check() is None
    world.in_zone("c1", "c")
    move = world.check()
    assert move is not None
    assert (move.pod.name, move.node_name) == ("third", "c1")
    assert move.why == f"podAntiAffinity by {ZONE} can hold again"


def test_a_refused_eviction_is_tried_again_later() -> None:
    """A budget said no: the pod has not left its node."""
    world = crowded(AT_ONCE)
    move = world.check()
    assert move is not None
    world.rebalancer.on_result(move, evicted=False, now_s=world.now_s)
    assert world.check(1.0) is not None


@settings(max_examples=20, deadline=None)
@given(
    pods=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(("1", "500m", "2")), st.sampled_from(("web", "db"))),
        min_size=1,
        max_size=8,
    ),
    chance=st.randoms(use_true_random=False),
)
def test_every_sequence_of_moves_ends(pods: list[tuple[int, str, str]], chance: random.Random) -> None:
    """
    Whatever the scheduler does with an evicted pod, back to its node included, and whatever comes and goes meanwhile.

    No workload's pod leaves a node twice, so that there are at most as many moves as pairs of workload and node.
    """
    world = World(AT_ONCE)
    names = [f"n{number}" for number in range(4)]
    for number, name in enumerate(names):
        world.in_zone(name, "ab"[number % 2])
    for number, (node, cpu, owner) in enumerate(pods):
        world.pod(f"p{number}", names[node], cpu=cpu, owner=owner)
    left: list[tuple[str, str]] = []
    for step in range(60):
        move = world.check(1.0)
        if move is None:
            continue
        assert move.node_name != move.pod.node_name
        assert move.pod.owner is not None
        left.append((move.pod.owner.name, move.pod.node_name))
        assert len(left) == len(set(left))
        world.rebalancer.on_result(move, evicted=True, now_s=world.now_s)
        world.state.remove_pod(move.pod.uid)
        to = chance.choice([*names, move.pod.node_name, move.pod.node_name, move.node_name])
        cpu = chance.choice(("1", "500m", "2"))
        world.pod(f"new{step}", to, cpu=cpu, owner=move.pod.owner.name)
    assert len(left) <= 2 * len(names)
    assert world.check(1.0) is None

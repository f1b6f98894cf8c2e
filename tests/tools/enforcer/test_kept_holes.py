"""Scheduler and `--rebalance-for-groups` together: the hole that is made for a group is kept for it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.core.group_nominations import HOLD_FOR_S
from scheduler.engine.model.instructions import Bind
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.stimuli import NodeSeen
from scheduler.tools.enforcer.limits import RebalanceLimits
from tests.support.driving import Driver
from tests.tools.enforcer.rebalanced_cluster import STEP_S, RebalancedCluster

_LIMITS = RebalanceLimits(min_gain=10_000, hold_s=4.0, pause_s=10.0, cool_down_s=0.0, for_groups=2)


class Life(RebalancedCluster):
    """Where nodes are kept for a group, nothing else is bound but what is more important."""

    def __init__(self) -> None:
        super().__init__(_LIMITS)

    def add_node(self, name: str, cpu: int = 4) -> None:
        self.node(name, allocatable={"cpu": str(cpu), "pods": "9"})

    def restart(self) -> None:
        """Let another scheduler begin with what the API server has."""
        nodes, self.driver = [self.state.node(name) for name in self.state.nodes.row_by_name], Driver()
        for node in nodes:
            assert node is not None
            self.driver.handle(NodeSeen(node))
        for pod in list(self.pods.values()):
            self.see(pod)

    def add_group(self) -> None:
        for name in ("m0", "m1"):
            self.pod(name, cpu="4", labels={GROUP: "g", MIN_COUNT: "2"})

    def kept(self) -> set[str]:
        """Return the nodes that waiting members are nominated to."""
        waiting = (pod for pod in self.pods.values() if not pod["spec"].get("nodeName"))
        return {pod["status"].get("nominatedNodeName") for pod in waiting} - {None, ""}

    def node_of(self, name: str) -> str:
        return str(self.pods[f"uid-default-{name}"]["spec"].get("nodeName") or "")

    def bind(self, bind: Bind) -> None:
        assert bind.pod.group is not None or bind.pod.priority or bind.node_name not in self.kept()
        super().bind(bind)


@pytest.mark.parametrize("restarts", [False, True])
def test_the_hole_is_kept_for_a_stated_time(*, restarts: bool) -> None:
    """
    The second pod does not leave: after `HOLD_FOR_S` other pods get the room, and the nominations are cleared. They are
    on the API server, so that a restart of the scheduler keeps the hole; the time begins anew.
    """
    life = Life()
    for index in range(2):
        life.add_node(f"n{index}")
        life.pod(f"s{index}", f"n{index}", cpu="1")
    life.add_node("z")
    life.pod("z", "z", cpu="2")
    life.add_group()
    life.live(6.0)
    if restarts:
        life.restart()
    kept_s = life.driver.now_s
    life.pod("other", cpu="3")
    while life.driver.now_s < kept_s + HOLD_FOR_S - STEP_S:
        life.driver.now_s += STEP_S
        life.schedule()
        assert life.node_of("other") == ""
    life.driver.now_s += 4 * STEP_S
    life.schedule()
    life.schedule()
    assert life.node_of("other") == life.moves[0].pod.node_name
    assert not any(pod["status"].get("nominatedNodeName") for pod in life.pods.values())
    life.audit()


@settings(max_examples=12, deadline=None)
@given(
    smalls=st.sampled_from([(0, 1), (1, 0), (0, 2), (1, 1), (1, 1, 2), (2, 1, 1), (0, 2, 2), (2, 1, 2, 0)]),
    spare=st.integers(2, 3),
    late=st.lists(st.tuples(st.integers(0, 8), st.integers(1, 4)), max_size=3),
)
def test_a_group_for_which_all_pods_moved_is_placed(
    smalls: tuple[int, ...], spare: int, late: list[tuple[int, int]]
) -> None:
    """
    One or two pods are in the way of two members, and z has room for them. Whatever else comes, nothing is bound where
    the group's members are nominated (`Life.bind` checks it). What came late may take the room of a second move.
    """
    life = Life()
    for index, n in enumerate(smalls):
        life.add_node(f"n{index}")
        for number in range(n):
            life.pod(f"s{index}{number}", f"n{index}", cpu="1")
    life.add_node("z", 1 + spare)
    life.pod("z", "z", cpu="1")
    life.add_group()
    life.live(6.0)
    assert life.moves
    for turn, cpu in late:
        life.live(float(turn))
        life.pod(f"late-{len(life.pods)}", cpu=str(cpu))
    life.live(20.0)
    is_placed = "" not in {life.node_of("m0"), life.node_of("m1")}
    assert is_placed or (late and life.moves[-1].others_follow)
    life.audit()

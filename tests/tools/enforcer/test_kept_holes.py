"""Scheduler and `--rebalance-for-groups` together: the hole that is made for a group is kept for it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.core.group_nominations import HOLD_FOR_S
from scheduler.engine.model.instructions import Bind, ClearNomination, PatchCondition
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.stimuli import NodeSeen, TimePassed
from scheduler.engine.state.audit import differences
from scheduler.engine.state.batches import finished
from scheduler.tools.enforcer.instructions import Move
from scheduler.tools.enforcer.limits import RebalanceLimits
from tests.support import build
from tests.support.build import Json
from tests.support.driving import NAME, Driver
from tests.tools.enforcer.rebalanced_cluster import RebalancedCluster

_LIMITS = RebalanceLimits(min_gain=10_000, hold_s=4.0, pause_s=10.0, cool_down_s=0.0, for_groups=2)
_STEP_S = 2.0


class Life(RebalancedCluster):
    """A scheduler and an enforcer on one cluster, and a controller that makes each evicted pod anew."""

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

    def add(
        self,
        name: str,
        cpu: int,
        node: str = "",
        *,
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Show a pod: on the node if that is named, else pending."""
        pod = build.pod(
            name,
            cpu=str(cpu),
            owner=build.owned_by("ReplicaSet", "web"),
            labels=labels or {},
            spec={"schedulerName": NAME, "priority": priority},
            phase="Running" if node else "Pending",
            node=node or None,
        )
        self.see(pod)

    def add_group(self, n: int, cpu: int = 4) -> None:
        for index in range(n):
            self.add(f"m{index}", cpu, labels={GROUP: "g", MIN_COUNT: str(n)})

    def kept(self) -> set[str]:
        """Return the nodes that waiting members are nominated to."""
        waiting = (pod for pod in self.pods.values() if not pod["spec"].get("nodeName"))
        return {pod["status"].get("nominatedNodeName") for pod in waiting} - {None, ""}

    def node_of(self, name: str) -> str:
        return str(self.pods[f"uid-default-{name}"]["spec"].get("nodeName") or "")

    def live(self, seconds: float) -> None:
        until_s = self.driver.now_s + seconds
        while self.driver.now_s < until_s:
            self.driver.now_s += _STEP_S
            self.schedule()
            if (move := finished(self.rebalancer.check(self.driver.now_s))) is not None:
                self.carry_out(move)

    def schedule(self) -> None:
        for each in [*self.driver.handle(TimePassed()), *self.driver.cycles()]:
            if isinstance(each, Bind):
                assert each.pod.group is not None or each.pod.priority or each.node_name not in self.kept()
                self.bind(each)
            elif isinstance(each, PatchCondition):
                condition = build.unscheduled(each.message, reason=each.reason)
                self.patch(each.pod.uid, each.nominated_node_name, conditions=[condition])
            elif isinstance(each, ClearNomination):
                self.patch(each.pod.uid, "")

    def patch(self, uid: str, nominated: str | None, **status: list[Json]) -> None:
        pod = self.pods[uid]
        nomination = {} if nominated is None else {"nominatedNodeName": nominated}
        self.see({**pod, "status": {**pod["status"], **status, **nomination}})

    def carry_out(self, move: Move) -> None:
        """Nominate and evict as the daemon does; the pod is made anew at once."""
        self.moves.append(move)
        for member, node_name in move.nominations:
            self.patch(member.uid, node_name)
        pod = self.delete(move.pod.uid)
        self.rebalancer.on_result(evicted=True, now_s=self.driver.now_s)
        name = f"{pod['metadata']['name']}-new"
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
        metadata = {**pod["metadata"], "name": name, "uid": f"uid-default-{name}"}
        self.see({**pod, "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

    def audit(self) -> None:
        self.driver.audit()
        assert differences(self.state) == []


@pytest.fixture
def life() -> Life:
    """Two nodes that a small pod each keeps from a member; a third has room for both of these, and not for a member."""
    life = Life()
    for index in range(2):
        life.add_node(f"n{index}")
        life.add(f"s{index}", 1, f"n{index}")
    life.add_node("z")
    life.add("z", 2, "z")
    return life


def test_other_pods_stay_out_until_the_group_is_placed_but_not_more_important_ones(life: Life) -> None:
    life.add_group(2)
    life.schedule()
    life.live(6.0)
    assert len(life.moves) == 1
    life.add("other", 3)
    life.schedule()
    assert life.node_of("other") == ""
    life.add("urgent", 3, priority=1)
    life.schedule()
    assert life.node_of("urgent") == life.moves[0].pod.node_name


def test_the_hole_is_kept_for_a_stated_time(life: Life) -> None:
    """The second pod does not leave: after `HOLD_FOR_S` other pods get the room, and the nominations are cleared."""
    life.add_group(2)
    life.live(6.0)
    kept_s = life.driver.now_s
    life.add("other", 3)
    while life.driver.now_s < kept_s + HOLD_FOR_S - _STEP_S:
        life.driver.now_s += _STEP_S
        life.schedule()
        assert life.node_of("other") == ""
    life.driver.now_s += 4 * _STEP_S
    life.schedule()
    life.schedule()
    assert life.node_of("other") == life.moves[0].pod.node_name
    assert not any(pod["status"].get("nominatedNodeName") for pod in life.pods.values())
    life.audit()


def test_a_restart_of_the_scheduler_keeps_the_hole(life: Life) -> None:
    """The nominations are on the API server; the time begins anew."""
    life.add_group(2)
    life.live(6.0)
    life.restart()
    life.add("other", 3)
    for _ in range(int(HOLD_FOR_S / _STEP_S) - 1):
        life.driver.now_s += _STEP_S
        life.schedule()
        assert life.node_of("other") == ""
    life.live(10.0)
    assert "" not in {life.node_of("m0"), life.node_of("m1")}
    life.audit()


@settings(max_examples=25, deadline=None)
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
    the group's members are nominated (`Life.schedule` checks it). What came late may take the room of a second move.
    """
    life = Life()
    for index, n in enumerate(smalls):
        life.add_node(f"n{index}")
        for number in range(n):
            life.add(f"s{index}{number}", 1, f"n{index}")
    life.add_node("z", 1 + spare)
    life.add("z", 1, "z")
    life.add_group(2)
    life.live(6.0)
    assert life.moves
    for turn, cpu in late:
        life.live(float(turn))
        life.add(f"late-{len(life.pods)}", cpu)
    life.live(20.0)
    is_placed = "" not in {life.node_of("m0"), life.node_of("m1")}
    assert is_placed or (late and life.moves[-1].others_follow)
    life.audit()

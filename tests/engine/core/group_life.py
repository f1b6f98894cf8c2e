"""
Random lives of groups and of pods of none: they come and go, binds and evictions succeed and fail, nodes come and go.

What depends on chance is drawn by the seed: two lives of one seed are the same.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from scheduler.daemon.settings.loading import default_settings
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.model.instructions import Bind, EvictVictim, Instruction
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT, RELEASE_AFTER, GroupKey
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.semantics import Version, semantics_of
from scheduler.engine.model.stimuli import EvictionEnded, Stimulus, TimePassed, VictimFate
from tests.support import build
from tests.support.driving import Driver

RACK = "rack"
PRIORITIES = {"g0": 0, "g1": 5, "g2": 0, "g3": 10}


class _Recorded(Driver):
    """A driver that keeps each stimulus, its time, and what it ordered."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, settings_of(seed))
        self.record: list[tuple[Stimulus, float, list[Instruction]]] = []

    def handle(self, stimulus: Stimulus) -> list[Instruction]:
        ordered = super().handle(stimulus)
        self.record.append((stimulus, self.now_s, ordered))
        return ordered


def settings_of(seed: int) -> Settings:
    return default_settings(semantics_of(Version(1, 36 + seed % 2)))


class GroupLife:
    """Of odd seeds beside kubernetes 1.37, where a group is one entry of the queue."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.driver = _Recorded(seed)
        #: Pods that watches show, and the binds without an answer.
        self.pending: dict[str, Pod] = {}
        self.bound: dict[str, Pod] = {}
        self.ordered: dict[str, Bind] = {}
        self.needs: dict[str, int] = {}
        self.evictions: list[EvictVictim] = []
        self.n_evicted = 0
        self.n_names = 0
        for index in range(4):
            self.see_node(index)

    def see_node(self, index: int) -> None:
        room = {"cpu": self.chance.choice(("1", "2", "3"))}
        self.driver.node(f"n{index}", labels={RACK: f"r{index % 2}"}, allocatable=room)

    def step(self) -> None:
        actions = [
            *[self.add] * 4,
            *[self.add_single] * 2,
            *[self.cycle] * 4,
            *[self.answer] * 3,
            self.fail,
            self.evict,
            self.evict,
            self.lose,
            self.node,
            self.wait,
        ]
        self.chance.choice(actions)()

    def add(self) -> None:
        group = f"g{self.chance.randrange(4)}"
        needs = self.needs.setdefault(group, self.chance.choice((2, 3, 4)))
        near = build.affinity(required=[build.term(RACK, build.selector(f"app={group}"))])
        self.n_names += 1
        pod = self.driver.pod(
            f"{group}-{self.n_names}",
            labels={"app": group, GROUP: group, MIN_COUNT: str(needs)},
            affinity=near if group in ("g0", "g1") else None,
            cpu=self.chance.choice(("500m", "1")),
            gates=("hold",) if self.chance.random() < 0.1 else (),
            priority=PRIORITIES[group],
            annotations={RELEASE_AFTER: "15"} if group in ("g2", "g3") else None,
            owner=build.owned_by("StatefulSet", group),
        )
        self.pending[pod.uid] = pod

    def add_single(self) -> None:
        """Show a pod of no group."""
        self.n_names += 1
        pod = self.driver.pod(
            f"single-{self.n_names}",
            cpu=self.chance.choice(("500m", "1", "2")),
            priority=self.chance.choice((0, 0, 5, 9)),
        )
        self.pending[pod.uid] = pod

    def cycle(self) -> None:
        self.take(self.driver.cycle())

    def take(self, told: list[Instruction]) -> None:
        groups = Counter[GroupKey]()
        for one in told:
            if isinstance(one, EvictVictim):
                is_released = one.victim.group == one.preemptor.group and one.victim.name[:2] in ("g2", "g3")
                assert is_released or one.victim.priority < one.preemptor.priority
                self.evictions.append(one)
            if isinstance(one, Bind):
                assert one.pod.uid not in self.ordered, f"{one.pod.name} is bound twice"
                self.ordered[one.pod.uid] = one
                if one.pod.group is not None:
                    groups[one.pod.group.key] += 1
        for key, n_new in groups.items():
            state, needs = self.driver.state.groups, self.needs[key.name]
            n_placed = state.n_placed(key)
            # Beside members on nodes, as many are placed of a group that was placed once as are there.
            is_beside = n_placed > n_new and state.is_whole(key, needs)
            assert n_placed >= needs or is_beside, f"half of {key.name} is placed"

    def answer(self) -> None:
        if self.ordered:
            uid, bind = self.ordered.popitem()
            if (pod := self.pending.pop(uid, None)) is not None:
                self.bound[uid] = self.driver.confirm(pod, bind.node_name)
            else:
                self.driver.fail_bind(bind.pod, f'pods "{bind.pod.name}" not found')

    def fail(self) -> None:
        if self.ordered:
            _, bind = self.ordered.popitem()
            self.driver.fail_bind(bind.pod, "etcdserver: request timed out")

    def evict(self) -> None:
        """Answer one eviction."""
        if not self.evictions:
            return
        one = self.evictions.pop(self.chance.randrange(len(self.evictions)))
        fate = self.chance.choice(
            (VictimFate.DELETED, VictimFate.DELETED, VictimFate.FAILED, VictimFate.SPARED)
        )
        if not self.driver.needs_eviction(one.preemptor.uid, one.victim.uid):
            fate = VictimFate.SPARED
        self.take(self.driver.handle(EvictionEnded(one.preemptor.uid, one.victim.uid, fate)))
        if fate is VictimFate.DELETED:
            self.n_evicted += 1
            self.pending.pop(one.victim.uid, None)
            self.bound.pop(one.victim.uid, None)
            self.driver.lose(one.victim)

    def lose(self) -> None:
        pods = {**self.pending, **self.bound}
        if pods and self.chance.random() < 0.5:
            pod = pods[self.chance.choice(sorted(pods))]
            if self.chance.random() < 0.3 and pod.uid in self.pending:
                self.driver.update(pod, terminating=True)
            self.pending.pop(pod.uid, None)
            self.bound.pop(pod.uid, None)
            self.driver.lose(pod)

    def node(self) -> None:
        index = self.chance.randrange(4)
        if self.chance.random() < 0.3:
            self.driver.lose_node(f"n{index}")
        else:
            self.see_node(index)

    def wait(self) -> None:
        self.driver.now_s += self.chance.choice((1.0, 6.0, 12.0, 130.0))
        self.take(self.driver.handle(TimePassed()))

    def settle(self) -> None:
        """Answer everything, on nodes with room for all; every group with enough members is placed in the end."""
        for index in range(4):
            self.driver.node(f"n{index}", labels={RACK: f"r{index % 2}"}, allocatable={"cpu": "64"})
        for _ in range(40):
            self.driver.now_s += 15.0
            self.driver.handle(TimePassed())
            self.cycle()
            while self.ordered or self.evictions:
                self.answer()
                self.evict()

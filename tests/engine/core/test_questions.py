"""
A question changes nothing: with and without questions between its stimuli, a life has the same instructions.

Pods and groups of several priorities come and go, on nodes that are too small for them; binds and evictions are
answered in any order. Of two equal machines one is asked between any two stimuli whatever may be asked of a machine.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.model.instructions import Bind, EvictVictim
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import (
    BindDone,
    BindFailed,
    CycleDue,
    EvictionDue,
    EvictionEnded,
    EvictionStep,
    NodeGone,
    PodGone,
    Stimulus,
    TimePassed,
    VictimFate,
)
from scheduler.tools.page.what_if_service import WhatIfService
from tests.support import build
from tests.support.driving import Driver, only

_STEPS = 60
_NODES = ("n0", "n1", "n2", "n3")


class _Life:
    """One machine, and a server whose answers depend on the seed and on the machine's instructions alone."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        self.driver = Driver(seed)
        #: As text: specs of two decoders are never equal.
        self.instructions: list[str] = []
        self.pods: dict[str, Pod] = {}
        self.binds: list[Bind] = []
        self.evictions: list[EvictVictim] = []
        for name in _NODES:
            self._show_node(name)

    def step(self) -> None:
        """Let one thing happen, drawn by the seed."""
        chance = self._chance
        match chance.randrange(14):
            case 0 | 1:
                self._create()
            case 2:
                self._create_group()
            case 3 if self.binds:
                self._answer_bind(self.binds.pop(chance.randrange(len(self.binds))))
            case 4 | 5 if self.evictions:
                self._answer_eviction(self.evictions.pop(chance.randrange(len(self.evictions))))
            case 6 if self.pods:
                self._delete(chance.choice(sorted(self.pods)))
            case 7:
                self._put(NodeGone(chance.choice(_NODES)))
            case 8:
                self._show_node(chance.choice(_NODES))
            case 9 | 10:
                self.driver.now_s += chance.choice((0.5, 2.0, 130.0))
                self._put(TimePassed())
            case _:
                self._put(CycleDue())

    def _put(self, stimulus: Stimulus) -> None:
        for instruction in self.driver.handle(stimulus):
            self.instructions.append(repr(instruction))
            if isinstance(instruction, Bind):
                self.binds.append(instruction)
            if isinstance(instruction, EvictVictim):
                self.evictions.append(instruction)

    def _show_node(self, name: str) -> None:
        self.driver.node(name, labels={"rack": name[-1]}, allocatable={"cpu": self._chance.choice("234")})

    def _create(self, *, labels: dict[str, str] | None = None, priority: int | None = None) -> None:
        name = f"pod-{len(self.instructions)}-{len(self.pods)}-{self._chance.randrange(10**6)}"
        cpu = self._chance.choice(("500m", "1", "2"))
        rank = self._chance.choice((0, 0, 5, 9)) if priority is None else priority
        self.pods[name] = self.driver.pod(
            name, labels=labels, containers=[build.container(requests={"cpu": cpu})], priority=rank
        )

    def _create_group(self) -> None:
        number, size = self._chance.randrange(4), self._chance.choice((2, 3))
        for _ in range(size):
            self._create(labels={GROUP: f"g{number}", MIN_COUNT: "2"}, priority=(0, 5, 5, 9)[number])

    def _answer_bind(self, bind: Bind) -> None:
        if bind.pod.name not in self.pods:
            self._put(BindFailed(bind.pod.uid, "not found"))
        elif self._chance.random() < 0.1:
            self._put(BindFailed(bind.pod.uid, "etcdserver: request timed out"))
        else:
            self._put(BindDone(bind.pod.uid))
            if self.driver.state.is_assumed(bind.pod.uid):
                self.pods[bind.pod.name] = self.driver.confirm(bind.pod, bind.node_name)

    def _answer_eviction(self, eviction: EvictVictim) -> None:
        uids = eviction.preemptor.uid, eviction.victim.uid
        fate = self._chance.choice(
            (VictimFate.DELETED, VictimFate.DELETED, VictimFate.FAILED, VictimFate.SPARED)
        )
        self._put(EvictionEnded(*uids, fate))
        if fate is VictimFate.DELETED and eviction.victim.name in self.pods:
            self._delete(eviction.victim.name)

    def _delete(self, name: str) -> None:
        self._put(PodGone(self.pods.pop(name).uid))


class _Curious:
    """Asks a life everything that may be asked of it."""

    def __init__(self, life: _Life, seed: int) -> None:
        self._life, self._chance = life, Random(seed)
        driver = life.driver
        self._questions = WhatIfService(default_settings(), driver.state, now_s=lambda: driver.now_s)

    def ask(self) -> None:
        """Ask some questions."""
        driver, pods = self._life.driver, sorted(self._life.pods.values(), key=lambda pod: pod.name)
        machine = driver.machine
        machine.next_wake_s(driver.now_s), machine.has_work(), machine.n_binding, machine.n_unconfirmed
        for eviction in self._life.evictions:
            self._ask_about(eviction.preemptor, eviction.victim)
        for _ in range(2 if pods else 0):
            self._ask_about(self._chance.choice(pods), self._chance.choice(pods))
        if pods:
            pod = self._chance.choice(pods)
            machine.observed_node_name(pod.uid)
            if (queued := driver.queue.get(pod.uid)) is not None:
                self._questions.explanation(queued.pod, [other.pod for other in driver.queue.pods()])

    def _ask_about(self, preemptor: Pod, victim: Pod) -> None:
        for step in EvictionStep:
            answer = self._life.driver.handle(EvictionDue(preemptor.uid, victim.uid, step))
            assert len(answer) == 1


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_questions_change_no_instruction(seed: int) -> None:
    life, asked = _Life(seed), _Life(seed)
    curious = _Curious(asked, seed)
    for step in range(_STEPS):
        life.step()
        curious.ask()
        asked.step()
        assert asked.instructions == life.instructions, f"step {step}"
    asked.driver.audit()


def _instructions_after_an_eviction(seed: int, *, is_asked: bool) -> str:
    """Return what follows for a pod that many nodes take, after a group has begun to evict pods."""
    driver = Driver(seed)
    requests = [build.container(requests={"cpu": "1"})]
    for number in range(3):
        driver.node(f"node-of-group-{number}", labels={"pool": "a"}, allocatable={"cpu": "1"})
    driver.pod("low", containers=requests, node="node-of-group-2")
    members = [
        driver.pod(
            f"member-{number}",
            labels={GROUP: "train", MIN_COUNT: "3"},
            containers=requests,
            node_selector={"pool": "a"},
            priority=9,
        )
        for number in range(3)
    ]
    eviction = only(driver.cycle(), EvictVictim)
    assert isinstance(eviction, EvictVictim)
    for number in range(8):
        driver.node(f"node-{number}", allocatable={"cpu": "2"})
    if is_asked:
        assert driver.needs_eviction(eviction.preemptor.uid, eviction.victim.uid)
    assert [bool(driver.state.nominated.node_of(pod.uid)) for pod in members] == [True] * 3
    driver.pod("single", containers=requests)
    return repr(driver.cycle())


@pytest.mark.parametrize("seed", range(10))
def test_whether_a_group_still_needs_room_is_asked_without_a_trace(seed: int) -> None:
    """Asked, it drew from the machine's random numbers, so that the next bind was another one."""
    asked = _instructions_after_an_eviction(seed, is_asked=True)
    assert asked == _instructions_after_an_eviction(seed, is_asked=False)

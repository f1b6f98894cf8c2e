"""
A question changes nothing: with and without questions between its stimuli, a life has the same instructions.

Pods and groups of several priorities come and go, on nodes that are too small for them; binds and evictions are
answered in any order. Of two equal machines one is asked between any two stimuli whatever may be asked of a machine.
"""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import EvictionDue, EvictionStep
from scheduler.tools.page.what_if_service import WhatIfService
from tests.engine.core.group_life import GroupLife, settings_of

_STEPS = 60


class _Curious:
    """Asks a life everything that may be asked of it."""

    def __init__(self, life: GroupLife, seed: int) -> None:
        self._life, self._chance = life, Random(seed)
        driver = life.driver
        self._questions = WhatIfService(settings_of(seed), driver.state, now_s=lambda: driver.now_s)

    def ask(self) -> None:
        """Ask some questions."""
        driver = self._life.driver
        pods = [*self._life.pending.values(), *self._life.bound.values()]
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


def _instructions(life: GroupLife) -> list[str]:
    """Return what was ordered but for answers; as text, since specs of two decoders are never equal."""
    return [repr(told) for stimulus, _, told in life.driver.record if not isinstance(stimulus, EvictionDue)]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_questions_change_no_instruction(seed: int) -> None:
    life, asked = GroupLife(seed), GroupLife(seed)
    curious = _Curious(asked, seed)
    for step in range(_STEPS):
        life.step()
        curious.ask()
        asked.step()
        assert _instructions(asked) == _instructions(life), f"step {step}"
    asked.driver.audit()

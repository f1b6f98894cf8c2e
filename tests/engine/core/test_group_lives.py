"""
Random lives of groups: members come and go, binds and evictions succeed and fail, nodes come and go, in any order.

No cycle leaves half a group on nodes, no pod is bound twice, no pod is evicted for a group of its own priority, no
nomination is left behind, and counts equal a recount. Nor does it matter how far a cycle has come when the next
stimulus arrives.
"""

from __future__ import annotations

from random import Random

import pytest

from scheduler.engine.model.instructions import Instruction
from scheduler.engine.model.pod_groups import GroupKey, GroupKind
from tests.engine.core.group_life import GroupLife, settings_of
from tests.support.driving import Driver


@pytest.mark.parametrize("seed", range(40))
def test_no_cycle_leaves_half_a_group_on_nodes(seed: int) -> None:
    life = GroupLife(seed)
    for _ in range(100):
        life.step()
    life.driver.audit()
    life.settle()
    life.driver.audit()
    groups = life.driver.state.groups
    for name, needs in life.needs.items():
        key = GroupKey(GroupKind.OWN, "default", name)
        waiting = [pod for pod in groups.pending(key) if not pod.gates]
        n_placed = sum(1 for _ in groups.placed(key))
        assert not waiting or len(waiting) + n_placed < needs, (name, needs, n_placed, len(waiting))
    assert life.driver.machine.n_binding == 0
    assert not life.driver.state.preempting
    assert not life.driver.state.nominated


@pytest.mark.parametrize("block", range(4))
def test_a_stimulus_that_comes_in_the_middle_of_a_cycle_changes_nothing_of_it(block: int) -> None:
    counts = [_interrupted(seed) for seed in range(50 + 5 * block, 55 + 5 * block)]
    assert all(sum(n) for n in zip(*counts, strict=True)), "lives without such cycles, or without evictions"


def _interrupted(seed: int) -> tuple[int, int]:
    """
    Let a life happen once more, with cycles that have come any way when the next stimulus arrives.

    Return how many these are, and how many pods were evicted.
    """
    life = GroupLife(seed)
    for _ in range(100):
        life.step()
    chance, again, n_interrupted = Random(seed), Driver(seed, settings_of(seed)), 0
    machine, ordered = again.machine, list[Instruction]()
    for stimulus, now_s, _ in life.driver.record:
        n_interrupted += machine.is_in_cycle
        ordered += machine.handle(stimulus, now_s)
        for _ in range(chance.choice((0, 1, 2, 100))):
            ordered += machine.step() if machine.has_backlog else []
        if not machine.is_in_cycle:
            again.audit()
    while machine.has_backlog:
        ordered += machine.step()
    assert ordered == [one for _, _, told in life.driver.record for one in told]
    assert not again.state.is_provisional
    again.audit()
    return n_interrupted, life.n_evicted

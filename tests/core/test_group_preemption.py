"""
Pods evicted for a group, against brute force on random small clusters.

If pods are evicted, the whole group fits once they are gone, and it would not with one of them back. If the group
cannot be whole, nobody is evicted.
"""

from __future__ import annotations

import pytest

from scheduler.model.instructions import Bind, EvictVictim, Instruction
from scheduler.model.pods import Pod
from scheduler.model.stimuli import EvictionEnded, VictimFate
from tests.core.test_group_search import Case, Chance, group_object
from tests.reference.pod_groups import Group
from tests.support.build import Json

PRIORITY = 10


class _Drawn:
    """A cluster with running pods of several priorities, and a group."""

    def __init__(self, seed: int) -> None:
        chance = Chance(seed)
        nodes = [chance.node(index) for index in range(chance.choice((2, 3, 3)))]
        templates = [chance.template() for _ in range(chance.choice((1, 1, 2)))]
        self.case = Case(nodes, [])
        self.running: dict[str, Json] = {}
        self.shown: dict[str, Pod] = {}
        for index in range(chance.choice((1, 2, 3, 4, 5))):
            name, node = f"r{index}", chance.choice(nodes)["metadata"]["name"]
            priority = chance.choice((0, 0, 1, 5, PRIORITY, 20))
            pod = group_object(name, chance.template(), node=node, priority=priority)
            self.running[name] = pod
            self.shown[name] = self.case.show(pod)
        n_members = chance.choice((2, 2, 3))
        self.n_needed = max(1, n_members - chance.choice((0, 0, 0, 1)))
        self.members = [
            group_object(f"m{i}", templates[i % len(templates)], self.n_needed, priority=PRIORITY)
            for i in range(n_members)
        ]
        self.group = Group(self.case.reference, {one["metadata"]["name"]: one for one in self.members})

    def fits_without(self, names: set[str]) -> bool:
        """Return whether brute force places the group without these running pods."""
        for name in names:
            self.case.reference.delete("Pod", "default", name)
        fits = self.group.most(self.n_needed) >= self.n_needed
        for name in names:
            self.case.reference.apply(self.running[name])
        return fits

    def lower(self) -> set[str]:
        return {name for name, pod in self.running.items() if pod["spec"]["priority"] < PRIORITY}


def _evicted(told: list[Instruction]) -> list[EvictVictim]:
    return [one for one in told if isinstance(one, EvictVictim)]


def _run(drawn: _Drawn) -> tuple[set[str], dict[str, str]]:
    """Let the group be tried until it is placed, or waits; every eviction succeeds. Return victims and places."""
    driver, victims, places = drawn.case.driver, set[str](), dict[str, str]()
    told: list[Instruction] = []
    for one in drawn.members:
        drawn.case.show(one)
    for _ in range(20):
        while driver.queue.depths()["active"]:
            told += driver.cycle()
        places |= {one.pod.name: one.node_name for one in told if isinstance(one, Bind)}
        evictions, told = _evicted(told), []
        for one in evictions:
            assert not places
            assert driver.machine.wants_eviction(one.preemptor.uid, one.victim.uid)
            victims.add(one.victim.name)
            told += driver.handle(EvictionEnded(one.preemptor.uid, one.victim.uid, VictimFate.DELETED))
            driver.lose(one.victim)
        if not evictions:
            break
        driver.pass_time(20)
    return victims, places


def check(seed: int) -> tuple[int, int]:
    """Compare one drawn case with brute force. Return the number of victims, and of running pods."""
    drawn = _Drawn(seed)
    state = drawn.case.driver.state
    fitted, could = drawn.fits_without(set()), drawn.fits_without(drawn.lower())
    n_before = len(state.placed)
    victims, places = _run(drawn)
    if fitted or not could:
        assert not victims, (seed, victims)
        assert len(state.placed) == n_before + len(places)
        assert bool(places) == fitted, (seed, places)
    else:
        assert victims <= drawn.lower(), (seed, victims)
        assert drawn.fits_without(victims), (seed, victims)
        for name in victims:
            assert not drawn.fits_without(victims - {name}), (seed, victims, name)
        assert len(places) >= drawn.n_needed, (seed, victims, places)
        for name in victims:
            drawn.case.reference.delete("Pod", "default", name)
        assert drawn.group.is_valid(places), (seed, places)
    drawn.case.driver.audit()
    return len(victims), len(drawn.running)


@pytest.mark.parametrize("block", range(6))
def test_no_pod_is_evicted_that_the_group_could_have_spared(block: int) -> None:
    n_victims = [check(seed)[0] for seed in range(40 * block, 40 * (block + 1))]
    assert sum(n > 0 for n in n_victims) >= 3

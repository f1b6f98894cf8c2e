"""
The search for a group's places against brute force, on random small clusters.

No group is refused that has places, none is placed where it breaks a rule, and nothing of an attempt is left behind.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from scheduler.engine.core.assumed_places import OutOfDecisionsError, SplitMix64, detached_places
from scheduler.engine.core.decide import ScheduleResult
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import NodeSeen, PodSeen
from scheduler.engine.state.batches import finished
from tests.reference.cluster import Cluster
from tests.reference.pod_groups import Group
from tests.support import build
from tests.support.build import HOSTNAME, Json
from tests.support.driving import NAME, Driver, binds

RACK = "rack"
APPS = ("x", "y")


class Chance(Random):
    """Draws clusters of which many are too small by little."""

    def term(self) -> Json:
        return build.term(self.choice((RACK, RACK, HOSTNAME)), build.selector(f"app={self.choice(APPS)}"))

    def node(self, index: int) -> Json:
        return build.node(
            f"n{index}",
            labels=self.choice(({RACK: "a"}, {RACK: "a"}, {RACK: "b"}, {RACK: "b"}, {RACK: "a"}, {})),
            allocatable={"cpu": self.choice(("1", "2", "2", "3")), "pods": "10"},
            taints=self.choice(([], [], [], [], ["k=v:NoSchedule"])),
        )

    def template(self) -> Json:
        near = [self.term() for _ in range(self.choice((0, 0, 1, 1, 2)))]
        apart = [self.term() for _ in range(self.choice((0, 0, 1)))]
        key, app = self.choice((RACK, HOSTNAME)), self.choice(APPS)
        limit = self.choice(({}, {}, {}, {"maxPodsPerDomain": self.choice((1, 2, "40%", "70%"))}))
        own = build.affinity(anti_required=[{**self.term(), **limit}])
        return {
            "labels": {"app": self.choice(APPS)},
            "annotations": {"affinity-scheduler.io/affinity": json.dumps(own)} if limit else {},
            "affinity": build.affinity(required=near, anti_required=apart) or None,
            "spread": self.choice(([], [], [], [build.spread(key, build.selector(f"app={app}"))])),
            "containers": [build.container(requests={"cpu": self.choice(("100m", "500m", "1", "1", "2"))})],
            "tolerations": self.choice(([], [build.toleration("k")])),
        }


def group_object(name: str, template: Json, n_needed: int = 0, *, priority: int = 0, **more: Any) -> Json:
    group = {GROUP: "g", MIN_COUNT: str(n_needed)} if n_needed else {}
    labels = {**template["labels"], **group}
    spec = {"schedulerName": NAME, "priority": priority}
    return build.pod(name, **{**template, "labels": labels}, spec=spec, **more)


class Case:
    """A driver and a reference that know the same objects."""

    def __init__(self, nodes: list[Json], running: list[tuple[Json, int]]) -> None:
        self.driver, self.reference = Driver(), Cluster()
        self._names = [one["metadata"]["name"] for one in nodes]
        for one in nodes:
            self.reference.apply(one)
            self.driver.handle(NodeSeen(decode_node(json.dumps(one).encode())))
        for index, (template, at) in enumerate(running):
            self.show(group_object(f"r{index}", template, node=self._names[at % len(nodes)]))

    def show(self, pod: Json) -> Pod:
        if "nodeName" in pod["spec"]:
            self.reference.apply(pod)
        seen = self.driver.decoded(pod)
        self.driver.handle(PodSeen(seen))
        return seen

    def places(self, members: list[Json]) -> dict[str, str]:
        for one in members:
            self.show(one)
        return binds(self.driver.cycles())


def check(seed: int) -> None:
    """Compare one drawn case with brute force."""
    chance = Chance(seed)
    nodes = [chance.node(index) for index in range(chance.choice((2, 3, 3, 4)))]
    templates = [chance.template() for _ in range(chance.choice((1, 2, 2, 3)))]
    running = [
        (chance.choice((chance.template(), chance.choice(templates))), chance.randrange(4))
        for _ in range(chance.choice((0, 0, 0, 1, 2)))
    ]
    n_members = chance.choice((2, 3, 3, 4))
    n_needed = max(1, n_members - chance.choice((0, 0, 0, 1)))
    case = Case(nodes, running)
    members = [group_object(f"m{i}", templates[i % len(templates)], n_needed) for i in range(n_members)]
    group = Group(case.reference, {one["metadata"]["name"]: one for one in members})
    most = group.most(n_needed)
    places = case.places(members)
    assert (len(places) >= n_needed) == (most >= n_needed), (seed, places, most)
    assert not places or group.is_valid(places), (seed, places)
    assert not places or group.is_in_turn(places) or not group.has_turns(places), (seed, places)
    assert len(case.driver.state.placed) == len(running) + len(places)
    case.driver.audit()


@pytest.mark.drawn_seeds(size=40, n_blocks=3)
def test_a_group_is_placed_if_and_only_if_brute_force_places_it(seeds: range) -> None:
    for seed in seeds:
        check(seed)


def test_members_that_running_pods_draw_to_several_racks_are_enough_together() -> None:
    """Two racks, each with a running pod and room for one of three members, of which two are needed."""
    check(611195)


def test_a_search_takes_as_many_decisions_as_it_may() -> None:
    """The first one on a member counts once; a later one on a member with many terms counts more."""
    driver = Driver()
    driver.node("n")
    preferred = [(1, build.term(RACK, build.selector(f"n={one}"))) for one in range(64)]
    plain, costly = driver.pod("plain"), driver.pod("costly", affinity=build.affinity(preferred=preferred))
    assumed = detached_places(driver.state, driver.profiles[NAME], "p", 3)
    for n_left, pod in ((2, plain), (1, costly), (0, plain)):
        assert isinstance(finished(assumed.deciding(pod, assumed.view.alive)), ScheduleResult)
        assert assumed.n_left == n_left
    with pytest.raises(OutOfDecisionsError):
        finished(assumed.deciding(plain, assumed.view.alive))
    assumed = detached_places(driver.state, driver.profiles[NAME], "p", 100)
    for _ in range(2):
        finished(assumed.deciding(costly, assumed.view.alive))
    assert assumed.n_left < 98


def test_the_numbers_are_those_of_splitmix64() -> None:
    """From a plain implementation, begun at the digest of the identity, 0xa75d497bdad1730f: decisions are replayed."""
    rng = SplitMix64("group moves")
    numbers = [11664878396246414885, 5347674340970503118, 11567275386891502166]
    assert [rng.randrange(1 << 64) for _ in numbers] == numbers


def test_numbers_are_below_the_stop() -> None:
    rng = SplitMix64("p 1")
    assert {rng.randrange(3) for _ in range(100)} == {0, 1, 2}

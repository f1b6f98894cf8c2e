"""
Pods evicted for a group, against brute force on random small clusters.

If pods are evicted, the whole group fits once they are gone, and it would not with one of them back. If the group
cannot be whole, no pod is evicted.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from scheduler.engine.core.preemption import preempted_event
from scheduler.engine.model.disruption_budgets import decode_disruption_budget
from scheduler.engine.model.group_topology import Topology
from scheduler.engine.model.instructions import (
    Attempted,
    Bind,
    EmitEvent,
    EvictVictim,
    Instruction,
    PatchCondition,
)
from scheduler.engine.model.pod_groups import (
    COSCHEDULING_GROUP,
    GROUP,
    MIN_COUNT,
    GroupKey,
    GroupKind,
    PodGroup,
)
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import EvictionEnded, ObjectSeen, PodGroupSeen, PodSeen, VictimFate
from tests.engine.core.test_group_search import Case, Chance, group_object
from tests.reference.pod_groups import Group
from tests.support.build import Json, affinity, container, disruption_budget, pod, selector, term
from tests.support.driving import NAME, Driver, attempt_of

PRIORITY = 10
RACK = "rack"


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
    for member in drawn.members:
        drawn.case.show(member)
    for _ in range(20):
        while driver.queue.depths()["active"]:
            told += driver.cycle()
        places |= {one.pod.name: one.node_name for one in told if isinstance(one, Bind)}
        if places:
            # From here on a member without a place evicts as any pod does.
            break
        evictions, told = _evicted(told), []
        for one in evictions:
            assert driver.needs_eviction(one.preemptor.uid, one.victim.uid)
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


# In the machine.


def _running(driver: Driver, name: str, node: str, priority: int = 0, cpu: str = "1", **more: Any) -> Pod:
    return driver.pod(name, node=node, priority=priority, cpu=cpu, **more)


def _waiting(driver: Driver, name: str, priority: int, cpu: str = "1") -> Pod:
    return driver.pod(name, priority=priority, cpu=cpu)


def _members(
    driver: Driver, n_pods: int, priority: int = PRIORITY, n_needed: int | None = None, **more: Any
) -> list[Pod]:
    labels = {"app": "train", GROUP: "train", MIN_COUNT: str(n_pods if n_needed is None else n_needed)}
    containers = [container(requests={"cpu": "1"})]
    names = [f"w-{index}" for index in range(n_pods)]
    return [driver.pod(one, labels=labels, priority=priority, containers=containers, **more) for one in names]


def _victims(told: list[Instruction]) -> list[str]:
    return [one.victim.name for one in _evicted(told)]


def _settle(driver: Driver, told: list[Instruction]) -> tuple[list[str], dict[str, str]]:
    """Let every eviction succeed, and cycle until nothing happens. Return all victims, and the places."""
    victims: list[str] = []
    places: dict[str, str] = {}
    while told:
        later: list[Instruction] = []
        for one in told:
            if isinstance(one, Bind):
                places[one.pod.name] = one.node_name
            if isinstance(one, EvictVictim):
                victims.append(one.victim.name)
                later += driver.handle(EvictionEnded(one.preemptor.uid, one.victim.uid, VictimFate.DELETED))
                driver.lose(one.victim)
        driver.pass_time(20)
        told = later + driver.cycle()
    return victims, places


def test_all_victims_go_the_last_one_after_the_others_and_then_all_members_are_bound(driver: Driver) -> None:
    for index in range(3):
        driver.node(f"n{index}", allocatable={"cpu": "1"})
        _running(driver, f"low-{index}", f"n{index}", index)
    members = _members(driver, 3)
    told = driver.cycle()
    assert _victims(told) == ["low-0", "low-1"]
    conditions = [one for one in told if isinstance(one, PatchCondition)]
    assert {one.pod.name for one in conditions} == {"w-0", "w-1", "w-2"}
    assert {one.nominated_node_name for one in conditions} == {"n0", "n1", "n2"}
    (attempt,) = [one for one in told if isinstance(one, Attempted)]
    assert (attempt.tried_preemption, attempt.n_victims) == (True, 3)
    rest, places = _settle(driver, told)
    assert rest == ["low-0", "low-1", "low-2"]
    assert sorted(places.values()) == ["n0", "n1", "n2"]
    assert set(places) == {one.name for one in members}
    assert not driver.state.nominated
    assert not driver.state.preempting


def test_the_report_of_a_group_names_its_most_important_victims(driver: Driver) -> None:
    driver.node("n0", allocatable={"cpu": "12"})
    for index in range(12):
        _running(driver, f"low-{index}", "n0", index)
    _members(driver, 12, priority=20)
    attempt = attempt_of(driver.cycle())
    assert attempt.n_victims == 12
    assert [name for _, name in attempt.victims] == [f"low-{index}" for index in range(11, 1, -1)]


def test_a_group_has_no_victims_where_all_are_deleted_and_not_yet_shown_to_end(driver: Driver) -> None:
    """A group of a higher priority wants the room that is made for the first one."""
    driver.node("n0", allocatable={"cpu": "1"})
    low = _running(driver, "low", "n0")
    _members(driver, 1)
    (order,) = _evicted(driver.cycle())
    driver.handle(EvictionEnded(order.preemptor.uid, low.uid, VictimFate.DELETED))
    labels = {GROUP: "other", MIN_COUNT: "1"}
    driver.pod("o", labels=labels, priority=20, containers=[container(requests={"cpu": "1"})])
    told = driver.cycle()
    attempt = attempt_of(told)
    assert (_victims(told), attempt.pod.name) == ([], "o")
    assert (attempt.tried_preemption, attempt.n_victims, attempt.victims) == (True, 0, ())


def test_a_member_beyond_the_minimum_evicts_as_any_pod_does_once_its_group_is_placed(driver: Driver) -> None:
    """Upstream's "gang schedules with workload-aware preemption": the group itself spares a pod."""
    driver.node("n0", allocatable={"cpu": "4"})
    for index in range(4):
        _running(driver, f"low-{index}", "n0")
    _members(driver, 4, n_needed=3)
    victims, places = _settle(driver, driver.cycle())
    assert sorted(victims) == [f"low-{index}" for index in range(4)]
    assert set(places) == {f"w-{index}" for index in range(4)}
    assert not driver.state.nominated


def test_a_member_that_comes_late_evicts_in_its_groups_domain_alone(driver: Driver) -> None:
    """A pod of lower priority in another rack is no victim: there the group's constraint refuses the member."""
    key = GroupKey(GroupKind.COSCHEDULING, "default", "mpi")
    driver.handle(PodGroupSeen(PodGroup(key, 1, Topology((RACK,)))))
    for rack in "ab":
        driver.node(rack, labels={RACK: rack}, allocatable={"cpu": "2"})
    labels, containers = {COSCHEDULING_GROUP: "mpi"}, [container(requests={"cpu": "1"})]
    driver.pod("rank-0", labels=labels, containers=containers, priority=PRIORITY, node="a")
    _running(driver, "low", "a", 5)
    _running(driver, "lower", "b", 0, cpu="2")
    driver.pod("rank-1", labels=labels, containers=containers, priority=PRIORITY)
    victims, places = _settle(driver, driver.cycle())
    assert (victims, places) == (["low"], {"rank-1": "a"})


def test_an_event_of_a_victim_names_the_group_and_its_own_node(driver: Driver) -> None:
    driver.node("n0", allocatable={"cpu": "2"})
    low = _running(driver, "low", "n0", cpu="2")
    _members(driver, 2)
    (order,) = _evicted(driver.cycle())
    (event,) = driver.handle(EvictionEnded(order.preemptor.uid, low.uid, VictimFate.DELETED))
    assert isinstance(event, EmitEvent)
    assert (event.pod.name, event.note) == ("low", "Preempted by pod group default/train on node n0")
    foreign = preempted_event(replace(low, namespace="other"), order.preemptor, "")
    assert foreign.note == "Preempted by a pod group of another namespace on node n0"


def test_nobody_is_evicted_for_a_group_that_would_still_be_too_large(driver: Driver) -> None:
    for index in range(3):
        driver.node(f"n{index}", allocatable={"cpu": "1"})
    _running(driver, "high", "n0", 500)
    _running(driver, "low-1", "n1")
    _running(driver, "low-2", "n2")
    _members(driver, 3)
    told = driver.cycle()
    assert _victims(told) == []
    (text,) = {one.message for one in told if isinstance(one, PatchCondition)}
    assert text.endswith(
        " preemption: no pods of lower priority were found whose eviction makes room for all members."
    )


def test_a_member_that_may_not_preempt_keeps_the_group_from_it(driver: Driver) -> None:
    driver.node("n0", allocatable={"cpu": "2"})
    _running(driver, "low", "n0", cpu="2")
    labels = {GROUP: "train", MIN_COUNT: "2"}
    containers = [container(requests={"cpu": "1"})]
    for name, policy in (("w-0", "PreemptLowerPriority"), ("w-1", "Never")):
        document = pod(name, labels=labels, containers=containers)
        document["spec"] |= {"schedulerName": NAME, "priority": PRIORITY, "preemptionPolicy": policy}
        driver.handle(PodSeen(driver.decoded(document)))
    told = driver.cycle()
    assert _victims(told) == []
    (text,) = {one.message for one in told if isinstance(one, PatchCondition)}
    assert text.endswith(" preemption: not eligible due to preemptionPolicy=Never.")


def test_the_least_important_pods_go_wherever_they_are(driver: Driver) -> None:
    """Upstream's cases 15 and 20: another node has more of them, or a more important pod is in between."""
    driver.node("n0", allocatable={"cpu": "2"})
    driver.node("n1", allocatable={"cpu": "2"})
    _running(driver, "very-low", "n1", 5, cpu="2")
    _running(driver, "low", "n0", 8)
    _members(driver, 3)
    assert _victims(driver.cycle()) == ["very-low"]


def test_a_budget_protects_its_pods_where_others_do(driver: Driver) -> None:
    driver.node("n0", allocatable={"cpu": "3"})
    for index in range(3):
        app = "web" if index < 2 else "batch"
        _running(driver, f"low-{index}", "n0", labels={"app": app})
    budget = disruption_budget("web", selector("app=web"), 0)
    driver.handle(ObjectSeen(decode_disruption_budget(json.dumps(budget).encode())))
    _members(driver, 1)
    assert _victims(driver.cycle()) == ["low-2"]


def test_a_group_waits_for_victims_that_still_end(driver: Driver) -> None:
    """After a restart: the server has the nominations, and a victim that ends."""
    driver.node("n0", allocatable={"cpu": "2"})
    driver.node("n1", allocatable={"cpu": "2"})
    low = _running(driver, "low", "n0", cpu="2")
    _running(driver, "other", "n1", cpu="2")
    driver.handle(
        PodSeen(
            replace(
                low,
                terminating=True,
                disruption="PreemptionByScheduler",
                resource_version=driver.next_version(),
            )
        )
    )
    _members(driver, 2, status={"nominatedNodeName": "n0"})
    told = driver.cycle()
    assert _victims(told) == []
    (text,) = {one.message for one in told if isinstance(one, PatchCondition)}
    assert text.endswith("preemption: not eligible due to a terminating pod on the nominated node.")
    _waiting(driver, "thief", 1, cpu="2")
    assert not [one for one in driver.cycle() if isinstance(one, Bind)]
    driver.lose(low)
    driver.pass_time(20)
    assert set(_settle(driver, driver.cycle())[1]) == {"w-0", "w-1"}


def test_no_victim_is_deleted_once_the_group_fits_or_lost_a_member(driver: Driver) -> None:
    driver.node("n0", allocatable={"cpu": "2"})
    low = _running(driver, "low", "n0", cpu="2")
    members = _members(driver, 2)
    (order,) = _evicted(driver.cycle())
    preemptor = order.preemptor.uid
    assert driver.needs_eviction(preemptor, low.uid)
    driver.node("new", allocatable={"cpu": "2"})
    assert not driver.needs_eviction(preemptor, low.uid)
    driver.lose_node("new")
    assert driver.needs_eviction(preemptor, low.uid)
    driver.lose(members[1])
    assert not driver.needs_eviction(preemptor, low.uid)
    assert not driver.state.nominated
    driver.handle(EvictionEnded(preemptor, low.uid, VictimFate.SPARED))
    assert not driver.state.preempting


def test_no_victim_is_deleted_once_members_disagree(driver: Driver) -> None:
    driver.node("n0", allocatable={"cpu": "2"})
    low = _running(driver, "low", "n0", cpu="2")
    first, _ = _members(driver, 2)
    (order,) = _evicted(driver.cycle())
    assert driver.needs_eviction(order.preemptor.uid, low.uid)
    labels = {**first.labels, MIN_COUNT: "1"}
    driver.pod(first.name, labels=labels, priority=PRIORITY, cpu="1")
    assert not driver.needs_eviction(order.preemptor.uid, low.uid)


def test_running_members_are_no_victims_of_their_own_group(driver: Driver) -> None:
    driver.node("n0", allocatable={"cpu": "2"})
    labels = {"app": "train", GROUP: "train", MIN_COUNT: "2"}
    for index in range(2):
        _running(driver, f"old-{index}", "n0", 0, labels=labels)
    _members(driver, 2)
    assert _victims(driver.cycle()) == []


def test_running_members_are_no_victims_of_a_group_that_lacks_one(driver: Driver) -> None:
    driver.node("n0", allocatable={"cpu": "2"})
    labels = {"app": "train", GROUP: "train", MIN_COUNT: "3"}
    for index in range(2):
        _running(driver, f"old-{index}", "n0", 0, labels=labels)
    _members(driver, 1, n_needed=3)
    assert _victims(driver.cycle()) == []


def test_a_group_for_which_pods_left_in_vain_is_nominated_no_more(driver: Driver) -> None:
    driver.node("n0", allocatable={"cpu": "2"})
    low = _running(driver, "low", "n0", cpu="2")
    _members(driver, 2)
    (order,) = _evicted(driver.cycle())
    assert driver.state.nominated
    driver.node("n0", allocatable={"cpu": "2"}, unschedulable=True)
    driver.handle(EvictionEnded(order.preemptor.uid, low.uid, VictimFate.SPARED))
    driver.pass_time(20)
    driver.queue.activate("uid-default-w-0", driver.now_s)
    texts = {one.message for one in driver.cycle() if isinstance(one, PatchCondition)}
    assert len(texts) == 1
    assert texts.pop().endswith(
        " preemption: no pods of lower priority were found whose eviction makes room for all members."
    )
    assert not driver.state.nominated


def test_a_group_that_was_placed_once_stays_so_when_it_is_removed_for_a_search(driver: Driver) -> None:
    driver.node("n0", allocatable={"cpu": "2"})
    other = {GROUP: "other", MIN_COUNT: "2"}
    containers = [container(requests={"cpu": "1"})]
    pods = [driver.pod(f"o-{index}", labels=other, containers=containers, priority=1) for index in (0, 1)]
    places = {one.pod.name: one.node_name for one in driver.cycle() if isinstance(one, Bind)}
    for one in pods:
        driver.confirm(one, places[one.name])
    _members(driver, 3)
    told = driver.cycle()
    assert _victims(told) == []
    assert driver.state.groups.is_whole(GroupKey(GroupKind.OWN, "default", "other"), 2)


def test_in_a_large_cluster_the_pods_of_some_nodes_are_asked(driver: Driver) -> None:
    """More pods than a search removes: the nodes where it costs least make room, in one rack."""
    for index in range(120):
        driver.node(f"n{index}", labels={"rack": f"r{index // 12}"}, allocatable={"cpu": "10", "pods": "20"})
        for number in range(10):
            _running(driver, f"p-{index}-{number}", f"n{index}", 1 if index // 12 == 4 else 5)
    for index in range(16):
        # They have the fewest pods, and take no member.
        driver.node(f"t{index}", labels={"rack": "r4"}, taints=["k=v:NoSchedule"])
        _running(driver, f"t-{index}", f"t{index}", 1)
    near = affinity(required=[term("rack", selector("app=train"))])
    _members(driver, 8, affinity=near)
    victims, places = _settle(driver, driver.cycle())
    assert len(victims) == 8
    assert {int(name.split("-")[1]) // 12 for name in victims} == {4}
    assert len(places) == 8


def test_for_a_large_group_pods_stay_beside_which_members_keep_their_nodes(driver: Driver) -> None:
    """The searches would take too many decisions; no node gives more pods than its members need."""
    for index in range(60):
        driver.node(f"n{index}", allocatable={"cpu": "4", "pods": "20"})
        for number in range(4):
            _running(driver, f"p-{index}-{number}", f"n{index}", number)
    _members(driver, 100)
    victims, places = _settle(driver, driver.cycle())
    assert len(victims) == 100
    assert len(places) == 100


def test_for_a_large_group_a_pod_leaves_that_keeps_a_member_off_another_node(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.engine.core.group_preemption._MOST_DECISIONS", 0)
    for index, app in enumerate(("other", "")):
        driver.node(f"n{index}", labels={"rack": "r"}, allocatable={"cpu": "1"})
        _running(driver, f"low-{index}", f"n{index}", labels={"app": app})
    apart = affinity(anti_required=[term("rack", selector("app=other"))])
    _members(driver, 1, affinity=apart)
    victims, places = _settle(driver, driver.cycle())
    assert sorted(victims) == ["low-0", "low-1"]
    assert len(places) == 1


def test_for_a_large_group_a_pod_leaves_whose_rule_keeps_a_member_off_another_node(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.engine.core.group_preemption._MOST_DECISIONS", 0)
    apart = affinity(anti_required=[term("rack", selector("app=train"))])
    for index, rules in enumerate((apart, None)):
        closed = index == 0
        driver.node(f"n{index}", labels={"rack": "r"}, allocatable={"cpu": "1"}, unschedulable=closed)
        _running(driver, f"low-{index}", f"n{index}", affinity=rules)
    _members(driver, 1)
    victims, places = _settle(driver, driver.cycle())
    assert (sorted(victims), list(places.values())) == (["low-0", "low-1"], ["n1"])

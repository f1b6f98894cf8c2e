"""
Pods evicted for a group, against brute force on random small clusters.

If pods are evicted, the whole group fits once they are gone, and it would not with one of them back. If the group
cannot be whole, no pod is evicted.
"""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.engine.model.group_topology import Topology
from scheduler.engine.model.instructions import Attempted, Bind, EvictVictim, PatchCondition
from scheduler.engine.model.pod_groups import (
    COSCHEDULING_GROUP,
    GROUP,
    MIN_COUNT,
    GroupKey,
    GroupKind,
    PodGroup,
)
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import EvictionEnded, PodGroupSeen, VictimFate
from tests.engine.core.preempting import end_eviction, settled, sized_pod
from tests.engine.core.test_group_search import Case, Chance, group_object
from tests.reference.pod_groups import Group
from tests.support.build import Json, affinity, selector, term
from tests.support.driving import Driver, attempt_of, binds, each_of, evictions

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


def check(seed: int) -> tuple[int, int]:
    """Compare one drawn case with brute force. Return the number of victims, and of running pods."""
    drawn = _Drawn(seed)
    state = drawn.case.driver.state
    fitted, could = drawn.fits_without(set()), drawn.fits_without(drawn.lower())
    n_before = len(state.placed)
    for member in drawn.members:
        drawn.case.show(member)
    victims, places = settled(drawn.case.driver, until_bound=True)
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


@pytest.mark.drawn_seeds(size=40, n_blocks=3)
def test_no_pod_is_evicted_that_the_group_could_have_spared(seeds: range) -> None:
    n_victims = [check(seed)[0] for seed in seeds]
    assert sum(n > 0 for n in n_victims) >= 3 or seeds.start, "other seeds may be unlucky"


# In the machine.


def _members(
    driver: Driver, n_pods: int, priority: int = PRIORITY, n_needed: int | None = None, **more: Any
) -> list[Pod]:
    labels = {"app": "train", GROUP: "train", MIN_COUNT: str(n_pods if n_needed is None else n_needed)}
    return [sized_pod(driver, f"w-{index}", priority, labels=labels, **more) for index in range(n_pods)]


def test_all_victims_go_the_last_one_after_the_others_and_then_all_members_are_bound(driver: Driver) -> None:
    for index in range(3):
        driver.node(f"n{index}", allocatable={"cpu": "1"})
        sized_pod(driver, f"low-{index}", index, node=f"n{index}")
    members = _members(driver, 3)
    told = driver.cycle()
    assert evictions(told) == ["low-0", "low-1"]
    conditions = each_of(told, PatchCondition)
    assert {one.pod.name for one in conditions} == {"w-0", "w-1", "w-2"}
    assert {one.nominated_node_name for one in conditions} == {"n0", "n1", "n2"}
    (attempt,) = each_of(told, Attempted)
    assert (attempt.tried_preemption, attempt.n_victims) == (True, 3)
    rest, places = settled(driver, told)
    assert rest == {"low-0", "low-1", "low-2"}
    assert sorted(places.values()) == ["n0", "n1", "n2"]
    assert set(places) == {one.name for one in members}
    assert not driver.state.nominated
    assert not driver.state.held_for_evictions


def test_the_report_of_a_group_names_its_most_important_victims(driver: Driver) -> None:
    driver.node("n0", allocatable={"cpu": "12"})
    for index in range(12):
        sized_pod(driver, f"low-{index}", index, node="n0")
    _members(driver, 12, priority=20)
    attempt = attempt_of(driver.cycle())
    assert attempt.n_victims == 12
    assert [name for _, name in attempt.victims] == [f"low-{index}" for index in range(11, 1, -1)]


def test_a_group_has_no_victims_where_all_are_deleted_and_not_yet_shown_to_end(driver: Driver) -> None:
    """A group of a higher priority wants the room that is made for the first one."""
    driver.node("n0", allocatable={"cpu": "1"})
    low = sized_pod(driver, "low", node="n0")
    _members(driver, 1)
    (order,) = each_of(driver.cycle(), EvictVictim)
    end_eviction(driver, order.preemptor, low)
    labels = {GROUP: "other", MIN_COUNT: "1"}
    sized_pod(driver, "o", 20, labels=labels)
    told = driver.cycle()
    attempt = attempt_of(told)
    assert (evictions(told), attempt.pod.name) == ([], "o")
    assert (attempt.tried_preemption, attempt.n_victims, attempt.victims) == (True, 0, ())


def test_a_member_beyond_the_minimum_evicts_as_any_pod_does_once_its_group_is_placed(driver: Driver) -> None:
    """Upstream's "gang schedules with workload-aware preemption": the group itself spares a pod."""
    driver.node("n0", allocatable={"cpu": "4"})
    for index in range(4):
        sized_pod(driver, f"low-{index}", node="n0")
    _members(driver, 4, n_needed=3)
    victims, places = settled(driver)
    assert sorted(victims) == [f"low-{index}" for index in range(4)]
    assert set(places) == {f"w-{index}" for index in range(4)}
    assert not driver.state.nominated


def test_a_member_that_comes_late_evicts_in_its_groups_domain_alone(driver: Driver) -> None:
    """A pod of lower priority in another rack is no victim: there the group's constraint refuses the member."""
    key = GroupKey(GroupKind.COSCHEDULING, "default", "mpi")
    driver.handle(PodGroupSeen(PodGroup(key, 1, Topology((RACK,)))))
    for rack in "ab":
        driver.node(rack, labels={RACK: rack}, allocatable={"cpu": "2"})
    labels = {COSCHEDULING_GROUP: "mpi"}
    sized_pod(driver, "rank-0", PRIORITY, labels=labels, node="a")
    sized_pod(driver, "low", 5, node="a")
    sized_pod(driver, "lower", 0, node="b", cpu="2")
    sized_pod(driver, "rank-1", PRIORITY, labels=labels)
    victims, places = settled(driver)
    assert (victims, places) == ({"low"}, {"rank-1": "a"})


def test_a_member_that_may_not_preempt_keeps_the_group_from_it(driver: Driver) -> None:
    driver.node("n0", allocatable={"cpu": "2"})
    sized_pod(driver, "low", node="n0", cpu="2")
    labels = {GROUP: "train", MIN_COUNT: "2"}
    for name, policy in (("w-0", "PreemptLowerPriority"), ("w-1", "Never")):
        sized_pod(driver, name, PRIORITY, labels=labels, spec={"preemptionPolicy": policy})
    told = driver.cycle()
    assert evictions(told) == []
    (text,) = {one.message for one in each_of(told, PatchCondition)}
    assert text.endswith(" preemption: not eligible due to preemptionPolicy=Never.")


def test_the_least_important_pods_go_wherever_they_are(driver: Driver) -> None:
    """Upstream's cases 15 and 20: another node has more of them, or a more important pod is in between."""
    driver.node("n0", allocatable={"cpu": "2"})
    driver.node("n1", allocatable={"cpu": "2"})
    sized_pod(driver, "very-low", 5, node="n1", cpu="2")
    sized_pod(driver, "low", 8, node="n0")
    _members(driver, 3)
    assert evictions(driver.cycle()) == ["very-low"]


def test_a_budget_protects_its_pods_where_others_do(driver: Driver) -> None:
    driver.node("n0", allocatable={"cpu": "3"})
    for index in range(3):
        app = "web" if index < 2 else "batch"
        sized_pod(driver, f"low-{index}", node="n0", labels={"app": app})
    driver.budget("web", selector("app=web"), 0)
    _members(driver, 1)
    assert evictions(driver.cycle()) == ["low-2"]


def test_a_group_waits_for_victims_that_still_end(driver: Driver) -> None:
    """After a restart: the server has the nominations, and a victim that ends."""
    driver.node("n0", allocatable={"cpu": "2"})
    driver.node("n1", allocatable={"cpu": "2"})
    low = sized_pod(driver, "low", node="n0", cpu="2")
    sized_pod(driver, "other", node="n1", cpu="2")
    driver.update(low, terminating=True, disruption="PreemptionByScheduler")
    _members(driver, 2, status={"nominatedNodeName": "n0"})
    told = driver.cycle()
    assert evictions(told) == []
    (text,) = {one.message for one in each_of(told, PatchCondition)}
    assert text.endswith("preemption: not eligible due to a terminating pod on the nominated node.")
    sized_pod(driver, "thief", 1, cpu="2")
    assert not each_of(driver.cycle(), Bind)
    driver.lose(low)
    driver.pass_time(20)
    assert set(settled(driver)[1]) == {"w-0", "w-1"}


def test_no_victim_is_deleted_once_the_group_fits_or_lost_a_member(driver: Driver) -> None:
    driver.node("n0", allocatable={"cpu": "2"})
    low = sized_pod(driver, "low", node="n0", cpu="2")
    members = _members(driver, 2)
    (order,) = each_of(driver.cycle(), EvictVictim)
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
    assert not driver.state.held_for_evictions


def test_no_victim_is_deleted_once_members_disagree(driver: Driver) -> None:
    driver.node("n0", allocatable={"cpu": "2"})
    low = sized_pod(driver, "low", node="n0", cpu="2")
    first, _ = _members(driver, 2)
    (order,) = each_of(driver.cycle(), EvictVictim)
    assert driver.needs_eviction(order.preemptor.uid, low.uid)
    labels = {**first.labels, MIN_COUNT: "1"}
    driver.pod(first.name, labels=labels, priority=PRIORITY, cpu="1")
    assert not driver.needs_eviction(order.preemptor.uid, low.uid)


@pytest.mark.parametrize(("n_waiting", "n_needed"), [(2, 2), (1, 3)], ids=["whole", "one is missing"])
def test_running_members_are_no_victims_of_their_own_group(
    driver: Driver, n_waiting: int, n_needed: int
) -> None:
    driver.node("n0", allocatable={"cpu": "2"})
    labels = {"app": "train", GROUP: "train", MIN_COUNT: str(n_needed)}
    for index in range(2):
        sized_pod(driver, f"old-{index}", 0, node="n0", labels=labels)
    _members(driver, n_waiting, n_needed=n_needed)
    assert evictions(driver.cycle()) == []


def test_a_group_for_which_pods_left_in_vain_is_nominated_no_more(driver: Driver) -> None:
    driver.node("n0", allocatable={"cpu": "2"})
    low = sized_pod(driver, "low", node="n0", cpu="2")
    _members(driver, 2)
    (order,) = each_of(driver.cycle(), EvictVictim)
    assert driver.state.nominated
    driver.node("n0", allocatable={"cpu": "2"}, unschedulable=True)
    end_eviction(driver, order.preemptor, low, VictimFate.SPARED)
    driver.pass_time(20)
    driver.queue.activate_each(("uid-default-w-0",), driver.now_s)
    texts = {one.message for one in each_of(driver.cycle(), PatchCondition)}
    assert len(texts) == 1
    assert texts.pop().endswith(
        " preemption: no pods of lower priority were found whose eviction makes room for all members."
    )
    assert not driver.state.nominated


def test_a_group_that_was_placed_once_stays_so_when_it_is_removed_for_a_search(driver: Driver) -> None:
    driver.node("n0", allocatable={"cpu": "2"})
    other = {GROUP: "other", MIN_COUNT: "2"}
    pods = [sized_pod(driver, f"o-{index}", 1, labels=other) for index in (0, 1)]
    places = binds(driver.cycle())
    for one in pods:
        driver.confirm(one, places[one.name])
    _members(driver, 3)
    told = driver.cycle()
    assert evictions(told) == []
    assert driver.state.groups.is_whole(GroupKey(GroupKind.OWN, "default", "other"), 2)


def test_in_a_large_cluster_the_pods_of_some_nodes_are_asked(driver: Driver) -> None:
    """More pods than a search removes: the nodes where it costs least make room, in one rack."""
    for index in range(120):
        driver.node(f"n{index}", labels={"rack": f"r{index // 12}"}, allocatable={"cpu": "10", "pods": "20"})
        for number in range(10):
            sized_pod(driver, f"p-{index}-{number}", 1 if index // 12 == 4 else 5, node=f"n{index}")
    for index in range(16):
        # They have the fewest pods, and take no member.
        driver.node(f"t{index}", labels={"rack": "r4"}, taints=["k=v:NoSchedule"])
        sized_pod(driver, f"t-{index}", 1, node=f"t{index}")
    near = affinity(required=[term("rack", selector("app=train"))])
    _members(driver, 8, affinity=near)
    victims, places = settled(driver)
    assert len(victims) == 8
    assert {int(name.split("-")[1]) // 12 for name in victims} == {4}
    assert len(places) == 8


def test_in_a_large_cluster_a_node_counts_for_as_many_members_as_its_number_of_pods_lets_in(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the crowded nodes, where evicting costs least, has cpu for all, and a place for one."""
    monkeypatch.setattr("scheduler.engine.core.group_clearings._MOST_LIFTED", 5)
    for index in range(2):
        driver.node(f"crowded-{index}", allocatable={"cpu": "10", "pods": "2"})
        sized_pod(driver, f"high-{index}", 20, cpu="0", node=f"crowded-{index}")
        sized_pod(driver, f"low-{index}", cpu="0", node=f"crowded-{index}")
    for index in range(4):
        driver.node(f"n{index}", allocatable={"cpu": "1", "pods": "9"})
        sized_pod(driver, f"p-{index}", 1, node=f"n{index}")
    _members(driver, 4)
    assert len(settled(driver)[1]) == 4


def test_for_a_large_group_pods_stay_beside_which_members_keep_their_nodes(driver: Driver) -> None:
    """The searches would take too many decisions; no node gives more pods than its members need."""
    for index in range(60):
        driver.node(f"n{index}", allocatable={"cpu": "4", "pods": "20"})
        for number in range(4):
            sized_pod(driver, f"p-{index}-{number}", number, node=f"n{index}")
    _members(driver, 101)
    victims, places = settled(driver)
    assert len(victims) == 101
    assert len(places) == 101


def test_for_a_large_group_a_pod_leaves_that_keeps_a_member_off_another_node(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.engine.core.group_preemption._MOST_DECISIONS", 0)
    for index, app in enumerate(("other", "")):
        driver.node(f"n{index}", labels={"rack": "r"}, allocatable={"cpu": "1"})
        sized_pod(driver, f"low-{index}", node=f"n{index}", labels={"app": app})
    apart = affinity(anti_required=[term("rack", selector("app=other"))])
    _members(driver, 1, affinity=apart)
    assert {name for _, name in attempt_of(driver.cycle()).victims} == {"low-0", "low-1"}


def test_for_a_large_group_a_pod_leaves_whose_rule_keeps_a_member_off_another_node(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.engine.core.group_preemption._MOST_DECISIONS", 0)
    apart = affinity(anti_required=[term("rack", selector("app=train"))])
    for index, rules in enumerate((apart, None)):
        closed = index == 0
        driver.node(f"n{index}", labels={"rack": "r"}, allocatable={"cpu": "1"}, unschedulable=closed)
        sized_pod(driver, f"low-{index}", node=f"n{index}", affinity=rules)
    _members(driver, 1)
    victims, places = settled(driver)
    assert (sorted(victims), list(places.values())) == (["low-0", "low-1"], ["n1"])

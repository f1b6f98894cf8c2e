"""
What a PodGroup says of preemption: its priority, and whether its members are evicted as a whole.

The cases are those of kubernetes 1.36, test/integration/scheduler/preemption, which depend on these two.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.instructions import EmitEvent, EvictVictim
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import EvictionEnded, PodGroupSeen, PodSeen, VictimFate
from tests.engine.core.preempting import settled
from tests.engine.core.test_group_search import Case, Chance
from tests.support.build import Json, affinity, pod, selector, spread, term
from tests.support.driving import NAME, Driver, binds, each_of

WHOLE = {"v1alpha2": "PodGroup", "v1beta1": {"all": {}}}
SINGLE = {"v1alpha2": "Pod", "v1beta1": {"single": {}}}
VERSIONS = pytest.mark.parametrize("version", ["v1alpha2", "v1beta1"])


def group_seen(
    name: str,
    n: int = 0,
    *,
    priority: int | None = None,
    mode: Any = None,
    version: str = "v1alpha2",
    **constraints: Json,
) -> PodGroupSeen:
    """Return the PodGroup of `n` members, of the basic policy for 0."""
    policy: Json = {"gang": {"minCount": n}} if n else {"basic": {}}
    spec = {"schedulingPolicy": policy, "priority": priority, "disruptionMode": mode, **constraints}
    document = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    return PodGroupSeen(KINDS[f"PodGroup.{version}.scheduling.k8s.io"].decode(json.dumps(document).encode()))


def member(name: str, group: str, priority: int, node: str | None = None) -> Json:
    """Return a pod of 1 cpu that names its PodGroup."""
    spec: Json = {"schedulerName": NAME, "priority": priority}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    return pod(name, cpu="1", node=node, spec=spec)


def show(driver: Driver, *pods: Json) -> list[Pod]:
    seen = [driver.decoded(each) for each in pods]
    for each in seen:
        driver.handle(PodSeen(each))
    return seen


@VERSIONS
@pytest.mark.parametrize("n", [3, 0], ids=["gang", "basic"])
def test_a_group_in_the_way_leaves_whole_though_one_member_would_do(driver: Driver, n: int, version: str):
    driver.node("n", allocatable={"cpu": "3"})
    driver.handle(group_seen("low", n, priority=10, mode=WHOLE[version], version=version))
    show(driver, *(member(f"low-{i}", "low", 10, "n") for i in range(3)))
    driver.handle(group_seen("high", 1, priority=100, version=version))
    show(driver, member("high-0", "high", 100))
    assert settled(driver) == ({"low-0", "low-1", "low-2"}, {"high-0": "n"})


@pytest.mark.parametrize("n_members", [1, 2])
@pytest.mark.parametrize(
    ("high", "low", "is_evicted"), [((10, 100), (100, 10), True), ((100, 10), (10, 100), False)]
)
def test_the_priorities_of_groups_count_not_those_of_their_pods(
    driver: Driver, high: tuple[int, int], low: tuple[int, int], n_members: int, *, is_evicted: bool
):
    """Each pair: the priority of the pods, then of the group. A group of one is placed as a pod is."""
    driver.node("n", allocatable={"cpu": "2"})
    driver.handle(group_seen("low", 2, priority=low[1], mode="PodGroup"))
    show(driver, *(member(f"low-{i}", "low", low[0], "n") for i in range(2)))
    driver.handle(group_seen("high", n_members, priority=high[1]))
    show(driver, *(member(f"high-{i}", "high", high[0]) for i in range(n_members)))
    victims, bound = settled(driver)
    assert victims == ({"low-0", "low-1"} if is_evicted else set())
    assert len(bound) == (n_members if is_evicted else 0)


@pytest.mark.parametrize(("version", "priority", "n_victims"), [("v1alpha2", 20, 0), ("v1beta1", 20, 1)])
def test_members_that_leave_one_by_one_have_their_group_s_priority_from_1_37(
    driver: Driver, version: str, priority: int, n_victims: int
):
    driver.node("n", allocatable={"cpu": "3"})
    driver.handle(group_seen("low", 3, priority=10, mode=SINGLE[version], version=version))
    show(driver, *(member(f"low-{i}", "low", 30, "n") for i in range(3)))
    show(driver, member("p", "", priority))
    victims, bound = settled(driver)
    assert (len(victims), len(bound)) == (n_victims, n_victims)


def test_in_1_36_a_pod_evicts_the_members_of_lower_priority_than_its_own(driver: Driver):
    driver.node("n", allocatable={"cpu": "3"})
    driver.handle(group_seen("low", 3, priority=10))
    show(driver, *(member(f"low-{n}", "low", n, "n") for n in (10, 20, 30)))
    show(driver, member("p", "", 25))
    assert settled(driver) == ({"low-10"}, {"p": "n"})


def test_a_single_pod_is_evicted_before_a_whole_group_of_its_priority(driver: Driver):
    for name in "ab":
        driver.node(name, allocatable={"cpu": "2"})
    driver.handle(group_seen("low", 2, priority=10, mode="PodGroup"))
    show(driver, *(member(f"low-{name}", "low", 10, name) for name in "ab"))
    show(driver, *(member(f"single-{name}", "", 10, name) for name in "ab"))
    driver.handle(group_seen("high", 2, priority=100))
    show(driver, *(member(f"high-{i}", "high", 100) for i in range(2)))
    assert settled(driver)[0] == {"single-a", "single-b"}


def test_members_follow_once_one_is_evicted_though_the_pod_has_room_or_is_gone(driver: Driver):
    driver.node("n", allocatable={"cpu": "3"})
    driver.handle(group_seen("low", 3, priority=10, mode="PodGroup"))
    show(driver, *(member(f"low-{i}", "low", 10, "n") for i in range(3)))
    (preemptor,) = show(driver, member("p", "", 100))
    first = each_of(driver.cycle(), EvictVictim)
    assert len(first) == 2
    driver.carry_out(first[0])
    driver.node("other", allocatable={"cpu": "1"})
    driver.lose(preemptor)
    (last,) = driver.carry_out(first[1])
    driver.carry_out(last)
    assert last.victim.group is not None
    assert not driver.state.groups.is_being_evicted(last.victim.group.key)


@pytest.mark.parametrize(
    ("n_members", "mode"),
    [
        pytest.param(2, "PodGroup", id="none of the others leaves yet"),
        pytest.param(3, "Pod", id="the others leave for themselves"),
    ],
)
def test_no_member_is_evicted_for_a_pod_that_is_gone_where_it_follows_nobody(
    driver: Driver, n_members: int, mode: str
) -> None:
    driver.node("n", allocatable={"cpu": str(n_members)})
    driver.handle(group_seen("low", n_members, priority=10, mode=mode))
    show(driver, *(member(f"low-{i}", "low", 10, "n") for i in range(n_members)))
    (preemptor,) = show(driver, pod("p", cpu=str(n_members), spec={"schedulerName": NAME, "priority": 100}))
    begun = [each.victim for each in each_of(driver.cycle(), EvictVictim)]
    assert len(begun) == n_members - 1
    driver.lose(preemptor)
    assert not any(driver.needs_eviction(preemptor.uid, victim.uid) for victim in begun)


def check_units(seed: int) -> int:
    """Compare one drawn case with brute force; return the number of victims."""
    chance = Chance(seed)
    nodes = [chance.node(index) for index in range(chance.choice((2, 3)))]
    case, running, unit_of = Case(nodes, []), dict[str, Json](), dict[str, str]()
    priorities = {name: chance.choice((0, 5, 10, 20)) for name in ("u", "v")}
    for name, priority in priorities.items():
        case.driver.handle(group_seen(name, 2, priority=priority, mode="PodGroup"))
    for index in range(chance.choice((2, 3, 4, 5))):
        name, group = f"r{index}", chance.choice(("u", "u", "v", "", ""))
        running[name] = member(
            name, group, chance.choice((0, 5, 10, 20)), chance.choice(nodes)["metadata"]["name"]
        )
        unit_of[name] = group or name
        case.show(running[name])
    own = {name: one["spec"]["priority"] for name, one in running.items()}
    rank = {unit: priorities.get(unit, own.get(unit, 0)) for unit in unit_of.values()}
    case.show(incoming := member("p", "", 10))

    def fits_without(units: set[str]) -> bool:
        for name, one in running.items():
            if unit_of[name] in units:
                case.reference.delete("Pod", "default", name)
            else:
                case.reference.apply(one)
        return bool(case.reference.evaluate(incoming).get("feasible"))

    lower = {unit for unit, priority in rank.items() if priority < 10}
    could = fits_without(lower) and not fits_without(set())
    victims, bound = settled(case.driver)
    units = {unit_of[name] for name in victims}
    assert victims == {name for name, unit in unit_of.items() if unit in units}, seed
    assert units <= lower, (seed, units)
    assert bool(units) == could, (seed, units, could)
    assert not units or (fits_without(units) and bound), seed
    for unit in units:
        assert not fits_without(units - {unit}), (seed, unit)
    case.driver.audit()
    return len(victims)


def test_groups_leave_whole_only_for_higher_priorities_and_none_in_vain():
    assert sum(check_units(seed) > 1 for seed in range(150)) > 5


@pytest.mark.parametrize(
    ("labels", "rules"),
    [
        ({"app": "web"}, {"spread": [spread("rack", selector("app=web"))]}),
        ({}, {"affinity": affinity(required=[term("zone", selector("app=web"))])}),
    ],
    ids=["its rack would be the emptiest", "it is the one to be near to"],
)
@pytest.mark.parametrize("mode", ["PodGroup", "Pod"])
def test_no_group_is_evicted_whole_for_a_pod_that_needs_its_member_on_another_node(
    driver: Driver, mode: str, labels: dict[str, str], rules: Json
) -> None:
    for name, cpu in (("a", "2"), ("b", "1")):
        driver.node(name, labels={"rack": name, "zone": "z"}, allocatable={"cpu": cpu})
    driver.handle(group_seen("low", 2, mode=mode))
    for name in "ab":
        made = member(f"low-{name}", "low", 0, name)
        made["metadata"]["labels"] = {"app": "web"}
        show(driver, made)
    driver.pod("stays", labels=labels, node="a", priority=100)
    driver.pod("p", cpu="2", priority=10, labels=labels, **rules)
    victims, bound = settled(driver)
    assert (victims, bound) == ((set(), {}) if mode == "PodGroup" else ({"low-a"}, {"p": "a"}))


@VERSIONS
def test_a_group_that_is_half_evicted_goes_though_another_group_looked_for_room(
    driver: Driver, version: str
) -> None:
    """The search for room took the last member away for its time, and with it the note that the others were evicted."""
    for index in range(2):
        driver.node(f"n{index}", allocatable={"cpu": "1", "pods": "10"})
    driver.handle(group_seen("whole", 2, priority=0, mode=WHOLE[version], version=version))
    show(driver, member("v0", "whole", 0, node="n0"), member("v1", "whole", 0, node="n1"))
    (lone,) = show(driver, member("lone", "", 5))
    (first,) = each_of(driver.cycle(), EvictVictim)
    told = driver.handle(EvictionEnded(lone.uid, first.victim.uid, VictimFate.DELETED))
    (last,) = each_of(told, EvictVictim)
    driver.lose(first.victim)
    driver.lose(lone)
    driver.handle(group_seen("other", 3, priority=5, version=version))
    show(driver, *(member(f"o{index}", "other", 5) for index in range(3)))
    driver.cycle()
    assert driver.needs_eviction(lone.uid, last.victim.uid)


def test_members_that_their_group_ranks_above_nominated_pods_give_way_to_them_nevertheless(driver: Driver):
    """Their own priority is lower: they take turns no more than pods of their own priority would."""
    driver.node("n", allocatable={"cpu": "1"})
    driver.handle(group_seen("g", priority=9, version="v1beta1"))
    driver.pod("low", cpu="1", priority=5, node="n")
    show(driver, member("a", "g", 0), member("b", "g", 0))
    evictions = [eviction for _ in range(2) for eviction in each_of(driver.cycle(), EvictVictim)]
    assert [eviction.victim.name for eviction in evictions] == ["low"]
    (eviction,) = evictions
    assert driver.needs_eviction(eviction.preemptor.uid, eviction.victim.uid)


def test_a_gang_that_takes_the_node_of_a_nominated_pod_is_held_until_its_victims_end(driver: Driver):
    """Its first member may evict the pod, its other one may not: it does not choose its victims again meanwhile."""
    driver.node("n", allocatable={"cpu": "3"})
    driver.handle(group_seen("g", 2, priority=9))
    driver.pod("low", cpu="3", priority=1, node="n")
    driver.pod("mid", cpu="1", priority=5)
    assert [eviction.preemptor.name for eviction in each_of(driver.cycle(), EvictVictim)] == ["mid"]
    show(driver, member("top", "g", 9), member("small", "g", 0))
    driver.cycle()
    assert {"uid-default-top", "uid-default-small"} <= set(driver.state.held_for_evictions)
    assert not driver.machine.has_work()


@pytest.mark.parametrize(
    "constraints", [{}, {"topology": [{"key": "rack"}]}], ids=["anywhere", "in one rack"]
)
def test_a_member_is_not_tried_with_a_new_one_while_pods_are_evicted_for_it(
    driver: Driver, constraints: Json
) -> None:
    """It would lose its nomination, and the room that is made."""
    driver.node("n", labels={"rack": "r"}, allocatable={"cpu": "3"})
    driver.handle(group_seen("g", 2, schedulingConstraints=constraints))
    show(driver, *(member(f"on-{i}", "g", 9, "n") for i in range(2)))
    driver.pod("low", cpu="1", node="n")
    (waiting,) = show(driver, member("more", "g", 9))
    driver.cycles()
    assert driver.state.nominated.node_of(waiting.uid) == "n"
    show(driver, member("another", "g", 0))
    driver.cycles()
    assert driver.state.nominated.node_of(waiting.uid) == "n"


def test_a_new_member_of_a_gang_waits_without_a_word_while_pods_are_evicted_for_the_others(
    driver: Driver,
) -> None:
    driver.node("n", allocatable={"cpu": "3"})
    driver.handle(group_seen("g", 2, priority=9))
    low = driver.pod("low", cpu="3", node="n")
    show(driver, *(member(f"m{i}", "g", 9) for i in range(2)))
    (eviction,) = each_of(driver.cycles(), EvictVictim)
    show(driver, member("m2", "g", 9))
    assert driver.cycles() == []
    driver.handle(EvictionEnded(eviction.preemptor.uid, low.uid, VictimFate.DELETED))
    driver.lose(low)
    driver.pass_time(20)
    assert len(binds(driver.cycles())) == 3


def test_a_member_beyond_the_minimum_evicts_no_second_pod_while_the_first_ends(driver: Driver) -> None:
    driver.node("n", allocatable={"cpu": "3"})
    driver.handle(group_seen("g", 2))
    show(driver, *(member(f"on-{i}", "g", 9, "n") for i in range(2)))
    low = driver.pod("low", cpu="1", node="n")
    show(driver, member("more", "g", 9))
    (eviction,) = each_of(driver.cycles(), EvictVictim)
    driver.handle(EvictionEnded(eviction.preemptor.uid, low.uid, VictimFate.DELETED))
    driver.update(low, terminating=True, disruption="PreemptionByScheduler")
    driver.node("m", allocatable={"cpu": "1"})
    driver.pod("lower", cpu="1", node="m", priority=-5)
    driver.pass_time(20)
    assert not each_of(driver.cycles(), EvictVictim)
    assert driver.state.nominated.node_of(eviction.preemptor.uid) == "n"


@VERSIONS
@pytest.mark.parametrize("modes", [WHOLE, SINGLE], ids=["whole", "single"])
def test_no_member_is_evicted_for_one_like_it_that_the_group_is_placed_without(
    driver: Driver, version: str, modes: dict[str, Any]
) -> None:
    """Though the priority of their group is higher than theirs: the next one would be evicted for it, without end."""
    driver.node("n", allocatable={"cpu": "3"})
    driver.handle(group_seen("g", 2, priority=9, mode=modes[version], version=version))
    priority = 5 if version == "v1alpha2" else 9
    show(driver, *(member(f"on-{i}", "g", priority, "n") for i in range(2)))
    driver.pod("low", cpu="1", node="n", priority=priority)
    show(driver, *(member(f"more-{i}", "g", priority) for i in range(2)))
    evicted = [eviction.victim.name for eviction in each_of(driver.cycles(), EvictVictim)]
    assert evicted == (["low"] if version == "v1alpha2" else [])


@pytest.mark.parametrize("days", [(1, 4, 2, 3), (4, 1, 2, 3)])
def test_the_node_whose_earliest_important_victim_started_last_is_chosen(days: tuple[int, ...]) -> None:
    """In whichever order a group's members were shown (upstream: GetEarliestPodStartTime)."""
    driver = Driver()
    for node in ("x", "y"):
        driver.node(node, allocatable={"cpu": "2"})
        driver.handle(group_seen(f"g{node}", priority=0, mode={"all": {}}, version="v1beta1"))
    for node, day in zip("xxyy", days, strict=True):
        made = member(f"m{day}", f"g{node}", 0, node)
        made["status"]["startTime"] = f"2026-01-0{day}T00:00:00Z"
        show(driver, made)
    driver.pod("high", cpu="2", priority=9)
    assert {eviction.victim.node_name for eviction in each_of(driver.cycle(), EvictVictim)} == {"y"}


@pytest.mark.parametrize("n_more", [0, 2], ids=["too few exist", "the others have no room"])
def test_a_group_that_needs_more_than_when_it_was_placed_has_lost_no_members(
    driver: Driver, n_more: int
) -> None:
    driver.node("n", allocatable={"cpu": "2"})
    driver.handle(group_seen("g", 2, version="v1beta1"))
    pods = show(driver, *(member(f"m{i}", "g", 0) for i in range(2)))
    driver.cycles()
    for each in pods:
        driver.confirm(each, "n")
    driver.handle(group_seen("g", 4, version="v1beta1"))
    show(driver, *(member(f"more-{i}", "g", 0) for i in range(n_more)))

    def n_told() -> int:
        return [each.reason for each in each_of(driver.live(60), EmitEvent)].count("PodGroupNotWhole")

    assert n_told() == 0
    driver.lose(pods[0])
    assert n_told() == 1

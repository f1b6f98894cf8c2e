"""Groups in the machine: all members are placed by one decision, or none is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from scheduler.daemon.settings.loading import parse_settings
from scheduler.engine.core.group_nominations import HOLD_FOR_S
from scheduler.engine.model.annotations import AFFINITY
from scheduler.engine.model.group_topology import PART, REQUIRED_TOPOLOGY
from scheduler.engine.model.instructions import (
    EmitEvent,
    EvictVictim,
    GroupAttempted,
    Instruction,
    PatchCondition,
)
from scheduler.engine.model.pod_groups import (
    COSCHEDULING_GROUP,
    GROUP,
    MIN_COUNT,
    GroupKey,
    GroupKind,
    GroupReference,
    PodGroup,
)
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import PodGroupGone, PodGroupSeen, PodGroupsServed, PodSeen, TimePassed
from tests.support.build import Json, affinity, container, selector, spread, term
from tests.support.daemon import profiles
from tests.support.driving import NAME, Driver, attempt_of, binds, conditions, each_of, settings_of

RACK = "rack"
HOSTNAME = "kubernetes.io/hostname"
OTHER = GroupKey(GroupKind.OWN, "default", "other")
OTHER_PODGROUP = GroupKey(GroupKind.COSCHEDULING, "default", "other")


def racks(driver: Driver, **n_cpus: int) -> None:
    """Create nodes of one cpu: `n_cpus` by rack."""
    for rack, n_nodes in n_cpus.items():
        for index in range(n_nodes):
            driver.node(f"{rack}-{index}", labels={RACK: rack}, allocatable={"cpu": "1"})


def member(driver: Driver, name: str, group: str = "train", n: int = 8, cpu: str = "1", **more: Any) -> Pod:
    labels = {"app": group, GROUP: group, MIN_COUNT: str(n), **more.pop("labels", {})}
    return driver.pod(name, labels=labels, cpu=cpu, **more)


def together(app: str = "train", key: str = RACK) -> Json:
    return affinity(required=[term(key, selector(f"app={app}"))])


def workers(
    driver: Driver, n_pods: int, n_needed: int = 0, name: str = "w", first: int = 0, **more: Any
) -> list[Pod]:
    needed = n_needed or n_pods
    return [member(driver, f"{name}-{index}", n=needed, **more) for index in range(first, first + n_pods)]


def test_members_wait_until_as_many_exist_as_the_group_needs(driver: Driver) -> None:
    racks(driver, a=4)
    for index in range(2):
        member(driver, f"w-{index}", n=3)
        assert not driver.machine.has_work()
    member(driver, "w-2", n=3)
    assert len(binds(driver.cycle())) == 3
    assert not driver.machine.has_work()


def test_a_group_takes_the_tightest_rack_with_room_for_all(driver: Driver) -> None:
    racks(driver, a=3, b=9, c=8)
    workers(driver, 8, affinity=together())
    nodes = binds(driver.cycle())
    assert len(nodes) == 8
    assert {node.partition("-")[0] for node in nodes.values()} == {"c"}


def test_no_member_is_placed_if_no_rack_has_room_for_all(driver: Driver) -> None:
    racks(driver, a=5, b=6, c=2, d=1)
    workers(driver, 8, affinity=together())
    told = driver.cycle()
    assert binds(told) == {}
    text = (
        "pod group default/train needs 8 places in one rack: b has room for 6, a has room for 5, 2 others for at"
        " most 2; the next, w-6 in b: 0/6 nodes are available: 6 Insufficient cpu."
    )
    assert conditions(told) == {f"w-{index}": text for index in range(8)}
    assert attempt_of(told).n_victims == 0
    assert len(driver.state.placed) == 0
    assert not driver.queue.depths()["active"]


def test_a_member_is_bound_after_the_one_that_it_needs_on_its_node(driver: Driver) -> None:
    """A process that dies between two binds leaves none on a node without the other, which may go elsewhere then."""
    driver.node("a-0", labels={RACK: "a"}, allocatable={"cpu": "1"})
    driver.node("a-1", labels={RACK: "a"}, allocatable={"cpu": "2"})
    member(driver, "follower", n=3, labels={"app": "follower"}, affinity=together("web", HOSTNAME))
    workers(driver, 2, n_needed=3, name="web", labels={"app": "web"}, affinity=together("web", RACK))
    nodes = binds(driver.cycle())
    bound = list(nodes)
    web = next(name for name in bound if name != "follower" and nodes[name] == "a-1")
    assert nodes["follower"] == "a-1"
    assert bound.index(web) < bound.index("follower")


def test_a_member_of_a_part_is_bound_after_the_one_of_another_part_that_it_needs(driver: Driver) -> None:
    racks(driver, a=4)
    for name, near in (("follower", together("web")), ("web", None)):
        for index in range(2):
            labels = {"app": name, PART: name}
            member(driver, f"{name}-{index}", n=4, labels=labels, affinity=near)
    bound = list(binds(driver.cycle()))
    assert len(bound) == 4
    assert bound[0].startswith("web")


def test_a_failed_bind_is_retried_on_its_own(driver: Driver) -> None:
    racks(driver, a=3, b=3)
    pods = workers(driver, 3, affinity=together())
    nodes = binds(driver.cycle())
    for pod in pods[:2]:
        driver.confirm(pod, nodes[pod.name])
    driver.fail_bind(pods[2], "etcdserver: request timed out")
    driver.pass_time(2.0)
    again = binds(driver.cycle())
    assert list(again) == ["w-2"]
    assert again["w-2"].partition("-")[0] == nodes["w-0"].partition("-")[0]


def test_a_group_of_which_every_bind_failed_is_not_whole(driver: Driver) -> None:
    racks(driver, a=3)
    pods = workers(driver, 3)
    assert len(binds(driver.cycle())) == 3
    for pod in pods:
        driver.fail_bind(pod, "etcdserver: request timed out")
    for pod in pods[:2]:
        driver.lose(pod)
    driver.pass_time(15.0)
    assert binds(driver.cycles()) == {}
    workers(driver, 2, n_needed=3, first=3)
    assert set(binds(driver.cycles())) == {"w-2", "w-3", "w-4"}


def test_a_group_far_larger_than_its_minimum_is_placed_in_several_cycles(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.engine.core.group_cycle.MOST_AT_ONCE", 3)
    racks(driver, a=7)
    workers(driver, 8, n_needed=1)
    assert [len(binds(driver.cycle())) for _ in range(3)] == [3, 3, 1]
    assert attempt_of(driver.cycle()).message.startswith("0/7 nodes are available: 7 Insufficient cpu.")
    assert not driver.machine.has_work()


def test_members_of_a_large_group_that_wait_for_no_event_go_first(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.engine.core.group_cycle.MOST_AT_ONCE", 3)
    racks(driver, a=4)
    in_one_rack: Any = {"annotations": {REQUIRED_TOPOLOGY: RACK}}
    workers(driver, 3, n_needed=1, name="large", cpu="2", **in_one_rack)
    assert binds(driver.cycles()) == {}
    workers(driver, 4, n_needed=1, name="small", **in_one_rack)
    assert set(binds(driver.cycle())) == {"small-0", "small-1", "small-2"}


@pytest.mark.parametrize(
    ("min_member", "text"),
    [
        (5_001, "pod group default/mpi needs 5001 members, expected 1 to 5000"),
        (5_000, "pod group default/mpi waits until 5000 of its pods exist that may be placed (minMember)"),
    ],
)
def test_a_podgroup_that_needs_more_members_than_any_may_is_told(
    driver: Driver, min_member: int, text: str
) -> None:
    racks(driver, a=3)
    key = GroupKey(GroupKind.COSCHEDULING, "default", "mpi")
    driver.handle(PodGroupSeen(PodGroup(key, 2)))
    for index in range(2):
        driver.pod(f"rank-{index}", labels={COSCHEDULING_GROUP: "mpi"})
    driver.handle(PodGroupSeen(PodGroup(key, min_member)))
    assert set(conditions(driver.cycles()).values()) == {text}


def test_a_hopeless_search_of_members_with_many_terms_ends_sooner(driver: Driver) -> None:
    """Members apart by rack, of which there are too few; each is of its own kind."""
    racks(driver, a=1, b=1, c=1)
    apart = term(RACK, selector("app=train"))
    for index in range(4):
        preferred = [(1, term(RACK, selector(f"n{index}={one}"))) for one in range(64)]
        member(
            driver, f"w-{index}", n=4, cpu="0", affinity=affinity(anti_required=[apart], preferred=preferred)
        )
    attempts = each_of(driver.cycle(), GroupAttempted)
    assert 0 < attempts[0].n_decisions < 100


def test_a_group_with_more_members_than_a_rack_has_room_for_is_not_searched_on(driver: Driver) -> None:
    """Each way to place members of several kinds would be tried, and the search end early."""
    racks(driver, a=10, b=10)
    level = {REQUIRED_TOPOLOGY: RACK}
    workers(driver, 12, n_needed=13, annotations=level)
    member(driver, "small", n=13, cpu="900m", annotations=level)
    told = driver.cycle()
    assert binds(told) == {}
    assert [one.n_decisions < 100 for one in each_of(told, GroupAttempted)] == [True]


def test_a_member_beyond_the_minimum_without_a_place_ends_the_attempt_of_its_group(driver: Driver) -> None:
    racks(driver, a=2)
    for pod, node in zip(workers(driver, 2), binds(driver.cycle()).values(), strict=True):
        driver.confirm(pod, node)
    member(driver, "w-2", n=2)
    told = driver.cycle()
    assert [one.result for one in each_of(told, GroupAttempted)] == ["unschedulable"]
    assert each_of(told, PatchCondition) == []


def test_a_restart_between_two_binds_places_the_rest_beside_the_first(driver: Driver) -> None:
    racks(driver, a=3, b=4)
    member(driver, "w-0", n=3, affinity=together(), node="a-0")
    workers(driver, 2, n_needed=3, first=1, affinity=together())
    nodes = binds(driver.cycles())
    assert {node.partition("-")[0] for node in nodes.values()} == {"a"}
    assert len(nodes) == 2


def test_a_surplus_member_is_tried_and_waits_as_any_pod(driver: Driver) -> None:
    racks(driver, a=3)
    workers(driver, 4, n_needed=3, gates=("hold",))
    workers(driver, 4, n_needed=3)
    told = driver.cycles()
    assert len(binds(told)) == 3
    (text,) = conditions(told).values()
    assert text.startswith(
        "0/3 nodes are available: 3 Insufficient cpu. no new claims to deallocate, preemption: "
    )


def test_a_small_group_is_not_held_up_by_a_large_one(driver: Driver) -> None:
    racks(driver, a=3)
    workers(driver, 5, name="l", group="large")
    workers(driver, 3, name="s", group="small")
    assert set(binds(driver.cycles())) == {"s-0", "s-1", "s-2"}


def test_a_group_is_tried_by_the_priority_of_its_lowest_member(driver: Driver) -> None:
    racks(driver, a=2)
    member(driver, "high", group="mixed", n=2, priority=100)
    member(driver, "low", group="mixed", n=2, priority=1)
    driver.pod("single", priority=50, cpu="1")
    told = driver.cycle()
    assert list(binds(told)) == ["single"]


def test_a_group_that_stays_incomplete_is_told_once(driver: Driver) -> None:
    racks(driver, a=3)
    member(driver, "w-0", n=3)
    driver.now_s += 6
    told = driver.handle(TimePassed())
    text = "pod group default/train waits until 3 of its pods exist that may be placed (minCount)"
    assert conditions(told) == {"w-0": text}
    assert driver.handle(TimePassed()) == []
    workers(driver, 2, n_needed=3, first=1)
    assert len(binds(driver.cycles())) == 3


def test_a_member_without_a_podgroup_is_told_which_one_it_waits_for(driver: Driver) -> None:
    driver.handle(PodGroupSeen(PodGroup(OTHER_PODGROUP, 2)))
    driver.pod("rank-0", labels={COSCHEDULING_GROUP: "mpi"})
    driver.now_s += 6
    text = "pod group default/mpi waits: there is no PodGroup mpi of scheduling.x-k8s.io"
    assert conditions(driver.handle(TimePassed())) == {"rank-0": text}


def test_members_of_groups_of_a_kind_that_there_is_no_more_are_pods_like_any_other(driver: Driver) -> None:
    """As after a restart: the definition of their PodGroup was deleted, and every PodGroup with it."""
    racks(driver, a=3)
    key = GroupKey(GroupKind.COSCHEDULING, "default", "mpi")
    driver.handle(PodGroupSeen(PodGroup(key, 2)))
    driver.pod("rank-0", labels={COSCHEDULING_GROUP: "mpi"})
    assert binds(driver.cycles()) == {}
    driver.handle(PodGroupGone(key))
    assert binds(driver.cycles()) == {}
    driver.handle(PodGroupsServed(GroupKind.COSCHEDULING, is_served=False))
    assert set(binds(driver.cycles())) == {"rank-0"}


def relabelled(driver: Driver, pod: Pod, **labels: str) -> Pod:
    """Return the pod as a watch shows it after a user changed its labels."""
    return driver.pod(pod.name, labels=labels, cpu="1")


def test_a_member_that_leaves_its_group_is_placed_on_its_own(driver: Driver) -> None:
    racks(driver, a=4)
    first = member(driver, "w-0", n=3)
    member(driver, "w-1", n=3)
    relabelled(driver, first, app="train")
    assert list(binds(driver.cycles())) == ["w-0"]
    member(driver, "w-2", n=3)
    assert binds(driver.cycles()) == {}
    member(driver, "w-3", n=3)
    assert set(binds(driver.cycles())) == {"w-1", "w-2", "w-3"}


def test_a_member_that_leaves_its_group_has_its_turn_by_its_own_priority(driver: Driver) -> None:
    racks(driver, a=1)
    first = member(driver, "w-0", n=2, priority=5)
    member(driver, "w-1", n=2, priority=0)
    driver.pod("other", priority=3, cpu="1")
    left = replace(first, labels={}, group=None, resource_version=driver.next_version())
    driver.handle(PodSeen(left))
    assert list(binds(driver.cycle())) == ["w-0"]


def test_a_member_that_waits_is_not_tried_because_its_status_changes(driver: Driver) -> None:
    racks(driver, a=1)
    first, _ = workers(driver, 2)
    driver.cycles()
    driver.pass_time(60.0)
    driver.update(first)
    assert not driver.machine.has_work()


def test_a_member_that_joins_another_group_completes_it(driver: Driver) -> None:
    racks(driver, a=4)
    first = member(driver, "w-0", n=3)
    member(driver, "o-0", group="other", n=2)
    relabelled(driver, first, **{GROUP: "other", MIN_COUNT: "2"})
    assert set(binds(driver.cycles())) == {"w-0", "o-0"}


def test_a_member_that_is_bound_under_another_name_of_its_group_is_kept_once(driver: Driver) -> None:
    """Its labels were changed while it was bound."""
    racks(driver, a=4)
    pods = workers(driver, 2)
    nodes = binds(driver.cycle())
    for pod in pods:
        labels = {GROUP: "other", MIN_COUNT: "2"}
        driver.confirm(replace(pod, labels=labels, group=GroupReference(OTHER, 2)), nodes[pod.name])
    groups = driver.state.groups
    assert groups.listed() == [OTHER]
    assert not list(groups.pending(OTHER))


@pytest.mark.parametrize("n_pods", [2, 3], ids=["incomplete", "without places"])
def test_a_group_is_tried_again_once_it_needs_fewer(driver: Driver, n_pods: int) -> None:
    racks(driver, a=2)
    pods = workers(driver, n_pods, n_needed=3)
    assert binds(driver.cycles()) == {}
    for pod in pods:
        relabelled(driver, pod, **{GROUP: "train", MIN_COUNT: "2"})
    driver.pass_time(10.0)
    assert len(binds(driver.cycles())) == 2


@pytest.mark.parametrize("is_anew", [False, True], ids=["changed", "created anew"])
def test_a_group_without_places_is_tried_again_once_its_podgroup_asks_for_fewer(
    driver: Driver, *, is_anew: bool
) -> None:
    racks(driver, b=1)
    key = GroupKey(GroupKind.COSCHEDULING, "default", "mpi")
    driver.handle(PodGroupSeen(PodGroup(key, 2)))
    near = affinity(required=[term(RACK, selector(f"{COSCHEDULING_GROUP}=mpi"))])
    for index in range(2):
        driver.pod(f"rank-{index}", labels={COSCHEDULING_GROUP: "mpi"}, cpu="800m", affinity=near)
    assert binds(driver.cycles()) == {}
    if is_anew:
        driver.handle(PodGroupGone(key))
    driver.handle(PodGroupSeen(PodGroup(key, 1)))
    driver.pass_time(10.0)
    assert len(binds(driver.cycles())) == 1


@pytest.mark.parametrize("waits_s", [0, 6], ids=["at once", "after it was told"])
def test_a_group_is_placed_whose_podgroup_asks_for_no_more_than_exist(driver: Driver, waits_s: int) -> None:
    racks(driver, a=2)
    key = GroupKey(GroupKind.COSCHEDULING, "default", "mpi")
    driver.handle(PodGroupSeen(PodGroup(key, 3)))
    for index in range(2):
        driver.pod(f"rank-{index}", labels={COSCHEDULING_GROUP: "mpi"})
    driver.pass_time(waits_s)
    driver.handle(PodGroupSeen(PodGroup(key, 2)))
    assert binds(driver.cycles()).keys() == {"rank-0", "rank-1"}


def test_a_malformed_member_is_none_of_the_group_that_the_others_name(driver: Driver) -> None:
    racks(driver, a=4)
    driver.pod("odd", annotations={GROUP: "train", MIN_COUNT: "0"})
    workers(driver, 2)
    assert set(binds(driver.cycles())) == {"w-0", "w-1"}


def test_members_that_need_each_other_are_placed_where_most_fit_without_one_that_fits_nowhere(
    driver: Driver,
) -> None:
    """The node of rack a is the emptiest."""
    driver.node("a-0", labels={RACK: "a"}, allocatable={"cpu": "2"})
    racks(driver, b=3)
    member(driver, "large", n=1, cpu="4", affinity=together())
    workers(driver, 3, n_needed=1, name="small", affinity=together())
    nodes = binds(driver.cycle())
    assert nodes.keys() == {"small-0", "small-1", "small-2"}
    assert {node.partition("-")[0] for node in nodes.values()} == {"b"}


def test_a_group_without_nodes_is_tried_again_by_backoff(driver: Driver) -> None:
    workers(driver, 2)
    told = driver.cycle()
    assert conditions(told)["w-0"] == "pod group default/train: no nodes available to schedule pods"
    assert not driver.machine.has_work()
    racks(driver, a=2)
    driver.pass_time(2.0)
    assert len(binds(driver.cycles())) == 2


def test_the_search_says_that_it_ended_early() -> None:
    """Two kinds, each of which fits alone, but not both: nothing cheaper than trying all would prove that."""
    driver = Driver(settings=settings_of("GangScheduling", maxSearchDecisions=3))
    for index in range(4):
        driver.node(f"n-{index}", allocatable={"cpu": "3"})
    workers(driver, 4, n_needed=8, name="l", cpu="2")
    workers(driver, 4, n_needed=8, name="m", cpu="1500m")
    text = conditions(driver.cycle())["l-0"]
    assert text.endswith(" The search ended after 3 decisions (maxSearchDecisions); there may be places.")
    driver.audit()


def test_members_of_two_profiles_are_refused() -> None:
    both = profiles({"schedulerName": NAME}, {"schedulerName": "other"})
    driver = Driver(settings=parse_settings(both, "test"))
    racks(driver, a=2)
    member(driver, "w-0", n=2)
    member(driver, "w-1", n=2, scheduler="other")
    text = conditions(driver.cycle())["w-0"]
    assert "all pods in a single pod group should have the same .spec.schedulerName set" in text


def _corner(driver: Driver) -> None:
    """Create nodes for two members in three, of which one has a domain in common with each other node."""
    for rack, zone in ("cy", "cx", "ax"):
        labels = {RACK: rack, "zone": zone}
        driver.node(f"{rack}-{zone}", labels=labels, allocatable={"cpu": "2" if rack == "c" else "1"})


@pytest.mark.parametrize("apart", [False, True], ids=["spread", "apart"])
def test_members_are_spread_over_racks_and_zones_where_not_every_first_node_leaves_room_for_the_next(
    driver: Driver, *, apart: bool
) -> None:
    """On node c-x one member keeps out all others."""
    _corner(driver)
    train = selector("app=train")
    rules: Json = {"spread": [spread(RACK, train)]}
    if apart:
        rules["affinity"] = affinity(anti_required=[term("zone", train)])
    else:
        rules["spread"].append(spread("zone", train))
    workers(driver, 2, **rules)
    assert set(binds(driver.cycle()).values()) == {"c-y", "a-x"}


def test_a_limit_of_another_pod_and_a_spread_leave_places_that_not_every_first_node_does(
    driver: Driver,
) -> None:
    _corner(driver)
    two = affinity(anti_required=[{**term(RACK, selector("app=train")), "maxPodsPerDomain": 2}])
    driver.pod("o", node="c-y", annotations={AFFINITY: json.dumps(two)}, cpu="0")
    workers(driver, 2, spread=[spread("zone", selector("app=train"))])
    assert set(binds(driver.cycle()).values()) == {"c-y", "a-x"}


def test_members_that_need_each_other_in_one_rack_and_one_zone(driver: Driver) -> None:
    """The emptiest node has room for one too few, and is alone in its zone."""
    for name, zone, n_cpus in (("a-0", "x", 3), ("a-1", "y", 2), ("a-2", "y", 2)):
        driver.node(name, labels={RACK: "a", "zone": zone}, allocatable={"cpu": str(n_cpus)})
    train = selector("app=train")
    workers(driver, 4, affinity=affinity(required=[term(RACK, train), term("zone", train)]))
    assert sorted(binds(driver.cycle()).values()) == ["a-1", "a-1", "a-2", "a-2"]


def test_a_member_is_placed_although_another_label_keeps_one_like_it_out(driver: Driver) -> None:
    """Rack b, which is full, has no red pod: rack a gets no second one."""
    driver.node("a-0", labels={RACK: "a"}, allocatable={"cpu": "4"})
    driver.node("b-0", labels={RACK: "b"}, allocatable={"cpu": "0"})
    driver.pod("running", node="a-0", labels={"color": "red"}, cpu="1")
    evenly = [spread(RACK, selector("color=red"))]
    for color in ("red", "blue"):
        member(driver, color, n=1, labels={"color": color}, spread=evenly)
    assert binds(driver.cycle()) == {"blue": "a-0"}


def test_room_is_held_for_a_bounded_time_and_for_one_group_only(driver: Driver) -> None:
    """Pods that never end: after five minutes the small pods get the room, and for five minutes no room is held."""
    racks(driver, a=3)
    for index in range(3):
        driver.pod(f"long-{index}", node=f"a-{index}", cpu="500m")
    workers(driver, 3)
    workers(driver, 2, name="o", group="other")
    driver.cycles()
    assert not driver.state.nominated
    driver.pass_time(125.0)
    driver.node("full", allocatable={"cpu": "0"})
    for pod in ("w-0", "o-0"):
        driver.queue.activate_each((f"uid-default-{pod}",), driver.now_s)
    notes = [one.note for one in each_of(driver.cycles(), EmitEvent)]
    assert any(note.endswith(" Room is held for it meanwhile.") for note in notes), notes
    held = [pod.name for index in range(3) for pod in driver.state.nominated.on(f"a-{index}")]
    assert sorted(held) in (["w-0", "w-1", "w-2"], ["o-0", "o-1"])
    small = {"containers": [container(requests={"cpu": "500m"})]}
    driver.pod("high", priority=1, **small)
    assert list(binds(driver.cycles())) == ["high"]
    driver.pod("small-0", **small)
    driver.pod("small-1", **small)
    n_open = 3 - len({driver.state.nominated.node_of(f"uid-default-{name}") for name in held})
    assert len(binds(driver.cycles())) <= n_open
    driver.pass_time(301.0)
    assert not driver.state.nominated
    driver.pass_time(10.0)
    driver.cycles()
    assert not driver.state.nominated
    assert len(driver.state.placed) == 3 + 3


def test_no_room_is_held_for_a_group_that_a_member_has_left(driver: Driver) -> None:
    """Its labels were changed: too few members are left, and the room is for others at once."""
    racks(driver, a=2)
    for index in range(2):
        driver.pod(f"long-{index}", node=f"a-{index}", cpu="500m")
    first, _ = workers(driver, 2)
    driver.cycles()
    driver.pass_time(125.0)
    driver.queue.activate_each((first.uid,), driver.now_s)
    assert binds(driver.cycles()) == {}
    assert {pod.name for _, pods in driver.state.nominated.by_node() for pod in pods} == {"w-0", "w-1"}
    driver.update(first, labels={}, group=None)
    for index in range(2):
        driver.pod(f"small-{index}", cpu="500m")
    assert set(binds(driver.live(15.0))) == {"small-0", "small-1"}


@pytest.mark.parametrize("may_preempt", [True, False])
@pytest.mark.parametrize(("priority", "n_held"), [(0, 2), (1, 0)])
def test_no_room_is_held_where_a_pod_of_a_higher_priority_is(
    driver: Driver, priority: int, n_held: int, *, may_preempt: bool
) -> None:
    """It may never leave for the group. To hold room evicts no pod, so that a group that may not preempt has it too."""
    racks(driver, a=2)
    long = [
        driver.pod(f"long-{index}", node=f"a-{index}", cpu="1", priority=priority * index)
        for index in range(2)
    ]
    for pod in workers(driver, 2):
        driver.update(pod, may_preempt=may_preempt)
    driver.cycles()
    driver.pass_time(125.0)
    driver.queue.activate_each(("uid-default-w-0",), driver.now_s)
    driver.cycles()
    assert sum(len(pods) for _, pods in driver.state.nominated.by_node()) == n_held
    for index in range(n_held):
        # A small pod comes for each that ends.
        driver.lose(long[index])
        driver.pod(f"small-{index}", cpu="1")
        nodes = binds(driver.live(15.0))
        assert nodes.keys() == ({"w-0", "w-1"} if index else set())
    driver.pass_time(HOLD_FOR_S)
    assert not driver.state.nominated


def _placed(driver: Driver, n_pods: int, **more: Any) -> list[Pod]:
    """Place a group. Return its pods on their nodes."""
    pods = workers(driver, n_pods, **more)
    nodes = binds(driver.cycle())
    return [driver.confirm(pod, nodes[pod.name]) for pod in pods]


def _told_of_loss(told: list[Instruction]) -> list[str]:
    events = [one for one in told if isinstance(one, EmitEvent) and one.reason == "PodGroupNotWhole"]
    assert all(event.type == "Warning" for event in events)
    return [event.note for event in events]


def test_a_member_that_is_replaced_in_time_is_not_told(driver: Driver) -> None:
    racks(driver, a=3)
    pods = _placed(driver, 3)
    driver.lose(pods[1])
    again = member(driver, "w-3", n=3)
    driver.confirm(again, binds(driver.cycle())["w-3"])
    driver.now_s += 60
    assert _told_of_loss(driver.handle(TimePassed())) == []
    assert driver.machine.next_wake_s(driver.now_s) is None


@pytest.mark.parametrize("how", ["gone", "ends", "joins another group"])
def test_a_member_that_no_longer_waits_lets_the_others_take_the_room_that_is_left(
    driver: Driver, how: str
) -> None:
    """Of a group that has lost two members, as many are placed at once as wait: one has room, both have not."""
    racks(driver, a=3)
    lost = _placed(driver, 3)[1:]
    for pod in lost:
        driver.lose(pod)
    driver.pod("other", cpu="1", node=lost[0].node_name)
    pods = workers(driver, 2, n_needed=3, first=3)
    assert binds(driver.cycles()) == {}
    if how == "gone":
        driver.lose(pods[1])
    elif how == "ends":
        driver.update(pods[1], terminating=True)
    else:
        relabelled(driver, pods[1], **{GROUP: "other", MIN_COUNT: "2"})
    driver.pass_time(20.0)
    assert binds(driver.cycles()) == {pods[0].name: lost[1].node_name}


def test_members_that_succeeded_are_not_lost(driver: Driver) -> None:
    racks(driver, a=3)
    pods = _placed(driver, 3)
    version = driver.next_version()
    driver.handle(PodSeen(replace(pods[1], phase="Succeeded", resource_version=version)))
    driver.now_s += 60
    assert _told_of_loss(driver.handle(TimePassed())) == []


@pytest.mark.parametrize("is_gated", [False, True], ids=["alone", "behind one with a scheduling gate"])
def test_a_group_is_released_by_choice_if_a_member_waits_in_vain(driver: Driver, *, is_gated: bool) -> None:
    """Rack a has no room for the new member; all of them together go to rack b."""
    racks(driver, a=3)
    release = {"affinity-scheduler.io/pod-group-release-after-seconds": "60"}
    pods = _placed(driver, 3, affinity=together(), annotations=release)
    racks(driver, b=3)
    driver.lose(pods[1])
    driver.pod("other", node="a-" + pods[1].node_name[-1], cpu="1")
    if is_gated:
        member(driver, "w-2a", n=3, affinity=together(), annotations=release, gates=("hold",))
    member(driver, "w-3", n=3, affinity=together(), annotations=release)
    told = driver.cycles()
    assert binds(told) == {}
    driver.pass_time(45.0)
    assert not each_of(driver.cycles(), EvictVictim)
    due_s = driver.machine.next_wake_s(driver.now_s)
    assert due_s is not None
    assert due_s <= 1000 + 60
    driver.pass_time(20.0)
    told = driver.cycles()
    (first,) = each_of(told, EvictVictim)
    assert conditions(told)["w-3"].endswith(
        "The members on nodes are evicted, to be placed anew with the others."
    )
    (last,) = driver.carry_out(first)
    assert driver.carry_out(last) == []
    assert {first.victim.name, last.victim.name} == {"w-0", "w-2"}
    driver.pass_time(20.0)
    assert binds(driver.cycles()) == {}
    for name in ("w-4", "w-5"):
        member(driver, name, n=3, affinity=together(), annotations=release)
    nodes = binds(driver.cycles())
    assert sorted(nodes) == ["w-3", "w-4", "w-5"]
    assert {node[0] for node in nodes.values()} == {"b"}


def test_without_the_choice_no_member_is_evicted(driver: Driver) -> None:
    racks(driver, a=2)
    pods = _placed(driver, 2)
    driver.lose(pods[0])
    driver.pod("other", node=pods[0].node_name, cpu="1")
    member(driver, "w-3", n=2)
    for _ in range(20):
        driver.pass_time(60.0)
        assert not each_of(driver.cycles(), EvictVictim)


def test_the_message_says_that_no_rule_is_relaxed_for_a_member(driver: Driver) -> None:
    """Not after its time either."""
    racks(driver, a=1, b=1)
    rule = '[{"rule": "podAffinity", "topologyKey": "rack", "afterSeconds": 5}]'
    workers(driver, 2, affinity=together(), annotations={"affinity-scheduler.io/fallback": rule})
    told = driver.cycle()
    text = conditions(told)["w-0"]
    assert text.endswith(" Rules with fallbacks are not relaxed for members of groups.")
    assert next(one.note for one in each_of(told, EmitEvent)) == text
    driver.pass_time(400.0)
    assert binds(driver.cycles()) == {}

"""A node that failed under a member of a group is excluded for the group's members, for a limited time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.core.group_requests import search_request
from scheduler.engine.core.group_search import search, search_twice
from scheduler.engine.core.group_trial import detached_trial
from scheduler.engine.model.group_topology import REQUIRED_TOPOLOGY
from scheduler.engine.model.instructions import Bind, EvictVictim, PatchCondition
from scheduler.engine.model.pod_groups import (
    GROUP,
    MIN_COUNT,
    MOST_FAILED_NODES,
    MOVE_AFTER,
    GroupKey,
    GroupKind,
)
from scheduler.engine.model.pods import Pod
from scheduler.engine.plugins.kubelet_refusal import FAILED
from scheduler.engine.state.kubelet_refusals import CAPACITY, FAILED_S, READY_S
from tests.engine.core.test_group_levels import RACK, placed
from tests.support import build
from tests.support.build import container
from tests.support.driving import NAME, Driver

NOT_READY: Final = ("node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/not-ready:NoExecute")
UNREACHABLE: Final = ("node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute")
ONE_CPU: Final = [container(requests={"cpu": "1"})]


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    driver.audit()


def host(driver: Driver, name: str, *taints: str) -> None:
    """Create or change a host with one cpu, in the rack that its name begins with."""
    labels = {RACK: name.partition("-")[0]}
    driver.node(name, labels=labels, taints=taints, allocatable={"cpu": "1", "pods": "10"})


def member(driver: Driver, name: str, n: int = 2, group: str = "g", **annotations: str) -> Pod:
    labels = {GROUP: group, MIN_COUNT: str(n)}
    levels = {REQUIRED_TOPOLOGY: RACK, **annotations}
    owner = build.owned_by("StatefulSet", group)
    return driver.pod(name, labels=labels, annotations=levels, containers=ONE_CPU, owner=owner)


def running(driver: Driver, *names: str, **annotations: str) -> dict[str, Pod]:
    """Return the members of a group, by node."""
    pods = [member(driver, name, len(names), "g", **annotations) for name in names]
    nodes = placed(driver)
    return {nodes[pod.name]: driver.confirm(pod, nodes[pod.name]) for pod in pods}


@pytest.mark.parametrize("taints", [NOT_READY, UNREACHABLE, ()], ids=["not ready", "unreachable", "deleted"])
def test_the_new_member_avoids_the_node_that_is_ready_again(driver: Driver, taints: tuple[str, ...]) -> None:
    """And says so where no other node of the rack has room; a pod of no group goes there."""
    host(driver, "r1-0")
    host(driver, "r1-1")
    lost = running(driver, "m0", "m1").get("r1-1")
    assert lost is not None
    if taints:
        host(driver, "r1-1", *taints)
    else:
        driver.lose_node("r1-1")
    driver.lose(lost)
    driver.pass_time(300.0)
    host(driver, "r1-1")
    member(driver, "new")
    told = driver.cycle()
    reason = {NOT_READY: "not ready", UNREACHABLE: "unreachable", (): "deleted"}[taints]
    (text,) = [each.message for each in told if isinstance(each, PatchCondition)]
    assert f"1 {FAILED} ({reason}: r1-1)" in text
    assert not driver.machine.has_work()
    host(driver, "r1-2")
    assert placed(driver) == {"new": "r1-2"}
    driver.pod("alone", containers=ONE_CPU)
    assert placed(driver) == {"alone": "r1-1"}


def test_a_node_that_stays_ready_is_taken_before_a_group_waits_on(driver: Driver) -> None:
    """As a last resort: a node that flaps is not, and another node is taken first, if it comes."""
    for name in ("r1-0", "r1-1"):
        host(driver, name)
    lost = running(driver, "m0", "m1")["r1-1"]
    host(driver, "r1-1", *UNREACHABLE)
    driver.lose(lost)
    member(driver, "new")
    for _ in range(2):
        host(driver, "r1-1")
        driver.pass_time(READY_S - 1.0)
        assert not placed(driver)
        host(driver, "r1-1", *NOT_READY)
        driver.pass_time(10.0)
        assert not placed(driver)
    host(driver, "r1-1")
    driver.pass_time(READY_S - 1.0)
    assert not placed(driver)
    driver.pass_time(1.0)
    assert placed(driver) == {"new": "r1-1"}


def test_no_other_node_becomes_a_last_resort(driver: Driver) -> None:
    """Nor does its readiness change anything for the pods that its kubelet refused."""
    refusals, group = driver.state.kubelet_refusals, GroupKey(GroupKind.OWN, "default", "g")
    spec = driver.pod("refused").spec
    assert not refusals.expire(0.0)
    for name in ("n1", "n2"):
        refusals.record_failure(group, name, "deleted", 0.0)
    for _ in range(6):
        refusals.record(spec, "n1", "OutOfcpu", 0.0)
    refusals.note_health("n1", 0.0, is_ready=True)
    assert refusals.next_s == READY_S
    assert not refusals.expire(READY_S - 1.0)
    assert refusals.expire(READY_S)
    assert refusals.last_resorts(group) == ["n1"]
    assert refusals.next_s == 160.0


def test_another_node_comes_before_the_last_resort(driver: Driver) -> None:
    for name in ("r1-0", "r1-1"):
        host(driver, name)
    lost = running(driver, "m0", "m1")["r1-1"]
    host(driver, "r1-1", *UNREACHABLE)
    driver.lose(lost)
    host(driver, "r1-1")
    driver.pass_time(READY_S + 1.0)
    host(driver, "r1-2")
    member(driver, "new")
    assert placed(driver) == {"new": "r1-2"}


def test_members_beyond_the_minimum_take_the_last_resort_too(driver: Driver) -> None:
    """Also where the group was placed without them, since another one of them had a better node."""
    for name in ("r1-0", "r1-1", "r1-2"):
        host(driver, name)
    elastic = {"labels": {GROUP: "g", MIN_COUNT: "1"}, "containers": ONE_CPU}
    pods = [driver.pod(f"m{index}", **elastic) for index in range(3)]
    nodes = placed(driver)
    by_node = {nodes[pod.name]: driver.confirm(pod, nodes[pod.name]) for pod in pods}
    host(driver, "r1-1", *UNREACHABLE)
    for name in ("r1-1", "r1-2"):
        driver.lose(by_node[name])
    host(driver, "r1-1")
    driver.pass_time(READY_S + 1.0)
    for index in range(3):
        driver.pod(f"new-{index}", **elastic)
    told = driver.live(READY_S)
    nodes = {each.pod.name: each.node_name for each in told if isinstance(each, Bind)}
    assert nodes == {"new-0": "r1-2", "new-1": "r1-1"}


def test_the_new_member_is_woken_once_the_time_is_over(driver: Driver) -> None:
    """`FAILED_S` after the failure, also if the node flaps so that it is no last resort."""
    host(driver, "r1-0")
    host(driver, "r1-1")
    lost = running(driver, "m0", "m1")["r1-1"]
    host(driver, "r1-1", *UNREACHABLE)
    failed_s = driver.now_s
    driver.pass_time(100.0)
    driver.lose(lost)
    host(driver, "r1-1")
    member(driver, "new")
    assert not placed(driver)
    driver.pass_time(FAILED_S - 111.0)
    host(driver, "r1-1", *UNREACHABLE)
    host(driver, "r1-1")
    driver.pass_time(10.0)
    assert not placed(driver)
    driver.pass_time(1.0)
    assert placed(driver) == {"new": "r1-1"}
    assert driver.now_s == failed_s + FAILED_S


def test_the_move_of_the_whole_group_avoids_the_node(driver: Driver) -> None:
    """Without the node, the group's own rack has room for one member fewer: it moves to the other rack."""
    for name in ("r1-0", "r1-1"):
        host(driver, name)
    lost = running(driver, "m0", "m1", **{MOVE_AFTER: "30"})["r1-1"]
    host(driver, "r1-1", *NOT_READY)
    driver.lose(lost)
    for name in ("r1-1", "r2-0", "r2-1"):
        host(driver, name)
    member(driver, "new", 2, "g", **{MOVE_AFTER: "30"})
    assert not placed(driver)
    driver.pass_time(30.0)
    victims = [each.victim.name for each in driver.cycle() if isinstance(each, EvictVictim)]
    assert victims == ["m0"]


@pytest.mark.parametrize("n_failed", [MOST_FAILED_NODES, MOST_FAILED_NODES + 1])
def test_where_more_nodes_fail_none_is_avoided(driver: Driver, n_failed: int) -> None:
    """The switch of a rack, say, was away for a minute, and all members ended."""
    names = [f"r1-{index}" for index in range(n_failed)]
    for name in names:
        host(driver, name)
    pods = running(driver, *names)
    for name in names:
        host(driver, name, *UNREACHABLE)
    driver.pass_time(60.0)
    for name in names:
        host(driver, name)
        driver.lose(pods[name])
    for index in range(n_failed):
        member(driver, f"new-{index}", n_failed)
    assert set(placed(driver).values()) == (set(names) if n_failed > MOST_FAILED_NODES else set())


def test_where_more_nodes_fail_a_search_in_vain_is_not_repeated(driver: Driver) -> None:
    """None of them is avoided, so that the last resorts among them are nodes like others."""
    names = [f"r1-{index}" for index in range(MOST_FAILED_NODES + 1)]
    for name in names:
        host(driver, name)
    pods = running(driver, *names)
    for name in names:
        host(driver, name, *UNREACHABLE)
        driver.lose(pods[name])
        host(driver, name)
    driver.pass_time(READY_S + 1.0)
    waiting = [member(driver, f"new-{index}", len(names) + 1) for index in range(len(names) + 1)]
    key, state, profile = GroupKey(GroupKind.OWN, "default", "g"), driver.state, driver.profiles[NAME]
    assert state.kubelet_refusals.last_resorts(key)
    group = state.groups.get(key)
    assert group is not None
    request = search_request(state, key, group, waiting, profile)
    n_steps = [
        sum(1 for _ in searching(detached_trial(state, profile, "g", 1_000)))
        for searching in (partial(search, request), partial(search_twice, key, request))
    ]
    assert n_steps[0] == n_steps[1] > 0


_NODES: Final = ("r1-0", "r1-1", "r1-2", "r1-3")


@given(st.data())
def test_a_node_that_failed_under_a_group_is_at_most_its_last_resort(data: st.DataObject) -> None:
    """Two groups and nodes that fail, recover, go and come; a plain record says which nodes are avoided until when."""
    driver = Driver()
    avoided: dict[tuple[str, str], float] = {}
    where: dict[str, tuple[str, Pod, str]] = {}
    down: dict[str, bool] = dict.fromkeys(_NODES, False)
    ready_s = dict.fromkeys(_NODES, 0.0)
    for name in _NODES:
        host(driver, name)
    for number in range(data.draw(st.integers(5, 25))):
        name = data.draw(st.sampled_from(_NODES))
        match data.draw(st.sampled_from(("fail", "recover", "delete", "lose", "join", "join", "time"))):
            case "fail" if not down[name]:
                host(driver, name, *data.draw(st.sampled_from((NOT_READY, UNREACHABLE))))
            case "recover" if down[name]:
                host(driver, name)
                down[name], ready_s[name] = False, driver.now_s
                continue
            case "delete" if not down[name]:
                driver.lose_node(name)
            case "lose" if where:
                driver.lose(where.pop(data.draw(st.sampled_from(sorted(where))))[1])
                continue
            case "join":
                member(driver, f"m{number}", 1, data.draw(st.sampled_from("gh")))
                continue
            case "time":
                driver.pass_time(data.draw(st.sampled_from((1.0, 200.0, FAILED_S - 200.0))))
                name = ""
            case _:
                continue
        if name:
            down[name] = True
            for group in {group for group, _, node in where.values() if node == name}:
                avoided[group, name] = driver.now_s + FAILED_S
        while driver.machine.has_work():
            for each in driver.cycle():
                if isinstance(each, Bind) and each.pod.group is not None:
                    group = each.pod.group.key.name
                    ends_s = [end_s for (of, _), end_s in avoided.items() if of == group]
                    if sum(end_s > driver.now_s for end_s in ends_s) <= MOST_FAILED_NODES:
                        taken = {node for _, _, node in where.values()} | {each.node_name}
                        others = [node for node in _NODES if not down[node] and node not in taken]
                        is_avoided = avoided.get((group, each.node_name), 0.0) > driver.now_s
                        is_steady = ready_s[each.node_name] + READY_S <= driver.now_s
                        assert not is_avoided or (
                            is_steady and all(avoided.get((group, n), 0.0) > driver.now_s for n in others)
                        )
                    assert not down[each.node_name]
                    where[each.pod.uid] = group, driver.confirm(each.pod, each.node_name), each.node_name
        keys = {group: GroupKey(GroupKind.OWN, "default", group) for group in "gh"}
        excluded = driver.state.kubelet_refusals.excluded_nodes
        expected = {
            group: {node for (of, node), end_s in avoided.items() if of == group and end_s > driver.now_s}
            for group in keys
        }
        assert {group: set(excluded(key)) for group, key in keys.items()} == expected
    driver.audit()


def test_memory_is_bounded(driver: Driver) -> None:
    """The oldest failure is forgotten first."""
    refusals = driver.state.kubelet_refusals
    for number in range(CAPACITY + 2):
        refusals.record_failure(GroupKey(GroupKind.OWN, "default", f"g{number}"), "n", "deleted", 0.0)
    assert len(refusals) == CAPACITY
    assert not refusals.excluded_nodes(GroupKey(GroupKind.OWN, "default", "g1"))
    assert refusals.n_excluded == 0

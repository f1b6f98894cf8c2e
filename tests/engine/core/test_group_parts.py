"""Groups with parts against brute force: each part in one domain of its level, as a whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.model.group_topology import (
    PART,
    PART_MIN_COUNT,
    PART_PREFERRED_TOPOLOGY,
    PART_REQUIRED_TOPOLOGY,
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
)
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT, GroupKey, GroupKind
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import PodGone, PodSeen
from tests.engine.core.test_group_levels import (
    BLOCK,
    RACK,
    by_rack,
    filled,
    message,
    placed,
    racks,
    rooms,
    with_decisions,
)
from tests.reference.machine_room import Hosts, Part, most_in_parts, within_one
from tests.support.build import HOSTNAME, selector, spread
from tests.support.driving import Driver


def part(
    driver: Driver, name: str, n: int, n_group: int, n_needed: int = 0, size: int = 1, **asked: Any
) -> list[Pod]:
    """Create the members of a part; `asked`: group and part, required and preferred, which is racks by default."""
    spread_by = asked.pop("spread", ())
    labels = {GROUP: "g", MIN_COUNT: str(n_group), **asked.pop("labels", {})}
    levels = {
        REQUIRED_TOPOLOGY: asked.get("within", ""),
        PREFERRED_TOPOLOGY: asked.get("near", ""),
        PART_REQUIRED_TOPOLOGY: asked.get("required", RACK),
        PART_PREFERRED_TOPOLOGY: asked.get("preferred", ""),
        PART: name,
        PART_MIN_COUNT: str(n_needed or n),
    }
    return [
        driver.pod(
            f"{name}-{index}",
            labels=labels,
            annotations={key: text for key, text in levels.items() if text},
            cpu=str(size),
            spread=spread_by,
        )
        for index in range(n)
    ]


_parts = st.builds(
    lambda n, spare, size: Part(n, max(1, n - spare), size),
    st.integers(1, 3),
    st.sampled_from((0, 0, 1)),
    st.sampled_from((1, 1, 2)),
)


@settings(max_examples=180)
@given(rooms(), st.lists(_parts, min_size=1, max_size=3), st.booleans(), st.booleans())
def test_a_group_of_parts_is_placed_iff_brute_force_places_it(
    hosts: Hosts, parts: Sequence[Part], within_block: bool, needs_all: bool
) -> None:
    """With four times as many decisions as by default, with which rare rooms end the search before it has a place."""
    hosts = {
        name: ((block, f"{block}{rack}", host), n_free)
        for name, ((block, rack, host), n_free) in hosts.items()
    }
    driver = filled(with_decisions(2_000), hosts)
    n_group = sum(each.n_members for each in parts) if needs_all else min(each.n_needed for each in parts)
    for number, each in enumerate(parts):
        within = {"within": BLOCK} if within_block else {}
        part(driver, f"p{number}", each.n_members, n_group, each.n_needed, each.size, **within)
    nodes = placed(driver)
    scopes = list(within_one(hosts, 1)) if within_block else [hosts]
    most = max(most_in_parts(scope, parts, 2) for scope in scopes)
    assert bool(nodes) == (most >= n_group)
    assert not within_block or len({hosts[node][0][0] for node in nodes.values()}) <= 1
    for number, each in enumerate(parts):
        used = [hosts[node][0][:2] for name, node in nodes.items() if name.startswith(f"p{number}-")]
        assert len(set(used)) <= 1
        assert len(used) == 0 or len(used) >= each.n_needed
    driver.audit()


def test_parts_that_are_spread_by_host_are_placed_where_not_every_order_succeeds(driver: Driver) -> None:
    """Each takes what others would have needed: being alike does not make every way to place them as good."""
    for name, rack, n_cpus in (("h0", "r1", 1), ("h1", "r1", 2), ("h2", "r1", 1), ("h3", "r2", 2)):
        driver.node(name, labels={RACK: rack}, allocatable={"cpu": str(n_cpus), "pods": "20"})
    for name in "xyz":
        part(driver, name, 2, 6, labels={"app": "g"}, spread=[spread(HOSTNAME, selector("app=g"))])
    assert len(placed(driver)) == 6


@pytest.mark.parametrize("near", ["", BLOCK])
def test_the_message_counts_the_parts_where_a_rack_has_room_for_several(driver: Driver, near: str) -> None:
    """Once, also where the search looks for room again: in few domains of a preferred level, then in all."""
    racks(driver, "a", r1=4, r2=2)
    for name in "wxyz":
        part(driver, name, 2, 8, near=near)
    assert message(driver) == (
        f"pod group default/g needs 8 places: the cluster has room for 3 parts of 2 in 2 {RACK}, the group needs 4;"
        " the next, z-0: 0/6 nodes are available: 6 Insufficient cpu."
    )


def test_the_message_names_no_rack_for_a_part_that_runs_in_none(driver: Driver) -> None:
    racks(driver, "a", r1=2, r2=2)
    part(driver, "x", 2, 4)
    part(driver, "y", 2, 4, size=9)
    assert message(driver).endswith("; the next, y-0: 0/4 nodes are available: 4 Insufficient cpu.")


def test_as_many_parts_as_fit_are_placed_and_the_others_later(driver: Driver) -> None:
    racks(driver, "a", r1=2, r2=3)
    for name in "xyz":
        part(driver, name, 2, 2)
    nodes = placed(driver)
    assert by_rack(nodes) == {"r1": 2, "r2": 2}
    for name in list(nodes):
        driver.confirm(
            next(pod for pod in driver.state.groups.placed(_key(driver)) if pod.name == name), nodes[name]
        )
    racks(driver, "a", r3=1)
    assert not _late(driver)
    racks(driver, "a", r4=2)
    assert by_rack(_late(driver)) == {"r4": 2}


@pytest.mark.parametrize("asked", [{"required": "no/such-label"}, {"within": "no/such-label"}])
def test_the_message_says_that_no_node_has_the_level(driver: Driver, asked: dict[str, str]) -> None:
    racks(driver, "a", r1=3)
    part(driver, "x", 2, 2, 0, 1, **asked)
    text = message(driver)
    assert "; the next, x-0: no node is in a domain of no/such-label that it may take." in text
    assert "no/such-label" in text


def test_a_part_with_too_few_members_waits_for_the_others(driver: Driver) -> None:
    racks(driver, "a", r1=3, r2=3)
    part(driver, "x", 1, 1, n_needed=2)
    waits = (
        f"pod group default/g waits until 2 pods of its part x exist that may be placed ({PART_MIN_COUNT})"
    )
    assert message(driver) == waits
    part(driver, "y", 2, 1)
    assert set(placed(driver)) == {"y-0", "y-1"}
    assert message(driver) == waits
    part(driver, "x", 2, 1)
    assert set(_late(driver)) == {"x-0", "x-1"}


def test_the_message_names_the_part_that_is_too_small_whichever_comes_first(driver: Driver) -> None:
    racks(driver, "a", r1=3, r2=3)
    part(driver, "y", 2, 3)
    part(driver, "x", 1, 3, n_needed=2)
    assert message(driver) == (
        f"pod group default/g waits until 2 pods of its part x exist that may be placed ({PART_MIN_COUNT})"
    )


def test_as_many_members_as_a_part_lacks_are_placed_where_not_all_new_ones_fit(driver: Driver) -> None:
    racks(driver, "a", r1=2)
    annotations = {PART: "x", PART_MIN_COUNT: "2", PART_REQUIRED_TOPOLOGY: RACK}
    for index, node in enumerate(("r1-0", None, None)):
        driver.pod(
            f"x-{index}", labels={GROUP: "g", MIN_COUNT: "2"}, annotations=annotations, cpu="1", node=node
        )
    assert list(placed(driver).values()) == ["r1-1"]


def _running(driver: Driver) -> list[Pod]:
    """Return three members of part x and one of part y that run on two racks."""
    racks(driver, "a", r1=3, r2=1)
    pods = [*part(driver, "x", 3, 4), *part(driver, "y", 1, 4)]
    nodes = placed(driver)
    running = [replace(driver.confirm(pod, nodes[pod.name]), phase="Running") for pod in pods]
    for pod in running:
        driver.handle(PodSeen(pod))
    return running


@pytest.mark.parametrize("last_sign", ["watch", "phase"])
def test_a_part_does_not_wait_for_members_that_have_finished(driver: Driver, last_sign: str) -> None:
    """Two of three finish, which a watch without succeeded pods shows as a deletion; the third one is lost."""
    running = _running(driver)
    for pod in running[:2]:
        if last_sign == "phase":
            driver.handle(PodSeen(replace(pod, phase="Succeeded")))
        driver.lose(pod)
    driver.handle(PodSeen(replace(running[2], terminating=True)))
    driver.lose(running[2])
    copy = driver.state.copy().groups
    assert copy.n_finished(_key(driver), "x") == 2
    part(driver, "x", 1, 4, n_needed=3)
    assert set(_late(driver)) == {"x-0"}


def test_a_part_waits_for_members_that_are_lost(driver: Driver) -> None:
    """One of three has finished: two have to come back before one is placed."""
    running = _running(driver)
    driver.lose(running[0])
    for pod in running[1:3]:
        driver.handle(PodSeen(replace(pod, terminating=True)))
        driver.lose(pod)
    part(driver, "x", 1, 4, n_needed=3)
    assert "waits until 2 pods of its part x exist" in message(driver)
    part(driver, "x", 2, 4, n_needed=3)
    assert set(_late(driver)) == {"x-0", "x-1"}
    for uid in [*driver.state.placed]:
        driver.handle(PodGone(uid))
    for pod in [*driver.state.groups.pending(GroupKey(GroupKind.OWN, "default", "g"))]:
        driver.lose(pod)
    assert driver.state.groups.n_finished(GroupKey(GroupKind.OWN, "default", "g"), "x") == 0


def test_a_preferred_level_leaves_the_decisions_that_parts_need_without_it() -> None:
    """A rack has room for both parts by its resources, but not by their rule: each order of the parts fails there."""
    driver = with_decisions(1)
    room = {"cpu": "9", "pods": "9"}
    for rack in ("r1", "r2"):
        driver.node(f"{rack}-0", labels={BLOCK: "b", RACK: rack}, allocatable=room)
    apart = [spread(HOSTNAME, selector(f"{GROUP}=g"))]
    for name, size in (("a", 1), ("b", 2)):
        part(driver, name, 1, 2, size=size, spread=apart, near=RACK, within=BLOCK, required="")
    assert by_rack(placed(driver)) == {"r1": 1, "r2": 1}
    driver.audit()


def test_parts_are_in_few_blocks_if_the_group_prefers_that(driver: Driver) -> None:
    racks(driver, "a", r1=2, r2=1)
    racks(driver, "b", r3=3, r4=3)
    racks(driver, "c", r5=2, r6=1)
    for name in "xy":
        part(driver, name, 2, 4, near=BLOCK)
    assert by_rack(placed(driver)) == {"r3": 2, "r4": 2}


def _key(driver: Driver) -> Any:
    return next(iter(driver.state.groups.listed()))


def _late(driver: Driver) -> dict[str, str]:
    """Let time pass until the members that wait are tried, and return the nodes that they get."""
    nodes: dict[str, str] = {}
    for _ in range(5):
        driver.pass_time(10)
        while driver.queue.depths()["active"]:
            nodes |= placed(driver)
    return nodes


def test_members_without_a_part_are_placed_beside_parts(driver: Driver) -> None:
    racks(driver, "a", r1=2, r2=2)
    part(driver, "x", 2, 3)
    driver.pod("loner", labels={GROUP: "g", MIN_COUNT: "3"}, cpu="1")
    assert len(placed(driver)) == 3

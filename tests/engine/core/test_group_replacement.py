"""A member that was lost is replaced within the domains of its group, and near its neighbours in rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.model.group_topology import (
    PART,
    PART_MIN_COUNT,
    PART_REQUIRED_TOPOLOGY,
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
)
from scheduler.engine.model.instructions import EmitEvent, PatchCondition
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.pods import Pod
from tests.engine.core.test_group_levels import BLOCK, RACK, placed, racks
from tests.support import build
from tests.support.driving import Driver, binds, each_of

INDEX = "batch.kubernetes.io/job-completion-index"


def rack(driver: Driver, name: str, n_hosts: int, block: str = "b") -> None:
    """Create hosts with one cpu each."""
    racks(driver, block, **{name: n_hosts})


def fill(driver: Driver, node: str) -> Pod:
    return driver.pod(f"other-{node}", node=node, cpu="1")


def member(
    driver: Driver,
    index: int,
    n: int,
    annotations: Mapping[str, str],
    node: str | None = None,
    generation: str = "",
    **more: Any,
) -> Pod:
    labels = {GROUP: "g", MIN_COUNT: str(n), INDEX: str(index)}
    name = f"m{index}{generation}"
    return driver.pod(name, labels=labels, annotations=dict(annotations), cpu="1", node=node, **more)


def rack_of(node: str) -> str:
    return node.partition("-")[0]


def test_the_new_member_joins_the_required_rack_of_the_others(driver: Driver) -> None:
    """Another rack is tighter."""
    rack(driver, "r1", 4)
    levels = {REQUIRED_TOPOLOGY: RACK}
    pods = [member(driver, index, 3, levels) for index in range(3)]
    nodes = placed(driver)
    rack(driver, "r2", 1)
    driver.lose(driver.confirm(pods[1], nodes["m1"]))
    member(driver, 1, 3, levels, generation="-new")
    assert {rack_of(node) for node in placed(driver).values()} == {"r1"}


def test_without_room_the_group_is_told_which_domain_lacks_what(driver: Driver) -> None:
    """By an event and the condition of the new member, which `explain` shows as well."""
    rack(driver, "r1", 3)
    levels = {REQUIRED_TOPOLOGY: RACK}
    pods = [member(driver, index, 3, levels) for index in range(3)]
    nodes = placed(driver)
    rack(driver, "r2", 3)
    driver.lose(driver.confirm(pods[1], nodes["m1"]))
    fill(driver, nodes["m1"])
    member(driver, 1, 3, levels, generation="-new")
    told = driver.cycle()
    text = next(each.message for each in each_of(told, PatchCondition))
    assert text == (
        "pod group default/g needs 1 place besides 2 on nodes in one example.com/rack: r1 has room for 0; the"
        " next, m1-new: 0/3 nodes are available: 3 Insufficient cpu."
    )
    assert next(each.note for each in each_of(told, EmitEvent)) == text


@pytest.mark.parametrize("is_full", [False, True])
def test_the_new_member_joins_the_level_of_its_part(driver: Driver, is_full: bool) -> None:
    """Also where the rack of another part has room."""
    for name in ("r1", "r2"):
        rack(driver, name, 3)
    nodes: dict[str, str] = {}
    levels = {REQUIRED_TOPOLOGY: BLOCK, PART_REQUIRED_TOPOLOGY: RACK, PART_MIN_COUNT: "2"}
    pods = [member(driver, index, 4, {**levels, PART: "pq"[index // 2]}) for index in range(4)]
    nodes = placed(driver)
    assert len(nodes) == 4
    driver.lose(driver.confirm(pods[3], nodes["m3"]))
    own = rack_of(nodes["m3"])
    if is_full:
        for node in ("0", "1", "2"):
            if f"{own}-{node}" != nodes["m2"]:
                fill(driver, f"{own}-{node}")
    member(driver, 3, 4, {**levels, PART: "q"}, generation="-new")
    told = driver.cycle()
    nodes = binds(told)
    assert [rack_of(node) for node in nodes.values()] == ([] if is_full else [own])
    if is_full:
        text = next(each.message for each in each_of(told, PatchCondition))
        assert f"m3-new in {own}: 0/3 nodes are available: 3 Insufficient cpu." in text


@settings(max_examples=40)
@given(st.lists(st.integers(0, 2), min_size=2, max_size=6), st.data())
def test_a_single_new_member_is_in_the_rack_of_a_neighbour_in_rank_if_that_has_room(
    racks_of: list[int], data: st.DataObject
) -> None:
    """Among racks of which others hold members too; then in one of these; then anywhere."""
    driver = Driver()
    for number in range(4):
        rack(driver, f"r{number}", 8)
    lost = data.draw(st.integers(0, len(racks_of)))
    ranks = [rank for rank in range(len(racks_of) + 1) if rank != lost]
    levels = {REQUIRED_TOPOLOGY: BLOCK, PREFERRED_TOPOLOGY: RACK}
    where = dict(zip(ranks, racks_of, strict=True))
    taken = [0] * 4
    for rank, number in where.items():
        member(driver, rank, len(ranks) + 1, levels, node=f"r{number}-{taken[number]}")
        taken[number] += 1
    full = data.draw(st.sets(st.integers(0, 3), max_size=3))
    for number in full:
        for index in range(taken[number], 8):
            fill(driver, f"r{number}-{index}")
    member(driver, lost, len(ranks) + 1, levels)
    (node,) = placed(driver).values()
    below, above = [rank for rank in ranks if rank < lost], [rank for rank in ranks if rank > lost]
    near = {where[rank] for rank in (*below[-1:], *above[:1])} - full
    expected = near or set(racks_of) - full or set(range(4)) - full
    assert int(rack_of(node)[1:]) in expected
    driver.audit()


OWNER = build.owned_by("StatefulSet", "g")

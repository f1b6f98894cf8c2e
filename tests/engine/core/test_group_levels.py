"""
Groups on the levels of a machine room, against every set of domains: on thousands of small rooms.

A group is placed if and only if a placement exists, in as few domains of the preferred level as there can be.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.core.group_layouts import layout_of
from scheduler.engine.model.group_topology import (
    PART,
    PART_MIN_COUNT,
    PART_REQUIRED_TOPOLOGY,
    PREFERRED_TOPOLOGY,
    REQUIRED_TOPOLOGY,
    Topology,
    parse_topology,
)
from scheduler.engine.model.instructions import GroupAttempted, PatchCondition
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.pods import Pod
from scheduler.errors import SettingsError
from tests.reference.machine_room import Hosts, fewest, paths, within_one
from tests.support.build import HOSTNAME, Json, affinity, container, node_term, selector, spread, term
from tests.support.driving import Driver, binds, each_of, settings_of

BLOCK, RACK = "example.com/block", "example.com/rack"
LEVELS = (BLOCK, RACK, HOSTNAME)


@st.composite
def rooms(draw: st.DrawFn) -> Hosts:
    """Draw hosts; racks of two blocks may have one name."""
    n_hosts = draw(st.integers(1, 7))
    hosts: dict[str, tuple[tuple[str, str, str], int]] = {}
    for index in range(n_hosts):
        block, rack = draw(st.sampled_from("ab")), draw(st.sampled_from("xyz"))
        hosts[f"h{index}"] = ((block, rack, f"h{index}"), draw(st.integers(0, 3)))
    return hosts


def _ids(hosts: Hosts, n_levels: int) -> np.ndarray[Any, np.dtype[np.intp]]:
    names = sorted(paths(hosts, n_levels))
    return np.array([1 + names.index(tuple(domains[:n_levels])) for domains, _ in hosts.values()])


@settings(max_examples=500)
@given(rooms(), st.integers(1, 8), st.sampled_from(((3,), (2,), (2, 3), (1, 3), (1, 2, 3))))
def test_a_layout_has_the_fewest_domains_there_can_be(hosts: Hosts, n: int, levels: tuple[int, ...]) -> None:
    room = np.array([n_free for _, n_free in hosts.values()], dtype=np.int64)
    ids = [_ids(hosts, level) for level in levels]
    layout = layout_of(np.arange(len(room)), room, ids, n, np.zeros(len(room), dtype=np.int64))
    best = fewest(hosts, levels[0], n)
    assert (layout is None) == (best is None)
    if layout is None or best is None:
        return
    assert layout.n_domains[0] == best
    filled = [int(room[rows].sum()) for rows in layout.domains]
    assert sum(filled) >= n > sum(filled[:-1])
    assert len(layout.domains) == layout.n_domains[-1] == len({ids[-1][rows[0]] for rows in layout.domains})
    if best == 1 and len(levels) > 1:
        inner = [fewest(block, levels[1], n) for block in within_one(hosts, levels[0])]
        assert layout.n_domains[1] == min(number for number in inner if number is not None)


@pytest.mark.parametrize(("held", "nearest"), [(0, 2), (1, 1), (2, 1)])
def test_a_rack_goes_first_where_members_run_also_if_their_hosts_are_full(held: int, nearest: int) -> None:
    """Rack 2 is the tighter one."""
    racks_of = np.array([1, 1, 2])
    layout = layout_of(np.arange(3), np.array([0, 2, 1]), [racks_of], 1, np.array([held, 0, 0]))
    assert layout is not None
    assert [set(racks_of[rows].tolist()) for rows in layout.domains] == [{nearest}]


def filled(driver: Driver, hosts: Hosts) -> Driver:
    for name, (domains, n_free) in hosts.items():
        labels = dict(zip(LEVELS, domains, strict=True))
        driver.node(name, labels=labels, allocatable={"cpu": str(n_free), "pods": "10"})
    return driver


def members(
    driver: Driver, n: int, required: str = "", preferred: str = "", cpu: str = "1", **more: Any
) -> list[Pod]:
    asked = {REQUIRED_TOPOLOGY: required, PREFERRED_TOPOLOGY: preferred}
    annotations = {name: text for name, text in asked.items() if text} | more.pop("annotations", {})
    labels = {"app": "g", GROUP: "g", MIN_COUNT: str(more.pop("n_needed", n)), **more.pop("labels", {})}
    return [
        driver.pod(f"m{index}", labels=labels, annotations=annotations, cpu=cpu, **more) for index in range(n)
    ]


def placed(driver: Driver) -> dict[str, str]:
    """Run the group's cycle and return the nodes of its members."""
    return binds(driver.cycle())


def message(driver: Driver) -> str:
    return next(each.message for each in each_of(driver.cycle(), PatchCondition))


def _used(hosts: Hosts, nodes: Mapping[str, str], n_levels: int) -> set[tuple[str, ...]]:
    return {tuple(hosts[node][0][:n_levels]) for node in nodes.values()}


@settings(max_examples=150)
@given(rooms(), st.integers(1, 7), st.sampled_from((0, 1)), st.sampled_from((2, 3)))
def test_a_group_is_placed_iff_there_is_a_placement_in_the_fewest_domains(
    hosts: Hosts, n: int, required: int, preferred: int
) -> None:
    # The rack's name counts within its block alone where the block is required.
    if not required:
        hosts = {
            name: ((block, f"{block}{rack}", host), n_free)
            for name, ((block, rack, host), n_free) in hosts.items()
        }
    driver = filled(Driver(), hosts)
    members(driver, n, required=BLOCK if required else "", preferred=LEVELS[preferred - 1])
    nodes = placed(driver)
    scopes = list(within_one(hosts, 1)) if required else [hosts]
    possible = [number for scope in scopes if (number := fewest(scope, preferred, n)) is not None]
    assert bool(nodes) == bool(possible)
    if nodes:
        assert len(nodes) == n
        assert len(_used(hosts, nodes, required)) == 1
        assert len(_used(hosts, nodes, preferred)) == min(possible)
    driver.audit()


def racks(driver: Driver, block: str, **n_hosts: int) -> None:
    """Create hosts of one cpu: as many by rack."""
    for rack, n in n_hosts.items():
        for index in range(n):
            labels = {BLOCK: block, RACK: rack}
            driver.node(f"{rack}-{index}", labels=labels, allocatable={"cpu": "1", "pods": "10"})


def by_rack(nodes: Mapping[str, str]) -> dict[str, int]:
    used = [node.partition("-")[0] for node in nodes.values()]
    return {rack: used.count(rack) for rack in sorted(set(used))}


def test_a_preferred_level_keeps_no_group_out(driver: Driver) -> None:
    """Nodes without the label are used if the others have too little room."""
    racks(driver, "a", r1=2)
    driver.node("bare-0", allocatable={"cpu": "2", "pods": "10"})
    members(driver, 4, preferred=RACK)
    assert by_rack(placed(driver)) == {"bare": 2, "r1": 2}


def test_no_member_stays_where_a_preferred_level_has_too_little_room(driver: Driver) -> None:
    """Members are apart by host, and a rack's room is counted by resources."""
    driver.node("r1-0", labels={RACK: "r1"}, allocatable={"cpu": "9", "pods": "9"})
    for index in range(3):
        driver.node(f"bare-{index}", labels={"bare": "yes"}, allocatable={"cpu": "1", "pods": "9"})
    apart = affinity(
        anti_required=[term(HOSTNAME, selector(f"{GROUP}=g"))], node_preferred=[(100, node_term("bare"))]
    )
    members(driver, 3, preferred=RACK, affinity=apart)
    assert by_rack(placed(driver)) == {"bare": 3}


def test_unlike_members_fill_one_rack_before_the_next(driver: Driver) -> None:
    racks(driver, "a", r1=2, r2=5, r3=1)
    members(driver, 3, preferred=RACK, n_needed=5)
    for index in range(2):
        labels, annotations = {GROUP: "g", MIN_COUNT: "5"}, {PREFERRED_TOPOLOGY: RACK}
        driver.pod(f"small{index}", labels=labels, annotations=annotations, cpu="600m")
    assert by_rack(placed(driver)) == {"r2": 5}


def test_as_many_members_as_fit_are_in_few_racks(driver: Driver) -> None:
    racks(driver, "a", r1=1, r2=2)
    racks(driver, "b", r3=1, r4=1)
    members(driver, 5, n_needed=2, required=BLOCK, preferred=RACK)
    assert by_rack(placed(driver)) == {"r1": 1, "r2": 2}


def test_as_many_as_are_needed_are_placed_where_many_racks_only_seem_to_have_more_room(
    driver: Driver,
) -> None:
    """Members are apart by host, and a rack's room is counted by resources."""
    for number in range(8):
        labels = {RACK: f"one-host-{number}"}
        driver.node(f"large-{number}", labels=labels, allocatable={"cpu": "9", "pods": "9"})
    for number in range(2):
        driver.node(f"small-{number}", labels={RACK: "two-hosts"}, allocatable={"cpu": "1", "pods": "9"})
    apart = affinity(anti_required=[term(HOSTNAME, selector(f"{GROUP}=g"))])
    members(driver, 3, n_needed=2, required=RACK, affinity=apart)
    assert sorted(placed(driver).values()) == ["small-0", "small-1"]


@pytest.mark.parametrize(
    ("required", "preferred", "expected"),
    [
        ("", "a/b, c", (Topology((), ("a/b", "c")), "")),
        ("a/b", "c,c", (Topology(("a/b",), ("c",)), "")),
        ("a b", "", f'{REQUIRED_TOPOLOGY} of the pod: found "a b", expected one key of node labels'),
        ("", "a,,b", f'{PREFERRED_TOPOLOGY} of the pod: found "a,,b", expected 1 to 8 keys of node labels'),
        (
            "",
            ",".join("abcdefghi"),
            f'{PREFERRED_TOPOLOGY} of the pod: found "a,b,c,d,e,f,g,h,i", expected 1 to 8',
        ),
    ],
)
def test_levels_are_parsed(required: str, preferred: str, expected: Any) -> None:
    said = {REQUIRED_TOPOLOGY: required, PREFERRED_TOPOLOGY: preferred}
    annotations = {name: text for name, text in said.items() if text}
    topology, problem = parse_topology(REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY, annotations)
    assert ((topology, problem) == expected) if isinstance(expected, tuple) else problem.startswith(expected)


def test_members_that_fit_are_placed_where_the_largest_kind_fits_nowhere(driver: Driver) -> None:
    racks(driver, "a", r1=2)
    for name, n_cpus in (("large", "4"), ("small", "1")):
        driver.pod(
            name, labels={GROUP: "g", MIN_COUNT: "1"}, annotations={REQUIRED_TOPOLOGY: BLOCK}, cpu=n_cpus
        )
    assert by_rack(placed(driver)) == {"r1": 1}


def test_the_levels_of_the_configuration_tell_racks_of_one_name_apart() -> None:
    driver = Driver(settings=settings_of("GangScheduling", topologyLevels=[BLOCK, RACK]))
    for block in "ab":
        for index in range(2):
            driver.node(
                f"{block}-{index}", labels={BLOCK: block, RACK: "r1"}, allocatable={"cpu": "1", "pods": "9"}
            )
    members(driver, 3, required=RACK)
    assert f"in one {RACK}: a/r1 has room for 2, b/r1 has room for 2" in message(driver)
    driver.node("b-2", labels={BLOCK: "b", RACK: "r1"}, allocatable={"cpu": "1", "pods": "9"})
    driver.pass_time(20)
    assert by_rack(placed(driver)) == {"b": 3}
    driver.audit()


def test_levels_of_the_configuration_are_label_keys() -> None:
    with pytest.raises(SettingsError, match=r"topologyLevels\[1\]"):
        settings_of("GangScheduling", topologyLevels=[BLOCK, "no key"])


def with_decisions(n_most: int) -> Driver:
    return Driver(settings=settings_of("GangScheduling", maxSearchDecisions=n_most))


def test_a_level_is_preferred_without_any_decision_more_than_one_per_member() -> None:
    driver = with_decisions(0)
    racks(driver, "a", r1=4, r2=3, r3=2)
    members(driver, 6, preferred=RACK)
    assert by_rack(placed(driver)) == {"r1": 4, "r3": 2}


def test_a_group_whose_search_ended_before_any_refusal_is_tried_again_by_backoff() -> None:
    """The room of the racks takes a decision, so that there is one too few for the members."""
    driver = with_decisions(0)
    racks(driver, "a", r1=2)
    members(driver, 2, required=RACK)
    assert message(driver) == (
        f"pod group default/g needs 2 places in one {RACK}: r1 has room for 2. The search ended after 0 decisions"
        " (maxSearchDecisions); there may be places."
    )
    assert driver.queue.depths() == {"active": 0, "backoff": 2, "unschedulable": 0, "gated": 0}


@pytest.mark.parametrize(
    ("n_most", "n_terms", "near"),
    [
        *((n_most, n_terms, []) for n_most in (0, 5, 11) for n_terms in (0, 64)),
        *((n_most, 0, [term(BLOCK, selector(f"{GROUP}=g"))]) for n_most in (1, 5, 11)),
    ],
)
def test_a_preferred_level_leaves_the_decisions_that_the_members_need_without_it(
    n_most: int, n_terms: int, near: list[Json]
) -> None:
    """
    Each rack takes one of the members, which are unlike, and refuses the others.

    Of members with many terms a decision counts more, but the first one in the search without the level does not. The
    room of the block takes one more.
    """
    driver = with_decisions(n_most)
    for index in range(6):
        labels = {BLOCK: "b", RACK: f"r{index}"}
        driver.node(f"r{index}-0", labels=labels, allocatable={"cpu": "9", "pods": "9"})
    many = [(1, term(RACK, selector(f"n={one}"))) for one in range(n_terms)]
    apart = [term(HOSTNAME, selector(f"{GROUP}=g"))]
    rules = affinity(required=near, anti_required=apart, preferred=many)
    for index in range(6):
        driver.pod(
            f"m{index}",
            labels={GROUP: "g", MIN_COUNT: "6"},
            annotations={PREFERRED_TOPOLOGY: RACK},
            affinity=rules,
            cpu=f"{1 + index % 3}",
        )
    told = driver.cycle()
    assert by_rack(binds(told)) == {f"r{index}": 1 for index in range(6)}
    (attempt,) = each_of(told, GroupAttempted)
    assert attempt.n_decisions <= 13 + n_most
    driver.audit()


@pytest.mark.parametrize("is_new", [False, True], ids=["a node gets labels", "nodes come"])
def test_a_group_whose_level_no_node_has_waits_for_nodes_alone(driver: Driver, *, is_new: bool) -> None:
    driver.node("h0", allocatable={"cpu": "2", "pods": "10"})
    first = members(driver, 2, required=BLOCK)[0]
    assert f"no node is in a domain of {BLOCK} that it may take" in message(driver)
    assert driver.queued(first.uid).unschedulable_plugins == {"GangScheduling"}
    driver.pass_time(60)
    assert not driver.cycle()
    assert driver.queue.depths() == {"active": 0, "backoff": 0, "unschedulable": 2, "gated": 0}
    driver.node("h1" if is_new else "h0", labels={BLOCK: "a"}, allocatable={"cpu": "2", "pods": "10"})
    assert set(placed(driver).values()) == {"h1" if is_new else "h0"}


def test_a_group_is_tried_again_once_a_node_moves_to_a_block_that_was_too_small(driver: Driver) -> None:
    for name, block in (("h0", "a"), ("h1", "b")):
        driver.node(name, labels={BLOCK: block}, allocatable={"cpu": "1", "pods": "10"})
    members(driver, 2, required=BLOCK)
    assert not placed(driver)
    driver.pass_time(60)
    driver.node("h1", labels={BLOCK: "a"}, allocatable={"cpu": "1", "pods": "10"})
    assert len(placed(driver)) == 2


def test_a_group_is_tried_again_once_pods_of_a_smaller_rack_keep_it_out_no_more(driver: Driver) -> None:
    """The larger rack, which alone is tried for the message, lacks room."""
    racks(driver, "a", r1=2, r2=3)
    for index in (1, 2):
        driver.pod(f"other-{index}", node=f"r2-{index}", cpu="0", labels={"app": "other"})
    apart = affinity(anti_required=[term(HOSTNAME, selector("app=other"))])
    members(driver, 3, required=RACK, affinity=apart)
    assert not placed(driver)
    driver.pass_time(60)
    for index in (1, 2):
        driver.pod(f"other-{index}", node=f"r2-{index}", cpu="0")
    assert by_rack(placed(driver)) == {"r2": 3}


@pytest.mark.parametrize(
    "rule", ["one rack", "more members than are needed", "parts of one member", "a part of two members"]
)
def test_every_way_is_tried_where_the_order_of_members_leaves_one_without_a_host(
    driver: Driver, rule: str
) -> None:
    """In the order of their names, or of who failed, the last one has none, as `a` takes the host that it prefers."""
    racks(driver, "a", r1=1, r2=3)
    hosts = {"a": ("r1-0", "r2-1", "r2-2"), "b": ("r2-0", "r2-1"), "c": ("r2-0",)}
    if rule == "more members than are needed":
        hosts = {"no-place": ("nowhere",), **hosts}
    for name, allowed in hosts.items():
        own = {PART: name, PART_MIN_COUNT: "1"}
        asked = {"one rack": {REQUIRED_TOPOLOGY: RACK}, "parts of one member": own}
        if rule == "a part of two members":
            asked[rule] = (
                {PART: "p", PART_MIN_COUNT: "2", PART_REQUIRED_TOPOLOGY: RACK} if name != "c" else own
            )
        driver.pod(
            name,
            labels={GROUP: "g", MIN_COUNT: "3"},
            annotations=asked.get(rule, {}),
            cpu="1",
            affinity=affinity(
                node_required=[node_term(named=[f"in {host}"]) for host in allowed],
                node_preferred=[(100, node_term(named=["in r2-1"]))],
            ),
        )
    nodes, is_in_one_rack = placed(driver), rule in ("one rack", "a part of two members")
    assert {"b": "r2-1", "c": "r2-0"}.items() < nodes.items()
    assert nodes["a"] in ({"r2-2"} if is_in_one_rack else {"r2-2", "r1-0"})


def test_a_rack_is_tried_where_a_member_meets_the_affinity_that_a_pod_meets_elsewhere_alone(
    driver: Driver,
) -> None:
    """The member that waits for the other one has no room in any rack before that one has its place."""
    driver.node("r1-0", labels={RACK: "r1"}, allocatable={"cpu": "1", "pods": "10"})
    driver.node("r2-0", labels={RACK: "r2"}, allocatable={"cpu": "2", "pods": "10"})
    driver.pod("elsewhere", labels={"app": "web"}, node="r1-0", cpu="1")
    beside = affinity(required=[term(RACK, selector("app=web"))])
    labels, annotations = {GROUP: "g", MIN_COUNT: "2"}, {REQUIRED_TOPOLOGY: RACK}
    driver.pod("a", labels=labels, annotations=annotations, cpu="1", affinity=beside)
    driver.pod("b", labels={**labels, "app": "web"}, annotations=annotations, cpu="1")
    assert placed(driver) == {"a": "r2-0", "b": "r2-0"}


@pytest.mark.parametrize("rule", ["share", "spread"])
def test_a_rack_is_tried_where_a_member_has_room_only_beside_the_other_one(driver: Driver, rule: str) -> None:
    """The large member adds a second pod to the first host, which a second pod elsewhere allows."""
    web, hosts = selector("app=web"), {"r1-0": 3, "r1-1": 1, **({"r2-0": 2} if rule == "share" else {})}
    for name, n_free in hosts.items():
        labels = {RACK: name.partition("-")[0], HOSTNAME: name}
        driver.node(name, labels=labels, allocatable={"cpu": str(n_free), "pods": "10"})
    half = affinity(anti_required=[{**term(HOSTNAME, web), "maxPodsPerDomain": "50%"}])
    shares = {"affinity-scheduler.io/affinity": json.dumps(half)} if rule == "share" else {}
    sizes = {n: [container(requests={"cpu": str(n)})] for n in (1, 2)}
    driver.pod("running", labels={"app": "web"}, annotations=shares, node="r1-0", containers=sizes[1])
    group: Any = {
        "labels": {GROUP: "g", MIN_COUNT: "2", "app": "web"},
        "annotations": {REQUIRED_TOPOLOGY: RACK},
    }
    evenly = [spread(HOSTNAME, web)] if rule == "spread" else []
    driver.pod("large", containers=sizes[2], spread=evenly, **group)
    driver.pod("small", containers=sizes[1], **group)
    assert placed(driver) == {"large": "r1-0", "small": "r1-1"}

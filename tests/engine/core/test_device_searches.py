"""Searches of nodes for devices: they come in pieces, go on in the next one, and ask nodes that are alike together."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest

from scheduler.engine.model.claim_writes import ClaimReservation
from scheduler.engine.model.fallback import FALLBACK
from scheduler.engine.model.instructions import Instruction, WriteReservation
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.stimuli import CycleDue
from scheduler.engine.plugins.dynamic_resources.answers import ENDED_AT_LIMIT
from scheduler.engine.plugins.dynamic_resources.pool_index import PoolIndex
from scheduler.engine.queueing.queued_pod import SubQueue
from tests.engine.core.claim_cluster import ClaimCluster
from tests.proof.hostile.claims import N_DEVICES, costly, distinct_devices
from tests.support.build import ZONE, Json, affinity, selector, term
from tests.support.device_documents import DRIVER, device_slice, resource_claim, selecting_claim, using_claims
from tests.support.driving import condition_of, each_of

_N_NODES = 100
_INDEX = f"{DRIVER}/index"

# The first search of all nodes: it has the answer that one piece would have.


@pytest.fixture
def cluster() -> ClaimCluster:
    """Return a cluster in which no two devices are equal."""
    cluster = ClaimCluster(nodes=())
    for number in range(_N_NODES):
        cluster.node(f"n{number:03}")
        cluster.show(distinct_devices(f"n{number:03}", number))
    return cluster


def _pieces(cluster: ClaimCluster, claim: Json) -> tuple[int, list[Instruction]]:
    """Have a pod with the claim tried; return the number of pieces, and the instructions."""
    cluster.apply(claim)
    cluster.using("c")
    machine, n_pieces = cluster.machine, 1
    instructions = machine.handle(CycleDue(), cluster.now_s)
    while machine.is_in_cycle:
        assert (instructions, machine.state.is_provisional) == ([], True)
        instructions, n_pieces = machine.step(), n_pieces + 1
    return n_pieces, instructions


def test_the_only_device_is_found_on_the_last_node(cluster: ClaimCluster) -> None:
    last = _N_NODES * N_DEVICES - 1
    n_pieces, instructions = _pieces(
        cluster, selecting_claim("c", f'device.attributes["{DRIVER}"].index == {last}')
    )
    assert n_pieces > 4
    (reserve,) = instructions
    assert isinstance(reserve, WriteReservation)
    (write,) = reserve.writes
    assert isinstance(write, ClaimReservation)
    assert write.allocation is not None
    (device,) = write.allocation.devices.results
    assert (device.pool, device.device) == (f"n{_N_NODES - 1:03}", f"gpu-{N_DEVICES - 1}")


def test_no_node_has_the_device(cluster: ClaimCluster) -> None:
    n_pieces, instructions = _pieces(
        cluster, selecting_claim("c", f'device.attributes["{DRIVER}"].index < 0')
    )
    assert n_pieces > 4
    told = condition_of(instructions)
    assert told.message.startswith(f"0/{_N_NODES} nodes are available: {_N_NODES} cannot allocate all claims")
    assert cluster.machine.handle(CycleDue(), cluster.now_s) == []


def test_new_slices_are_looked_at_in_pieces(cluster: ClaimCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.engine.plugins.dynamic_resources.pool_index._POOLS_PER_PIECE", 10)
    monkeypatch.setattr("scheduler.engine.plugins.dynamic_resources.node_answers._DEVICES_PER_PIECE", 10**9)
    n_pieces, _ = _pieces(cluster, selecting_claim("c", "true"))
    assert n_pieces == _N_NODES // 10 + 1


def test_selectors_of_many_devices_take_several_budgets_of_one_attempt(
    cluster: ClaimCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.engine.plugins.dynamic_resources.selection.MAX_COST", 9000)
    cluster.apply(selecting_claim("c", f'device.attributes["{DRIVER}"].index == {_N_NODES * N_DEVICES - 1}'))
    cluster.using("c")
    (reserve,) = cluster.cycle()
    assert isinstance(reserve, WriteReservation)
    assert reserve.node_name == f"n{_N_NODES - 1:03}"


def test_selectors_that_take_too_many_pieces_are_an_error_and_go_on_after_a_backoff(
    cluster: ClaimCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.engine.plugins.dynamic_resources.selection.MAX_COST", 900)
    cluster.apply(selecting_claim("c", f'device.attributes["{DRIVER}"].index < 0'))
    pod = cluster.using("c")
    assert condition_of(cluster.cycle()).reason == "SchedulerError"
    queued = cluster.queued(pod.uid)
    assert (queued.sub_queue, queued.attempts) == (SubQueue.BACKOFF, 1)
    assert cluster.cycle() == []


def test_a_costly_selector_takes_no_second_budget(cluster: ClaimCluster) -> None:
    """Its pod backs off: it would take the time of others."""
    cluster.apply(selecting_claim("c", f"!({costly(4, 1)})"))
    cluster.using("c")
    assert condition_of(cluster.cycle()).reason == "SchedulerError"


def test_a_group_takes_all_pieces_in_its_cycle(
    cluster: ClaimCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its members would wait for a backoff between two attempts, and hold nothing meanwhile."""
    monkeypatch.setattr("scheduler.engine.plugins.dynamic_resources.selection.MAX_COST", 9000)
    for number in range(2):
        last = f'device.attributes["{DRIVER}"].index >= {(_N_NODES - 1) * N_DEVICES}'
        cluster.apply(selecting_claim(f"c{number}", last))
        cluster.using(f"c{number}", name=f"member-{number}", labels={GROUP: "g", MIN_COUNT: "2"})
    reserved = each_of(cluster.cycle(), WriteReservation)
    assert [each.node_name for each in reserved] == [f"n{_N_NODES - 1:03}"] * 2


def test_a_rule_is_relaxed_for_a_pod_whose_search_takes_several_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether the pod fits without the rule takes a search too, which may be unfinished: it ends no process."""
    monkeypatch.setattr("scheduler.engine.plugins.dynamic_resources.selection.MAX_COST", 9000)
    cluster = ClaimCluster(nodes=())
    for number in range(_N_NODES):
        cluster.node(f"n{number:03}", labels={ZONE: "z"})
        cluster.show(distinct_devices(f"n{number:03}", number))
    cluster.pod("first", labels={"app": "web"}, node="n000")
    cluster.apply(selecting_claim("c", f'device.attributes["{DRIVER}"].index == {_N_NODES * N_DEVICES - 1}'))
    rule = {"rule": "podAntiAffinity", "topologyKey": ZONE, "afterSeconds": 60}
    cluster.pod(
        "p",
        labels={"app": "web"},
        affinity=affinity(anti_required=[term(ZONE, selector("app=web"))]),
        annotations={FALLBACK: json.dumps([rule])},
        spec=using_claims("c"),
    )
    told = cluster.live(61)
    assert [each.node_name for each in each_of(told, WriteReservation)] == [f"n{_N_NODES - 1:03}"]


# Searches that take more steps than one piece may.


def _slice(node: str, indexes: list[int]) -> Json:
    published = device_slice(node, len(indexes))
    for device, index in zip(published["spec"]["devices"], indexes, strict=True):
        device["attributes"] = {"index": {"int": index}}
    return published


def _claim(name: str, n_others: int, **more: Any) -> Json:
    """Return a claim of `n_others` devices that differ, and of a pair of equal ones."""
    claim = resource_claim(name)
    exactly = claim["spec"]["devices"]["requests"][0]["exactly"]
    claim["spec"]["devices"] = {
        "requests": [
            {"name": "others", "exactly": {**exactly, "count": n_others}},
            {"name": "pair", "exactly": {**exactly, "count": 2}},
        ],
        "constraints": [
            {"distinctAttribute": _INDEX, "requests": ["others"]},
            {"matchAttribute": _INDEX, "requests": ["pair"]},
        ],
        **more,
    }
    return claim


def _cluster(*slices: Json) -> ClaimCluster:
    cluster = ClaimCluster(nodes=())
    for each in slices:
        cluster.node(each["spec"]["nodeName"])
        cluster.show(each)
    return cluster


def _ask(cluster: ClaimCluster, claim: Json) -> None:
    cluster.apply(claim)
    name = claim["metadata"]["name"]
    cluster.using(name, name=name)


def _next_attempt(cluster: ClaimCluster) -> list[Instruction]:
    """Run an attempt, later than any backoff."""
    instructions = cluster.cycle()
    cluster.now_s += 60.0
    cluster.pass_time(0.0)
    return instructions


def _reservation(instructions: list[Instruction]) -> ClaimReservation | None:
    for each in instructions:
        if isinstance(each, WriteReservation):
            (write,) = each.writes
            assert isinstance(write, ClaimReservation)
            return write
    return None


def _devices(write: ClaimReservation | None) -> list[int]:
    assert write is not None
    assert write.allocation is not None
    return [int(each.device.removeprefix("gpu-")) for each in write.allocation.devices.results]


@pytest.mark.parametrize(("n_devices", "n_pieces"), [(12, 9), (13, 15)])
def test_a_search_goes_on_in_the_next_piece(n_devices: int, n_pieces: int) -> None:
    """The pair is the first device and the last: found once every choice of others with the first has failed."""
    cluster = _cluster(_slice("n", [*range(n_devices - 1), 0]))
    _ask(cluster, _claim("c", 5))
    machine = cluster.machine
    instructions = machine.handle(CycleDue(), cluster.now_s)
    for _ in range(n_pieces - 1):
        assert (instructions, machine.is_in_cycle) == ([], True)
        instructions = machine.step()
    assert _devices(_reservation(instructions)) == [*range(1, 6), 0, n_devices - 1]


def test_each_pod_gets_what_is_its_own_from_a_search_of_its_form() -> None:
    """The second pod takes the node that the search for the first has answered, with a configuration of its own."""
    cluster = _cluster(*(_slice(node, [*range(11), 0]) for node in ("a", "b")))
    for number in range(2):
        opaque = {"driver": DRIVER, "parameters": {"number": number}}
        _ask(cluster, _claim(f"c{number}", 5, config=[{"opaque": opaque}]))
    writes = []
    for _ in range(20):
        write = _reservation(_next_attempt(cluster))
        if write is not None:
            writes.append(write)
    assert sorted(each.obj.key for each in writes) == ["default/c0", "default/c1"]
    for write in writes:
        assert write.allocation is not None
        (config,) = write.allocation.devices.config
        assert config.opaque is not None
        assert write.obj.name.removeprefix("c") in bytes(config.opaque.parameters).decode()


def test_a_search_begins_again_once_the_devices_have_changed() -> None:
    """Two nodes take more steps than one attempt; the second has a pair before the next attempt comes to it."""
    cluster = _cluster(*(_slice(node, [*range(24)]) for node in ("m", "n")))
    _ask(cluster, _claim("c", 5))
    told = condition_of(_next_attempt(cluster))
    assert told.reason == "SchedulerError"
    cluster.show(_slice("n", [*range(11), 0, 99, 99]))
    assert _devices(_reservation(_next_attempt(cluster))) == [*range(5), 12, 13]


def test_a_search_ends_after_its_steps_in_all_pieces() -> None:
    """There is no pair: the node is asked no more, until its devices change."""
    cluster = _cluster(_slice("n", [*range(24)]))
    _ask(cluster, _claim("c", 8))
    told = condition_of(_next_attempt(cluster))
    assert told.message.startswith(f"0/1 nodes are available: 1 {ENDED_AT_LIMIT}")
    assert cluster.cycle() == []
    cluster.show(_slice("n", [*range(24), 0, 0]))
    assert _devices(_reservation(_next_attempt(cluster)))[-2:] == [24, 25]


# Pools that many nodes have: their nodes are asked together, and apart once they differ.


def _rack(name: str, n_devices: int) -> Json:
    """Return a pool that the nodes of the rack reach."""
    document = device_slice(f"pool-{name}", n_devices)
    del document["spec"]["nodeName"]
    of_rack = {"matchExpressions": [{"key": "rack", "operator": "In", "values": [name]}]}
    document["spec"]["nodeSelector"] = {"nodeSelectorTerms": [of_rack]}
    return document


def _two_racks(n_devices: int) -> ClaimCluster:
    """Return nodes in two racks, each with so many devices."""
    cluster = ClaimCluster(nodes=())
    for number in range(20):
        cluster.node(f"n{number}", labels={"rack": "rs"[number % 2]})
    for rack in "rs":
        cluster.show(_rack(rack, n_devices))
    return cluster


def _next_node(cluster: ClaimCluster) -> str:
    """Return where a pod with a claim of its own goes."""
    _ask(cluster, resource_claim(f"c{len(cluster.server.claims)}"))
    asked = cluster.reserve()
    cluster.write(asked)
    cluster.watch()
    cluster.cycles()
    cluster.audit()
    return asked.node_name


def test_a_node_that_moves_to_another_rack_has_its_devices() -> None:
    """Rack r has devices left, rack s has none; a node of s comes to r, and all other nodes of r are closed."""
    cluster = _two_racks(4)
    cluster.show(_rack("s", 0))
    assert all(_next_node(cluster) for _ in range(2))
    for number in range(0, 20, 2):
        cluster.node(f"n{number}", labels={"rack": "r"}, unschedulable=True)
    cluster.node("n3", labels={"rack": "r"})
    assert _next_node(cluster) == "n3"


def test_slices_that_change_are_seen() -> None:
    cluster = _two_racks(1)
    assert len({int(_next_node(cluster)[1:]) % 2 for _ in range(2)}) == 2
    cluster.show(_rack("s", 2))
    assert int(_next_node(cluster)[1:]) % 2 == 1


def test_nodes_with_equal_pools_are_asked_together() -> None:
    """The pools are looked up for a few nodes, not for each, once they are known to be the same."""
    cluster = _two_racks(8)
    assert all(_next_node(cluster) for _ in range(2))
    with mock.patch.object(PoolIndex, "pools", autospec=True, side_effect=PoolIndex.pools) as pools:
        _next_node(cluster)
    assert pools.call_count < 10

"""The first search of all nodes for a claim: it comes in pieces, and has the answer that one piece would have."""

from __future__ import annotations

import json

import pytest

from scheduler.engine.model.claim_writes import ClaimReservation
from scheduler.engine.model.fallback import FALLBACK
from scheduler.engine.model.instructions import Instruction, WriteReservation
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.stimuli import CycleDue
from scheduler.engine.queueing.queued_pod import SubQueue
from tests.engine.core.claim_cluster import ClaimCluster
from tests.proof.hostile.claims import N_DEVICES, costly, distinct_devices
from tests.support.build import ZONE, Json, affinity, selector, term
from tests.support.device_documents import DRIVER, selecting_claim, using_claims
from tests.support.driving import condition_of, each_of

_N_NODES = 100


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

"""Searches for devices that take more steps than one piece may: they go on in the next one."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.engine.model.claim_writes import ClaimReservation
from scheduler.engine.model.instructions import Instruction, WriteReservation
from scheduler.engine.model.stimuli import CycleDue
from scheduler.engine.plugins.dynamic_resources.answers import ENDED_AT_LIMIT
from tests.engine.core.claim_cluster import ClaimCluster
from tests.support.build import Json
from tests.support.device_documents import DRIVER, device_slice, resource_claim
from tests.support.driving import condition_of

_INDEX = f"{DRIVER}/index"


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

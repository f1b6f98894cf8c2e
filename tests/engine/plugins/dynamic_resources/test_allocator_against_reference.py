"""
The allocator against a plain one that tries every combination, on random small clusters.

`pytest tests/engine/plugins/dynamic_resources/test_allocator_against_reference.py --allocations 100000` compares so
many, in two minutes of CPU.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec
import pytest

from scheduler.engine.model.allocations import Allocation
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.plugins.dynamic_resources.allocator import Allocator
from scheduler.engine.plugins.dynamic_resources.answers import NotAllocated
from scheduler.engine.plugins.dynamic_resources.selection import SelectorResults
from scheduler.engine.syntax.quantity import parse_quantity
from tests.engine.plugins.dynamic_resources.clusters import allocated, decoded, indexed, node_of
from tests.engine.plugins.dynamic_resources.device_clusters import NODES, Cluster, cluster, matches
from tests.reference.device_allocator import Allocated, DeviceAllocator, Taken, TooLongError, consumed_by

Json = dict[str, Any]
#: More steps than a search on a cluster of this size takes.
_NO_LIMIT = 10**9
_LABELS = {"node-0": {"zone": "z"}, "node-1": {}}


#: Allocations that one test compares.
_PER_TEST = 500


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Draw as many allocations as `--allocations` asks for, in several tests."""
    if "part" in metafunc.fixturenames:
        n_wanted = metafunc.config.option.allocations or _PER_TEST
        metafunc.parametrize("part", range(-(-n_wanted // _PER_TEST)))


def test_claims_get_the_devices_that_the_reference_gives(part: int, pytestconfig: pytest.Config) -> None:
    chance = Random(f"{pytestconfig.getoption('--hypothesis-seed')} {part}")
    n_compared = 0
    while n_compared < _PER_TEST:
        n_compared += _compare(cluster(chance))


def _compare(drawn: Cluster) -> int:
    """
    Allocate two claims of a pod at a time, and return how often; then they hold their devices.

    On each node they get the same devices as by the reference, or the same message.
    """
    slices, classes, claims = drawn
    published = [decoded(DeviceKind.SLICE, each) for each in slices]
    by_name = {each["metadata"]["name"]: decoded(DeviceKind.CLASS, each) for each in classes}
    results = SelectorResults()
    stored: list[Any] = []
    n_compared = 0
    for number in range(0, len(claims), 2):
        of_pod = claims[number : number + 2]
        wanted = [decoded(DeviceKind.CLAIM, each) for each in of_pod]
        chosen = None
        for name in NODES:
            reference = Allocated()
            for allocation in stored:
                reference.add(json.loads(msgspec.json.encode(allocation)))
            node = {"metadata": {"name": name, "labels": _LABELS[name]}}
            try:
                expected = DeviceAllocator(node, of_pod, slices, classes, reference, matches).allocate()
            except TooLongError:
                return n_compared
            n_compared += 1
            index, target = indexed(published), node_of(name, _LABELS[name])
            allocator = Allocator(index, allocated(stored), by_name, results, seed="seed", n_steps=_NO_LIMIT)
            answer = allocator.allocate(target, wanted)
            if isinstance(answer, NotAllocated):
                assert expected == answer.text
                continue
            assert not isinstance(expected, str), (expected, answer)
            assert [list(map(_text, each)) for each in expected] == [_texts(each) for each in answer]
            chosen = answer
        stored += chosen or ()
    return n_compared


def _text(taken: Taken) -> Json:
    is_shared = taken.entry.device.get("allowMultipleAllocations")
    consumed = consumed_by(taken) if is_shared else {}
    return {
        "device": (taken.full_name, *taken.entry.key),
        "admin": bool(taken.query.get("adminAccess")),
        "consumed": {name: int(amount * 10**9) for name, amount in consumed.items()},
    }


def _texts(allocation: Allocation) -> list[Json]:
    return [
        {
            "device": (each.request, each.driver, each.pool, each.device),
            "admin": bool(each.admin_access),
            "consumed": {
                name: parse_quantity(amount or 0).nano
                for name, amount in (each.consumed_capacity or {}).items()
            },
        }
        for each in allocation.devices.results
    ]

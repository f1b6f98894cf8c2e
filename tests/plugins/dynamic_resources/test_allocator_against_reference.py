"""
The allocator against a plain one that tries every combination, on random small clusters.

`pytest tests/plugins/dynamic_resources/test_allocator_against_reference.py --hypothesis-profile night` draws 100,000
clusters, in 25 minutes of CPU.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given

from scheduler.model.allocations import Allocation
from scheduler.model.device_decoder import DeviceDecoder
from scheduler.model.devices import DeviceKind
from scheduler.plugins.dynamic_resources.allocator import Allocator
from scheduler.plugins.dynamic_resources.inputs import Inputs, Refusal, TargetNode
from scheduler.plugins.dynamic_resources.selection import SelectorResults
from scheduler.syntax.quantity import parse_quantity
from tests.plugins.dynamic_resources.clusters import PlainAllocated, indexed
from tests.plugins.dynamic_resources.device_clusters import CLUSTERS, NODES, Cluster, matches
from tests.reference.device_allocator import Allocated, DeviceAllocator, Taken, consumed_by

Json = dict[str, Any]
#: More steps than a search on a cluster of this size takes.
_NO_LIMIT = 10**9
_LABELS = {"node-0": {"zone": "z"}, "node-1": {}}


@given(CLUSTERS)
def test_claims_get_the_devices_that_the_reference_gives(cluster: Cluster) -> None:
    """Two claims of a pod at a time get the same devices on each node, or the same message; then they hold them."""
    slices, classes, claims = cluster
    decoder = DeviceDecoder()
    decoded = [_decoded(decoder, DeviceKind.SLICE, each) for each in slices]
    by_name = {each["metadata"]["name"]: _decoded(decoder, DeviceKind.CLASS, each) for each in classes}
    results = SelectorResults()
    stored: list[Any] = []
    for number in range(0, len(claims), 2):
        of_pod = claims[number : number + 2]
        wanted = [_decoded(decoder, DeviceKind.CLAIM, each) for each in of_pod]
        chosen = None
        for name in NODES:
            reference = Allocated()
            for allocation in stored:
                reference.add(json.loads(msgspec.json.encode(allocation)))
            node = {"metadata": {"name": name, "labels": _LABELS[name]}}
            expected = DeviceAllocator(node, of_pod, slices, classes, reference, matches).allocate()
            inputs = Inputs(PlainAllocated(stored), by_name)
            answer = Allocator(indexed(decoded), inputs, results, seed="seed", n_steps=_NO_LIMIT).allocate(
                TargetNode(name, _LABELS[name]), wanted
            )
            if isinstance(answer, Refusal):
                assert expected == answer.text
                continue
            assert not isinstance(expected, str), (expected, answer)
            assert [list(map(_text, each)) for each in expected] == [_texts(each) for each in answer]
            chosen = answer
        stored += chosen or ()


def _decoded(decoder: DeviceDecoder, kind: DeviceKind, raw: Json) -> Any:
    return decoder.decode(kind, json.dumps(raw).encode())


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

"""Where the allocator decides otherwise than upstream's, and how far it searches."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import msgspec
import pytest

from scheduler.engine.model.allocations import Allocation
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.devices import DeviceClass, ResourceSlice
from scheduler.engine.model.nodes import Node
from scheduler.engine.plugins.dynamic_resources.allocator import MAX_STEPS, Allocator
from scheduler.engine.plugins.dynamic_resources.answers import Answer, NotAllocated
from scheduler.engine.plugins.dynamic_resources.selection import SelectorResults
from tests.engine.plugins.dynamic_resources.clusters import allocated, claim_of, indexed, node_of, slice_of

Json = dict[str, Any]

_NODE = node_of("node-0", {})
_ONE_COUNTER = {"name": "set", "counters": {"c": {"value": "1"}}}
_CONSUMES_IT = [{"counterSet": "set", "counters": {"c": {"value": "1"}}}]


def slices(driver: str, devices: list[Json], counters: Json | None = None) -> list[ResourceSlice]:
    """Return the slices of a pool of the node."""
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1 if counters is None else 2}
    specs: list[Json] = [{"driver": driver, "pool": pool, "nodeName": "node-0", "devices": devices}]
    if counters is not None:
        specs.append({"driver": driver, "pool": pool, "nodeName": "node-0", "sharedCounters": [counters]})
    return [slice_of(f"{driver}-{i}", spec) for i, spec in enumerate(specs)]


def claim(requests: list[Json], constraints: list[Json] | None = None) -> ResourceClaim:
    """Return a claim."""
    spec = {"devices": {"requests": requests, "constraints": constraints or []}}
    return claim_of({"metadata": {"name": "c", "namespace": "default"}, "spec": spec})


def request(name: str, count: int = 1, expression: str | None = None) -> Json:
    """Return a request for this number of devices of class "any" that an expression selects."""
    selectors = [] if expression is None else [{"cel": {"expression": expression}}]
    exactly = {
        "deviceClassName": "any",
        "allocationMode": "ExactCount",
        "count": count,
        "selectors": selectors,
    }
    return {"name": name, "exactly": exactly}


def allocate(
    on_node: list[ResourceSlice],
    wanted: ResourceClaim,
    n_steps: int = MAX_STEPS,
    class_selectors: tuple[str | None, ...] = (),
    node: Node = _NODE,
) -> tuple[Allocation, ...] | NotAllocated:
    """Return what the claim gets on the node."""
    classes = {"any": DeviceClass("any", "", "", class_selectors, (), "", "")}
    allocator = Allocator(
        indexed(on_node), allocated([]), classes, SelectorResults(), seed="seed", n_steps=n_steps
    )
    return allocator.allocate(node, [wanted])


def devices_of(answer: tuple[Allocation, ...] | NotAllocated) -> list[str]:
    """Return the names of the devices that were allocated."""
    assert not isinstance(answer, NotAllocated)
    return [result.device for allocation in answer for result in allocation.devices.results]


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param({"taints": [{"key": "k", "effect": "NoSchedule"}]}, id="tainted"),
        pytest.param({"attributes": {}}, id="refused by a constraint"),
    ],
)
def test_a_refused_device_leaves_no_counters_behind(refused: Json) -> None:
    """The counter that the refused device would take is free for the next one; upstream has no device then."""
    free = {"name": "d1", "attributes": {"numa": {"int": 0}}, "consumesCounters": _CONSUMES_IT}
    pool = slices("a.example.com", [{**free, "name": "d0", **refused}, free], _ONE_COUNTER)
    wanted = claim([request("r")], [{"matchAttribute": "a.example.com/numa"}])
    assert devices_of(allocate(pool, wanted)) == ["d1"]


def test_counters_of_two_drivers_with_equal_pools_are_apart() -> None:
    """Each driver's pool has its own counter; upstream takes both for one, and has no device for the second request."""
    device = {"name": "d", "consumesCounters": _CONSUMES_IT}
    both = [
        *slices("a.example.com", [device], _ONE_COUNTER),
        *slices("b.example.com", [device], _ONE_COUNTER),
    ]
    wanted = claim(
        [
            request("r", expression='device.driver == "a.example.com"'),
            request("s", expression='device.driver == "b.example.com"'),
        ]
    )
    assert devices_of(allocate(both, wanted)) == ["d", "d"]


def test_an_alternative_gives_way_to_the_next_if_the_claim_would_have_too_many_devices() -> None:
    on_node = slices("x", [{"name": f"d{number}"} for number in range(40)])
    counts = {"many": 13, "few": 12}
    alternatives = [{**request(name, count)["exactly"], "name": name} for name, count in counts.items()]
    wanted = claim([request("q", 20), {"name": "r", "firstAvailable": alternatives}])
    assert len(devices_of(allocate(on_node, wanted))) == 32


def test_equal_devices_are_tried_once() -> None:
    """Two requests for 16 of 31 equal devices fail after few steps; upstream tries 300 million combinations."""
    pool = slices(
        "a.example.com", [{"name": f"d{each}", "attributes": {"uuid": {"int": each}}} for each in range(31)]
    )
    wanted = claim([request("r", 16), request("s", 16)])
    answer = allocate(pool, wanted)
    assert isinstance(answer, NotAllocated)
    assert answer.answer is Answer.NO_DEVICES


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (
            {"deviceClassName": "none"},
            'could not retrieve device class none: deviceclass.resource.k8s.io "none" not found',
        ),
        ({"allocationMode": "Some"}, "unsupported count mode Some"),
    ],
    ids=["of a class that is gone", "of another mode"],
)
def test_a_request_that_cannot_be_searched_for_is_an_error(changed: Json, problem: str) -> None:
    """Source: allocator_incubating.go, validateDeviceRequest (kubernetes 1.36)."""
    asked = request("r")
    asked["exactly"] |= changed
    answer = allocate(slices("a.example.com", [{"name": "d"}]), claim([asked]))
    assert answer == NotAllocated(f"claim default/c, request r: {problem}")


def test_a_class_that_selects_by_something_unknown_is_an_error_of_each_device() -> None:
    wanted = claim([request("r")])
    answer = allocate(slices("a.example.com", [{"name": "d"}]), wanted, class_selectors=("true", None))
    says = "class any: selector #1: CEL expression empty (unsupported selector type?)"
    assert answer == NotAllocated(says)


@pytest.mark.parametrize("is_per_device", [False, True])
def test_a_selector_of_nodes_that_cannot_be_parsed_is_an_error(*, is_per_device: bool) -> None:
    """Source: pools_incubating.go, GatherPools (kubernetes 1.36), which prints the whole device."""
    spec: Json = {"driver": "a", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}
    device: Json = {"name": "d"}
    spec["devices"] = [device]
    expression = {"key": "zone", "operator": "Is", "values": ["z"]}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    if is_per_device:
        spec["perDeviceNodeSelection"], device["nodeSelector"] = True, selector
    else:
        spec["nodeSelector"] = selector
    answer = allocate([slice_of("s", spec)], claim([request("r")]))
    assert isinstance(answer, NotAllocated)
    assert answer.answer is Answer.ERROR
    what = "device d in slice s" if is_per_device else "slice s"
    assert answer.text.startswith(
        f"gather pool information: failed to perform node selection for {what}: "
        "failed to parse node selector &NodeSelector{NodeSelectorTerms:"
    )


def test_a_search_without_end_is_ended() -> None:
    """A search over devices that all differ ends at its limit, and says so."""
    devices = [{"name": f"d{each}", "attributes": {"i": {"int": each}}} for each in range(40)]
    # One request for 16 devices that differ in an attribute of a match constraint: no combination does.
    pool = slices("a.example.com", devices)
    wanted = claim(
        [request("r", 8), request("s", 2)],
        [{"distinctAttribute": "a.example.com/i"}, {"matchAttribute": "a.example.com/i", "requests": ["s"]}],
    )
    answer = allocate(pool, wanted)
    assert isinstance(answer, NotAllocated)
    assert answer.answer is Answer.LIMIT


def test_a_device_is_given_without_a_step() -> None:
    """A node whose first devices do serves the claim even if the steps are spent."""
    pool = slices("a.example.com", [{"name": "d0"}, {"name": "d1"}])
    assert devices_of(allocate(pool, claim([request("r", 2)]), n_steps=0)) == ["d0", "d1"]


@pytest.mark.parametrize(
    ("policy", "consumed"),
    [
        ({}, "4Gi"),
        ({"default": "1Gi", "validValues": ["2Gi"]}, "1Gi"),
    ],
    ids=["that says nothing", "whose default is none of its values"],
)
def test_a_request_without_an_amount_takes_what_the_policy_says(policy: Json, consumed: str) -> None:
    """All of the capacity without a default. Source: consumable_capacity.go (kubernetes 1.36)."""
    memory = {"memory": {"value": "4Gi", "requestPolicy": policy}}
    pool = slices("a.example.com", [{"name": "d", "allowMultipleAllocations": True, "capacity": memory}])
    answer = allocate(pool, claim([request("r")]))
    assert not isinstance(answer, NotAllocated)
    assert [each.consumed_capacity for each in answer[0].devices.results] == [{"memory": consumed}]


def test_each_share_of_a_device_has_its_own_uuid() -> None:
    """As the API server asks of a shareID, and drivers count by it."""
    shared = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "4Gi"}}}
    pool = slices("a.example.com", [{"name": "d0", **shared}])
    answer = allocate(pool, claim([_part("r"), _part("s")]))
    assert not isinstance(answer, NotAllocated)
    ids = [result.share_id for result in answer[0].devices.results]
    assert [str(UUID(each)) for each in ids if each] == ids
    assert len(set(ids)) == 2


def test_an_allocation_has_each_requirement_of_its_devices_nodes_once() -> None:
    """Those of one slice are part of the other's; operators and values tell requirements of a key apart."""
    zone = {"key": "zone", "operator": "In", "values": ["z"]}
    several = [
        zone,
        {"key": "zone", "operator": "NotIn", "values": ["z2"]},
        {"key": "zone", "operator": "NotIn", "values": ["y"]},
        {"key": "rack", "operator": "NotIn", "values": ["y"]},
    ]
    published: list[ResourceSlice] = []
    for driver, expressions in (("a.example.com", [zone]), ("b.example.com", several)):
        spec = {
            "driver": driver,
            "pool": {"name": "fabric", "generation": 1, "resourceSliceCount": 1},
            "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": expressions}]},
            "devices": [{"name": "d"}],
        }
        published.append(slice_of(driver, spec))
    answer = allocate(published, claim([request("r", 2)]), node=node_of("node-0", {"zone": "z"}))
    assert not isinstance(answer, NotAllocated)
    term = {"matchExpressions": several}
    assert json.loads(msgspec.json.encode(answer[0].node_selector)) == {"nodeSelectorTerms": [term]}


def _part(name: str) -> Json:
    """Return a request for a part of a device."""
    made = request(name)
    made["exactly"]["capacity"] = {"requests": {"memory": "1Gi"}}
    return made


def expensive() -> str:
    """Return an expression whose evaluation costs most of what a pod may spend in a cycle."""
    numbers = ", ".join(map(str, range(10)))
    expression = "a + b + c + d >= 0"
    for variable in "dcba":
        expression = f"[{numbers}].all({variable}, {expression})"
    return expression


def test_evaluations_of_a_pod_are_bounded_and_go_on() -> None:
    """Selectors that cost too much for one pod are evaluated over several decisions: their results are kept."""
    pool = slices("a.example.com", [{"name": f"d{each}"} for each in range(20)])
    wanted = claim([request("r", 20, expensive())])
    classes = {"any": DeviceClass("any", "", "", (), (), "", "")}
    index, results = indexed(pool), SelectorResults()
    n_decisions = 1
    while isinstance(
        answer := Allocator(index, allocated([]), classes, results, seed="seed").allocate(_NODE, [wanted]),
        NotAllocated,
    ):
        assert answer.answer is Answer.POSTPONED
        n_decisions += 1
    assert len(devices_of(answer)) == 20
    assert 1 < n_decisions <= 20

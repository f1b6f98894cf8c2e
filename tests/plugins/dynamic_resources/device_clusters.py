"""Random small clusters with devices and claims, as API objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

Json = dict[str, Any]
Cluster = tuple[list[Json], list[Json], list[Json]]

DRIVERS = ("a.example.com", "b.example.com")
NODES = ("node-0", "node-1")
POOLS = (*NODES, "fabric")

#: Expressions of selectors, and what they are in Python.
EXPRESSIONS: dict[str, Callable[[str, Mapping[str, Any]], bool | str]] = {
    'device.driver == "a.example.com"': lambda driver, _: driver == "a.example.com",
    'device.attributes["a.example.com"].?model.orValue("x") == "x"': lambda driver, device: (
        driver != "a.example.com" or device["attributes"].get("model", {}).get("string", "x") == "x"
    ),
    'device.attributes["a.example.com"].model == "x"': lambda driver, device: (
        "no such key: model"
        if driver != "a.example.com" or "model" not in device["attributes"]
        else device["attributes"]["model"]["string"] == "x"
    ),
    "device.allowMultipleAllocations": lambda _, device: bool(device.get("allowMultipleAllocations")),
}


def matches(expression: str, driver: str, device: Mapping[str, Any]) -> bool | str:
    """Return whether an expression of the generator selects a device, or the error."""
    return EXPRESSIONS[expression](driver, device)


def selectors(draw: DrawFn) -> list[Json]:
    """Return a list of selectors, most often empty."""
    name = draw(st.sampled_from([None, None, None, *EXPRESSIONS]))
    return [] if name is None else [{"cel": {"expression": name}}]


@st.composite
def devices(draw: DrawFn, name: str, counters: list[str]) -> Json:
    """Return a device."""
    device: Json = {"name": name, "attributes": {"numa": {"int": draw(st.integers(0, 1))}}}
    if draw(st.booleans()):
        device["attributes"]["model"] = {"string": draw(st.sampled_from("xy"))}
    if draw(st.integers(0, 3)) == 0:
        device["taints"] = [
            {"key": draw(st.sampled_from("kl")), "effect": draw(st.sampled_from(["NoSchedule", "None"]))}
        ]
    if draw(st.integers(0, 2)) == 0:
        device["capacity"] = {"memory": draw(_capacities())}
        if draw(st.booleans()):
            device["allowMultipleAllocations"] = True
    if counters and draw(st.integers(0, 3)) > 0:
        device["consumesCounters"] = [
            {
                "counterSet": draw(st.sampled_from(counters)),
                "counters": {"c": {"value": draw(st.sampled_from("12"))}},
            }
        ]
    if draw(st.integers(0, 7)) == 0:
        device["bindingConditions"] = ["ready"]
    return device


@st.composite
def _capacities(draw: DrawFn) -> Json:
    policies: list[Json | None] = [
        None,
        {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi", "max": "3Gi"}},
        {"default": "1Gi", "validRange": {"min": "1Gi"}},
        {"default": "2Gi", "validValues": ["1Gi", "2Gi", "4Gi"]},
    ]
    policy = draw(st.sampled_from(policies))
    return {"value": "4Gi"} if policy is None else {"value": "4Gi", "requestPolicy": policy}


@st.composite
def pools(draw: DrawFn, driver: str, pool: str) -> list[Json]:
    """Return the slices of a pool: of one node, of the other, or of both."""
    n_slices = draw(st.integers(1, 2))
    kinds: list[list[str]] = [[], [], ["s"], ["s", "t"]]
    counters = draw(st.sampled_from(kinds))
    generation = draw(st.sampled_from([1, 1, 1, 1, 2]))
    n_all = n_slices + bool(counters) + draw(st.sampled_from([0] * 9 + [1]))
    slices: list[Json] = []
    for number in range(n_slices):
        names = [f"d{number}{each}" for each in range(draw(st.integers(1, 3)))]
        if number and draw(st.integers(0, 9)) == 0:
            names[0] = "d00"
        spec: Json = {
            "driver": driver,
            "pool": {
                "name": pool,
                "generation": draw(st.sampled_from([generation] * 9 + [1])),
                "resourceSliceCount": n_all,
            },
            "devices": [draw(devices(name, counters)) for name in names],
        }
        _place(draw, pool, spec)
        slices.append({"metadata": {"name": f"{driver}-{pool}-{number}"}, "spec": spec})
    if counters:
        shared = [
            {"name": name, "counters": {"c": {"value": str(draw(st.integers(1, 3)))}}}
            for name in counters[: draw(st.sampled_from([2, 2, 2, 1]))]
        ]
        spec = {
            "driver": driver,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": n_all},
            "sharedCounters": shared,
            "allNodes": True,
        }
        slices.append({"metadata": {"name": f"{driver}-{pool}-counters"}, "spec": spec})
    return slices


def _place(draw: DrawFn, pool: str, spec: Json) -> None:
    zone = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}]}
    if pool in NODES:
        spec["nodeName"] = pool
        return
    match draw(st.integers(0, 3)):
        case 0:
            spec["allNodes"] = True
        case 1:
            spec["nodeSelector"] = zone
        case 2:
            spec["perDeviceNodeSelection"] = True
            for device in spec["devices"]:
                device.update(
                    draw(
                        st.sampled_from([{"allNodes": True}, {"nodeName": NODES[0]}, {"nodeSelector": zone}])
                    )
                )
        case _:
            spec["nodeName"] = draw(st.sampled_from(NODES))


@st.composite
def queries(draw: DrawFn) -> Json:
    """Return what a request or an alternative asks for."""
    query: Json = {"deviceClassName": draw(st.sampled_from(["any", "some"])), "allocationMode": "ExactCount"}
    query["count"] = draw(st.sampled_from([1] * 6 + [2, 2, 3, 20]))
    if draw(st.integers(0, 7)) == 0:
        query["allocationMode"] = "All"
        query["count"] = 0
    if chosen := selectors(draw):
        query["selectors"] = chosen
    if draw(st.integers(0, 3)) == 0:
        query["tolerations"] = [
            draw(st.sampled_from([{"operator": "Exists"}, {"key": "k", "operator": "Exists"}]))
        ]
    if draw(st.integers(0, 3)) == 0:
        query["capacity"] = {"requests": {"memory": draw(st.sampled_from(["500Mi", "1Gi", "2500Mi", "5Gi"]))}}
    return query


@st.composite
def claims(draw: DrawFn, name: str) -> Json:
    """Return a claim of one to three requests."""
    requests: list[Json] = []
    for number in range(draw(st.integers(1, 3))):
        if draw(st.integers(0, 3)) == 0:
            alternatives = [
                {"name": f"s{each}", **draw(queries())} for each in range(draw(st.integers(1, 3)))
            ]
            requests.append({"name": f"r{number}", "firstAvailable": alternatives})
            continue
        query = draw(queries())
        if draw(st.integers(0, 7)) == 0:
            query["adminAccess"] = True
        requests.append({"name": f"r{number}", "exactly": query})
    spec: Json = {"requests": requests}
    kind = draw(st.sampled_from([None, None, "matchAttribute", "distinctAttribute"]))
    if kind is not None:
        attribute = f"{DRIVERS[0]}/{draw(st.sampled_from(['numa', 'model']))}"
        spec["constraints"] = [
            {kind: attribute, "requests": draw(st.sampled_from([[], ["r0"], ["r0", "r1/s0"]]))}
        ]
    return {"metadata": {"namespace": "default", "name": name, "uid": name}, "spec": {"devices": spec}}


@st.composite
def clusters(draw: DrawFn) -> Cluster:
    """Return slices, classes, and claims in the order in which they are allocated."""
    slices = [
        each
        for driver in draw(st.lists(st.sampled_from(DRIVERS), min_size=1, max_size=2, unique=True))
        for pool in draw(st.lists(st.sampled_from(POOLS), min_size=1, max_size=3, unique=True))
        for each in draw(pools(driver, pool))
    ]
    classes: list[Json] = [
        {"metadata": {"name": "any"}, "spec": {}},
        {"metadata": {"name": "some"}, "spec": {"selectors": selectors(draw)}},
    ]
    return slices, classes, [draw(claims(f"c{each}")) for each in range(draw(st.integers(1, 4)))]


CLUSTERS: SearchStrategy[Cluster] = clusters()

"""Random small clusters with devices and claims, as API objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

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


def selectors(chance: Random) -> list[Json]:
    """Return a list of selectors, most often empty."""
    name = chance.choice([None, None, None, *EXPRESSIONS])
    return [] if name is None else [{"cel": {"expression": name}}]


def devices(chance: Random, name: str, counters: list[str]) -> Json:
    """Return a device."""
    device: Json = {"name": name, "attributes": {"numa": {"int": chance.randint(0, 1)}}}
    if chance.random() < 0.5:
        device["attributes"]["model"] = {"string": chance.choice("xy")}
    if chance.randint(0, 3) == 0:
        device["taints"] = [{"key": chance.choice("kl"), "effect": chance.choice(["NoSchedule", "None"])}]
    if chance.randint(0, 2) == 0:
        device["capacity"] = {"memory": _capacities(chance)}
        if chance.random() < 0.5:
            device["allowMultipleAllocations"] = True
    if counters and chance.randint(0, 3) > 0:
        device["consumesCounters"] = [
            {
                "counterSet": chance.choice(counters),
                "counters": {"c": {"value": chance.choice("12")}},
            }
        ]
    if chance.randint(0, 7) == 0:
        device["bindingConditions"] = ["ready"]
    return device


def _capacities(chance: Random) -> Json:
    policies: list[Json | None] = [
        None,
        {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi", "max": "3Gi"}},
        {"default": "1Gi", "validRange": {"min": "1Gi"}},
        {"default": "2Gi", "validValues": ["1Gi", "2Gi", "4Gi"]},
    ]
    policy = chance.choice(policies)
    return {"value": "4Gi"} if policy is None else {"value": "4Gi", "requestPolicy": policy}


def pools(chance: Random, driver: str, pool: str) -> list[Json]:
    """Return the slices of a pool: of one node, of the other, or of both."""
    n_slices = chance.randint(1, 2)
    kinds: list[list[str]] = [[], [], ["s"], ["s", "t"]]
    counters = chance.choice(kinds)
    generation = chance.choice([1, 1, 1, 1, 2])
    n_all = n_slices + bool(counters) + chance.choice([0] * 9 + [1])
    slices: list[Json] = []
    for number in range(n_slices):
        names = [f"d{number}{each}" for each in range(chance.randint(1, 3))]
        if number and chance.randint(0, 9) == 0:
            names[0] = "d00"
        spec: Json = {
            "driver": driver,
            "pool": {
                "name": pool,
                "generation": chance.choice([generation] * 9 + [1]),
                "resourceSliceCount": n_all,
            },
            "devices": [devices(chance, name, counters) for name in names],
        }
        _place(chance, pool, spec)
        slices.append({"metadata": {"name": f"{driver}-{pool}-{number}"}, "spec": spec})
    if counters:
        shared = [
            {"name": name, "counters": {"c": {"value": str(chance.randint(1, 3))}}}
            for name in counters[: chance.choice([2, 2, 2, 1])]
        ]
        spec = {
            "driver": driver,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": n_all},
            "sharedCounters": shared,
            "allNodes": True,
        }
        slices.append({"metadata": {"name": f"{driver}-{pool}-counters"}, "spec": spec})
    return slices


def _place(chance: Random, pool: str, spec: Json) -> None:
    zone = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}]}
    if pool in NODES:
        spec["nodeName"] = pool
        return
    match chance.randint(0, 3):
        case 0:
            spec["allNodes"] = True
        case 1:
            spec["nodeSelector"] = zone
        case 2:
            spec["perDeviceNodeSelection"] = True
            for device in spec["devices"]:
                device.update(
                    chance.choice([{"allNodes": True}, {"nodeName": NODES[0]}, {"nodeSelector": zone}])
                )
        case _:
            spec["nodeName"] = chance.choice(NODES)


def queries(chance: Random) -> Json:
    """Return what a request or an alternative asks for."""
    query: Json = {"deviceClassName": chance.choice(["any", "some"]), "allocationMode": "ExactCount"}
    query["count"] = chance.choice([1] * 6 + [2, 2, 3, 20])
    if chance.randint(0, 7) == 0:
        query["allocationMode"] = "All"
        query["count"] = 0
    if chosen := selectors(chance):
        query["selectors"] = chosen
    if chance.randint(0, 3) == 0:
        query["tolerations"] = [chance.choice([{"operator": "Exists"}, {"key": "k", "operator": "Exists"}])]
    if chance.randint(0, 3) == 0:
        query["capacity"] = {"requests": {"memory": chance.choice(["500Mi", "1Gi", "2500Mi", "5Gi"])}}
    return query


def claims(chance: Random, name: str) -> Json:
    """Return a claim of one to three requests."""
    requests: list[Json] = []
    for number in range(chance.randint(1, 3)):
        if chance.randint(0, 3) == 0:
            alternatives = [{"name": f"s{each}", **queries(chance)} for each in range(chance.randint(1, 3))]
            requests.append({"name": f"r{number}", "firstAvailable": alternatives})
            continue
        query = queries(chance)
        if chance.randint(0, 7) == 0:
            query["adminAccess"] = True
        requests.append({"name": f"r{number}", "exactly": query})
    spec: Json = {"requests": requests}
    kind = chance.choice([None, None, "matchAttribute", "distinctAttribute"])
    if kind is not None:
        attribute = f"{DRIVERS[0]}/{chance.choice(['numa', 'model'])}"
        spec["constraints"] = [{kind: attribute, "requests": chance.choice([[], ["r0"], ["r0", "r1/s0"]])}]
    return {"metadata": {"namespace": "default", "name": name, "uid": name}, "spec": {"devices": spec}}


def cluster(chance: Random) -> Cluster:
    """Return slices, classes, and claims in the order in which they are allocated."""
    slices = [
        each
        for driver in chance.sample(DRIVERS, chance.randint(1, 2))
        for pool in chance.sample(POOLS, chance.randint(1, 3))
        for each in pools(chance, driver, pool)
    ]
    classes: list[Json] = [
        {"metadata": {"name": "any"}, "spec": {}},
        {"metadata": {"name": "some"}, "spec": {"selectors": selectors(chance)}},
    ]
    drawn = [claims(chance, f"c{each}") for each in range(chance.randint(1, 4))]
    if chance.randint(0, 2) == 0:
        _make_plain(slices, drawn)
    return slices, classes, drawn


def _make_plain(slices: list[Json], drawn: list[Json]) -> None:
    """Leave what most clusters have: devices with attributes, and claims of numbers of them."""
    for each in slices:
        for device in each["spec"].get("devices", ()):
            for field in ("taints", "capacity", "allowMultipleAllocations", "consumesCounters"):
                device.pop(field, None)
    for claim in drawn:
        for request in claim["spec"]["devices"]["requests"]:
            query = request["exactly"] = request.get("exactly") or request.pop("firstAvailable")[0]
            query.pop("name", None)
            query.pop("capacity", None)
            query.pop("adminAccess", None)


#: Clusters whose choices are drawn one by one, so that a failure is made smaller.
CLUSTERS: SearchStrategy[Cluster] = st.builds(cluster, st.randoms(use_true_random=False))

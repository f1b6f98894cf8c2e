"""
The pools of devices that a node reaches.

Source: structured/internal/incubating/pools_incubating.go (kubernetes 1.36).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.reference.question import Object

#: driver, pool
PoolKey = tuple[str, str]


@dataclass
class NodePool:
    """One pool; `state` is usable, incomplete or invalid. The last two have no devices."""

    key: PoolKey
    state: str
    slices: list[Object] = field(default_factory=list)
    elsewhere: list[Object] = field(default_factory=list)


def pools_of(node: Object, slices: Sequence[Object]) -> list[NodePool]:
    """Return the pools of the node, in the order in which they are tried."""
    relevant = [each for each in slices if is_relevant(each, node)]
    pools = []
    for key in {_key(each) for each in relevant}:
        pool = _pool(key, [each for each in relevant if _key(each) == key], slices)
        if pool is not None:
            pools.append(pool)
    pools.sort(key=lambda pool: (any("bindingConditions" in d for d in devices(pool.slices)), pool.key))
    return pools


def devices(slices: list[Object]) -> list[Object]:
    return [device for each in slices for device in each["spec"].get("devices") or []]


def is_relevant(each: Object, node: Object) -> bool:
    """Return whether a slice is for the node."""
    spec = each["spec"]
    if spec.get("sharedCounters"):
        return True
    if spec.get("nodeName") or spec.get("allNodes") or spec.get("nodeSelector"):
        return selects(spec, node)
    if spec.get("perDeviceNodeSelection"):
        return any(selects(device, node) for device in spec.get("devices") or [])
    return False


def selects(part: Object, node: Object) -> bool:
    """Return whether nodeName, allNodes or nodeSelector of a slice or device is for the node."""
    if part.get("nodeName"):
        return bool(part["nodeName"] == node["metadata"]["name"])
    if part.get("allNodes"):
        return True
    terms = (part.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    return any(_matches(term, node) for term in terms)


def _matches(term: Object, node: Object) -> bool:
    """Return whether a term of `In` expressions matches; the generator makes no others."""
    labels = node["metadata"].get("labels") or {}
    expressions = term.get("matchExpressions") or []
    return bool(expressions) and all(labels.get(each["key"]) in each["values"] for each in expressions)


def _key(each: Object) -> PoolKey:
    return each["spec"]["driver"], each["spec"]["pool"]["name"]


def _generation(each: Object) -> int:
    return int(each["spec"]["pool"]["generation"])


def _pool(key: PoolKey, relevant: list[Object], slices: Sequence[Object]) -> NodePool | None:
    newest = max(map(_generation, relevant))
    kept = sorted(
        (each for each in relevant if _generation(each) == newest),
        key=lambda each: str(each["metadata"]["name"]),
    )
    count = kept[0]["spec"]["pool"]["resourceSliceCount"]
    elsewhere: list[Object] = []
    if len(kept) != count:
        whole = [each for each in slices if _key(each) == key]
        if max(map(_generation, whole)) > newest:
            return None
        current = [each for each in whole if _generation(each) == newest]
        if len(current) != count:
            return NodePool(key, "incomplete")
        names = [each["metadata"]["name"] for each in kept]
        elsewhere = [each for each in current if each["metadata"]["name"] not in names]
    if not _is_valid(kept, elsewhere):
        return NodePool(key, "invalid")
    return NodePool(
        key, "usable", [each for each in kept if not each["spec"].get("sharedCounters")], elsewhere
    )


def _is_valid(kept: list[Object], elsewhere: list[Object]) -> bool:
    names = [device["name"] for device in devices([s for s in kept if not s["spec"].get("sharedCounters")])]
    sets = [counters for each in kept for counters in each["spec"].get("sharedCounters") or []]
    set_names = [counters["name"] for counters in sets]
    if len(set(names)) < len(names) or len(set(set_names)) < len(set_names):
        return False
    declared = {(counters["name"], counter) for counters in sets for counter in counters["counters"]}
    consumed = {
        (each["counterSet"], counter)
        for device in devices(kept + elsewhere)
        for each in device.get("consumesCounters") or []
        for counter in each["counters"]
    }
    return consumed <= declared


def declared_counters(pool: NodePool, slices: Sequence[Object]) -> dict[tuple[str, str], str]:
    """Return the counters of a usable pool: its generation's slices with counters are relevant for every node."""
    generation = max(map(_generation, pool.slices + pool.elsewhere))
    return {
        (counters["name"], counter): value["value"]
        for each in slices
        if _key(each) == pool.key and _generation(each) == generation
        for counters in each["spec"].get("sharedCounters") or []
        for counter, value in counters["counters"].items()
    }

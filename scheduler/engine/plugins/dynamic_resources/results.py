"""
The allocation of a claim: its devices, their configuration, and the nodes where they are available.

Source: structured/internal/incubating/allocator_incubating.go, Allocate and createNodeSelector (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256

from scheduler.engine.model.allocations import (
    FROM_CLAIM,
    FROM_CLASS,
    AllocatedConfiguration,
    Allocation,
    DeviceResult,
    DeviceResults,
)
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.node_selector import NodeSelector, on_node
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.terms import NodeRequirement, NodeTerm
from scheduler.engine.plugins.dynamic_resources.answers import NotAllocated
from scheduler.engine.plugins.dynamic_resources.taking import NodeQuery, Taken


def allocation_of(
    claim: ResourceClaim, taken: Sequence[Taken], chosen: Sequence[NodeQuery], node: Node, seed: str
) -> Allocation | NotAllocated:
    """Return the allocation of a claim."""
    # `taken`: its devices in the order of the search; `chosen`: the query of each of its requests. `seed`: differs by
    # decision, which makes share IDs unique.
    selector = _node_selector(taken, node)
    if isinstance(selector, NotAllocated):
        return NotAllocated(f"create NodeSelector for claim {claim.name}: {selector.text}")
    return Allocation(
        devices=DeviceResults(
            results=tuple(_result(each, f"{seed}/{claim.key}/{index}") for index, each in enumerate(taken)),
            config=(*_class_configuration(chosen), *_claim_configuration(claim, chosen)),
        ),
        node_selector=selector,
    )


def _result(taken: Taken, seed: str) -> DeviceResult:
    query, device, device_id = taken.query, taken.device.device, taken.device.id
    return DeviceResult(
        request=query.full_name,
        driver=device_id.driver,
        pool=device_id.pool,
        device=device_id.device,
        admin_access=True if query.query.admin_access else None,
        tolerations=query.query.tolerations or None,
        binding_conditions=device.binding_conditions or None,
        binding_failure_conditions=device.binding_failure_conditions or None,
        share_id=None if taken.wanted is None else _share_id(seed),
        consumed_capacity={name: str(amount) for name, amount in taken.wanted.items()}
        if taken.wanted
        else None,
    )


def _share_id(seed: str) -> str:
    """Return a UUID (RFC 9562, version 8) of the text; upstream draws one at random."""
    digest = sha256(seed.encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"


def _class_configuration(chosen: Sequence[NodeQuery]) -> Iterator[AllocatedConfiguration]:
    """Yield the configuration of each class once, for all requests of that class."""
    by_class: dict[str, list[NodeQuery]] = {}
    for query in chosen:
        by_class.setdefault(query.device_class.key, []).append(query)
    for queries in by_class.values():
        for each in queries[0].device_class.config:
            requests = tuple(query.full_name for query in queries)
            yield AllocatedConfiguration(FROM_CLASS, requests, each.opaque)


def _claim_configuration(
    claim: ResourceClaim, chosen: Sequence[NodeQuery]
) -> Iterator[AllocatedConfiguration]:
    """Yield the claim's configuration; as upstream, once for each request that it names."""
    for each in claim.config:
        names = each.requests or ()
        n_times = 1
        if names:
            n_times = sum(query.request in names or query.full_name in names for query in chosen)
        for _ in range(n_times):
            yield AllocatedConfiguration(FROM_CLAIM, names or None, each.opaque)


def _node_selector(taken: Sequence[Taken], node: Node) -> NodeSelector | NotAllocated | None:
    """Return the nodes that reach all devices; None for all nodes."""
    expressions: list[NodeRequirement] = []
    names: list[NodeRequirement] = []
    for each in taken:
        device, source = each.device.device, each.device.slice
        per_device = source.per_device_node_selection
        node_name = device.node_name if per_device else source.node_name
        if node_name is not None or device.binds_to_node:
            return on_node(node.name)
        selector = device.node_selector if per_device else source.node_selector
        if selector is None or not selector.terms:
            continue
        if len(selector.terms) > 1:
            return NotAllocated(f"unsupported ResourceSlice.NodeSelector with {len(selector.terms)} terms")
        _add_new(selector.terms[0].names, names)
        _add_new(selector.terms[0].expressions, expressions)
    if not expressions and not names:
        return None
    return NodeSelector((NodeTerm(tuple(expressions), tuple(names)),))


def _add_new(requirements: Sequence[NodeRequirement], kept: list[NodeRequirement]) -> None:
    for each in requirements:
        if not any(
            each.key == other.key
            and each.operator == other.operator
            and set(each.values) == set(other.values)
            for other in kept
        ):
            kept.append(each)

"""
What is checked and counted before the search: each request's class, mode and number of devices.

Source: structured/internal/incubating/allocator_incubating.go, Allocate and validateDeviceRequest (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from scheduler.engine.model.device_requests import ALL, EXACT_COUNT, DeviceQuery, ResourceClaim
from scheduler.engine.model.devices import MAX_RESULTS, DeviceClass
from scheduler.engine.plugins.dynamic_resources.answers import NotAllocated
from scheduler.engine.plugins.dynamic_resources.constraints import constraints_of
from scheduler.engine.plugins.dynamic_resources.pools import PoolDevice, PoolState
from scheduler.engine.plugins.dynamic_resources.taking import UNSELECTED, NodeDevices, NodeQuery

#: The query of a request, or its alternatives.
Queries: TypeAlias = tuple[NodeQuery, ...]


class CheckedClaim(NamedTuple):
    """A claim, and the queries of each of its requests, on one node."""

    claim: ResourceClaim
    requests: tuple[Queries, ...]


def checked(
    claim: ResourceClaim, number: int, classes: Mapping[str, DeviceClass], devices: NodeDevices
) -> CheckedClaim | NotAllocated:
    """Return the claim, which has this number in the search, with its queries; or its first problem."""
    requests: list[Queries] = []
    n_devices = 0
    for request in claim.requests:
        queries: list[NodeQuery] = []
        # PreFilter refuses a request of neither kind, and one without a class.
        for each in request.first_available or (request.exactly,):
            query = _query(claim, number, request.name, each, classes, devices)
            if isinstance(query, NotAllocated):
                return query
            if request.first_available:
                query.alternative = query.query.name
            queries.append(query)
        n_devices += min([query.n_devices for query in queries])
        requests.append(tuple(queries))
    if n_devices > MAX_RESULTS:
        problem = f"number of requested devices {n_devices} exceeds the claim limit of {MAX_RESULTS}"
        return NotAllocated(f"claim {claim.key}: {problem}")
    if claim.constraints:
        constraints = constraints_of(claim)
        if isinstance(constraints, NotAllocated):
            return constraints
        for of_request in requests:
            for query in of_request:
                query.constraints = tuple(
                    each for each in constraints if query.is_named_in(each.stored.requests)
                )
    return CheckedClaim(claim, tuple(requests))


def _query(
    claim: ResourceClaim,
    number: int,
    request: str,
    query: DeviceQuery | None,
    classes: Mapping[str, DeviceClass],
    devices: NodeDevices,
) -> NodeQuery | NotAllocated:
    if query is None:
        return NotAllocated(f"claim {claim.key}, request {request}: unknown request type")
    device_class = classes.get(query.class_name)
    problem = _problem(query, device_class)
    if device_class is None or problem:
        return NotAllocated(f"{_where(claim, query)}{problem}")
    checked_query = NodeQuery(claim, number, request, "", query, device_class, query.count)
    if query.mode == ALL:
        taken = _all_devices(checked_query, devices)
        if isinstance(taken, NotAllocated):
            return taken
        checked_query.devices, checked_query.n_devices = taken, len(taken)
    return checked_query


def _problem(query: DeviceQuery, device_class: DeviceClass | None) -> str:
    """Return the query's name and why no node can serve it; empty if one can."""
    if None in query.selectors:
        index = query.selectors.index(None)
        return f", selector #{index}: CEL expression empty (unsupported selector type?)"
    if not query.class_name:
        return ": missing device class name (unsupported request type?)"
    if device_class is None:
        not_found = f'deviceclass.resource.k8s.io "{query.class_name}" not found'
        return f": could not retrieve device class {query.class_name}: {not_found}"
    return "" if query.mode in (EXACT_COUNT, ALL) else f": unsupported count mode {query.mode}"


def _all_devices(query: NodeQuery, devices: NodeDevices) -> tuple[PoolDevice, ...] | NotAllocated:
    """Return the devices that All takes, whether they are in use or not."""
    taken: list[PoolDevice] = []
    for pool in devices.pools.pools:
        # As upstream, a pool of any driver ends the pod's cycle here (kubernetes #141898).
        if pool.state is not PoolState.USABLE:
            state = "being updated" if pool.state is PoolState.INCOMPLETE else "invalid"
            problem = f"asks for all devices, but resource pool {pool.id} is currently {state}"
            return NotAllocated(f"{_where(query.claim, query.query)}: {problem}")
        for device in pool.devices:
            verdict = devices.suits(query, device)
            if isinstance(verdict, NotAllocated):
                return verdict
            if verdict not in UNSELECTED and devices.has_capacity(query, device):
                taken.append(device)
    return tuple(taken)


def _where(claim: ResourceClaim, query: DeviceQuery) -> str:
    return f"claim {claim.key}, request {query.name}"

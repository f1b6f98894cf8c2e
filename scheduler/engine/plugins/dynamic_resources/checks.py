"""
What is checked and counted before the search: each request's mode and number of devices. PreFilter knows the classes.

Source: structured/internal/incubating/allocator_incubating.go, Allocate and validateDeviceRequest (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple

from scheduler.engine.model.device_requests import ALL, EXACT_COUNT, ResourceClaim
from scheduler.engine.model.devices import MAX_RESULTS, DeviceClass
from scheduler.engine.plugins.dynamic_resources.answers import NotAllocated
from scheduler.engine.plugins.dynamic_resources.constraints import constraints_of
from scheduler.engine.plugins.dynamic_resources.pools import PoolDevice, PoolState
from scheduler.engine.plugins.dynamic_resources.taking import UNSELECTED, NodeDevices, NodeQuery


class CheckedClaim(NamedTuple):
    """A claim, and on one node the query of each of its requests, or the queries of its alternatives."""

    claim: ResourceClaim
    requests: tuple[tuple[NodeQuery, ...], ...]


def with_queries(
    claim: ResourceClaim, number: int, classes: Mapping[str, DeviceClass], devices: NodeDevices
) -> CheckedClaim | NotAllocated:
    """Return the claim, which has this number in the search, with its queries; or its first problem."""
    requests: list[tuple[NodeQuery, ...]] = []
    n_devices = 0
    for request in claim.requests:
        queries: list[NodeQuery] = []
        # PreFilter refuses a request of neither kind, and one without a class.
        for each in request.first_available if request.exactly is None else (request.exactly,):
            where = f"claim {claim.key}, request {each.name}"
            device_class = classes.get(each.class_name)
            if device_class is None:
                # Upstream may remember a class for an extended resource that is gone.
                not_found = f'deviceclass.resource.k8s.io "{each.class_name}" not found'
                return NotAllocated(
                    f"{where}: could not retrieve device class {each.class_name}: {not_found}"
                )
            alternative = each.name if request.exactly is None else ""
            query = NodeQuery(claim, number, request.name, alternative, each, device_class, each.count)
            if problem := _problem(query, devices, where):
                return problem
            queries.append(query)
        n_devices += min([query.n_devices for query in queries])
        requests.append(tuple(queries))
    if n_devices > MAX_RESULTS:
        too_many = f"number of requested devices {n_devices} exceeds the claim limit of {MAX_RESULTS}"
        return NotAllocated(f"claim {claim.key}: {too_many}")
    if claim.constraints:
        constraints = constraints_of(claim)
        if isinstance(constraints, NotAllocated):
            return constraints
        for query in chain.from_iterable(requests):
            query.constraints = tuple(each for each in constraints if query.is_named_in(each.stored.requests))
    return CheckedClaim(claim, tuple(requests))


def _problem(query: NodeQuery, devices: NodeDevices, where: str) -> NotAllocated | None:
    """Return why no node can serve the query, None if one can; in mode All, take its devices."""
    asked = query.query
    if None in asked.selectors:
        index = asked.selectors.index(None)
        return NotAllocated(f"{where}, selector #{index}: CEL expression empty (unsupported selector type?)")
    if asked.mode not in (EXACT_COUNT, ALL):
        return NotAllocated(f"{where}: unsupported count mode {asked.mode}")
    if asked.mode == ALL:
        taken = _all_devices(query, devices, where)
        if isinstance(taken, NotAllocated):
            return taken
        query.devices, query.n_devices = taken, len(taken)
    return None


def _all_devices(query: NodeQuery, devices: NodeDevices, where: str) -> tuple[PoolDevice, ...] | NotAllocated:
    """Return the devices that All takes, whether they are in use or not."""
    taken: list[PoolDevice] = []
    for pool in devices.pools.pools:
        # As upstream, a pool of any driver ends the pod's cycle here (kubernetes #141898).
        if pool.state is not PoolState.USABLE:
            state = "being updated" if pool.state is PoolState.INCOMPLETE else "invalid"
            problem = f"asks for all devices, but resource pool {pool.id} is currently {state}"
            return NotAllocated(f"{where}: {problem}")
        for device in pool.devices:
            verdict = devices.suits(query, device)
            if isinstance(verdict, NotAllocated):
                return verdict
            if verdict not in UNSELECTED and devices.has_capacity(query, device):
                taken.append(device)
    return tuple(taken)

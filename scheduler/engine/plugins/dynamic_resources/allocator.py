"""
The allocator: which devices the claims of a pod would get on a node.

Source: structured/internal/incubating/allocator_incubating.go (kubernetes 1.36), the allocator of the default gates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Final

from scheduler.engine.model.allocations import Allocation
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.devices import DeviceClass, ResourceSlice
from scheduler.engine.model.nodes import Node
from scheduler.engine.plugins.dynamic_resources.answers import (
    ENDED_AT_LIMIT,
    UNFINISHED,
    Answer,
    NotAllocated,
)
from scheduler.engine.plugins.dynamic_resources.checks import CheckedClaim, with_queries
from scheduler.engine.plugins.dynamic_resources.claims import queries_of
from scheduler.engine.plugins.dynamic_resources.pool_index import PoolIndex
from scheduler.engine.plugins.dynamic_resources.pools import NodePools, PoolDevice
from scheduler.engine.plugins.dynamic_resources.results import allocation_of
from scheduler.engine.plugins.dynamic_resources.search import Branch, Budget, DeviceSearch
from scheduler.engine.plugins.dynamic_resources.selection import SelectorResults
from scheduler.engine.plugins.dynamic_resources.taking import NodeDevices
from scheduler.engine.state.allocated_devices import AllocatedDevices

#: Devices that the search for a pod may look at in a further piece, over all nodes: 8 ms at up to 2.7 µs each.
DEFAULT_STEPS: Final = 3_125
#: The most on one node, over all pieces that go on with its search.
MAX_STEPS: Final = 50_000

CANNOT_ALLOCATE: Final = "cannot allocate all claims"
INVALID_POOLS: Final = "invalid resource pools were encountered"


class Allocator:
    """Allocates devices in one cycle, for claims that are not allocated; changes nothing but its budget."""

    def __init__(
        self,
        pools: PoolIndex,
        allocated: AllocatedDevices,
        classes: Mapping[str, DeviceClass],
        results: SelectorResults,
        *,
        seed: str,
        n_steps: int = DEFAULT_STEPS,
    ) -> None:
        """`seed`: differs by decision, which makes share IDs unique."""
        self.pools = pools
        self._allocated, self._classes = allocated, classes
        self.results = results
        self._seed = seed
        self._n_steps = n_steps
        self.renew()

    def renew(self) -> None:
        """Give the search its whole budget again."""
        self._budget = Budget(self._n_steps)
        self.results.renew()

    def allocate(self, node: Node, claims: Sequence[ResourceClaim]) -> tuple[Allocation, ...] | NotAllocated:
        """Return the allocation of each claim on the node, or why there is none."""
        pools = self.pools.pools(node)
        search = pools if isinstance(pools, NotAllocated) else self.search(node, pools, claims)
        return search if isinstance(search, NotAllocated) else self.allocations(node, search, claims)

    def search(
        self, node: Node, pools: NodePools, claims: Sequence[ResourceClaim]
    ) -> DeviceSearch | NotAllocated:
        """Return the search that found devices for all claims in the pools of the node, or why it found none."""
        begun = self.begin(node, pools, claims)
        return begun if isinstance(begun, NotAllocated) else self.go_on(node, begun)

    def begin(
        self, node: Node, pools: NodePools, claims: Sequence[ResourceClaim]
    ) -> DeviceSearch | NotAllocated:
        """Return a search of the node's pools for the devices of all claims, or why a claim cannot be allocated."""
        devices = NodeDevices(node, pools, self._allocated, self.results)
        of_search: list[CheckedClaim] = []
        for number, claim in enumerate(claims):
            each = with_queries(claim, number, self._classes, devices)
            if isinstance(each, NotAllocated):
                return each
            of_search.append(each)
        return DeviceSearch(of_search, devices)

    def go_on(self, node: Node, search: DeviceSearch) -> DeviceSearch | NotAllocated:
        """Return the search of the node if it finds devices now, else why it does not, or not yet (POSTPONED)."""
        branch = search.run(self._budget)
        if isinstance(branch, NotAllocated):
            return branch
        if branch is Branch.FOUND:
            if any(taken.device.has_several_terms for of_claim in search.taken for taken in of_claim):
                allocations = self.allocations(node, search, [each.claim for each in search.claims])
                return allocations if isinstance(allocations, NotAllocated) else search
            return search
        if branch is Branch.OPEN:
            return NotAllocated(ENDED_AT_LIMIT, Answer.LIMIT) if search.n_steps >= MAX_STEPS else UNFINISHED
        if search.pools.has_invalid:
            return NotAllocated(INVALID_POOLS, Answer.INVALID_POOLS)
        return NotAllocated(CANNOT_ALLOCATE, Answer.NO_DEVICES)

    def beside(self, allocated: AllocatedDevices) -> Allocator:
        """Return this allocator, its budget and results included, as if other devices were allocated."""
        other = copy(self)
        other._allocated = allocated
        return other

    def may_take(self, claims: Sequence[ResourceClaim], slices: Iterable[ResourceSlice]) -> bool:
        """Return whether a request of the claims selects a device of the slices, or fails to select it."""
        devices = [
            PoolDevice(device, each, each.device_id(device)) for each in slices for device in each.devices
        ]
        return any(
            self.results.all_match(
                (*self._classes[query.class_name].selectors, *query.selectors), device, "", ""
            )
            is not False
            for query in queries_of(claims)
            if query.class_name in self._classes
            for device in devices
        )

    def allocations(
        self, node: Node, search: DeviceSearch, claims: Sequence[ResourceClaim]
    ) -> tuple[Allocation, ...] | NotAllocated:
        """Return the result of the search as allocations of these claims, or of others of the same form."""
        allocations: list[Allocation] = []
        for number, claim in enumerate(claims):
            allocation = allocation_of(claim, search.taken[number], search.chosen(number), node, self._seed)
            if isinstance(allocation, NotAllocated):
                return allocation
            allocations.append(allocation)
        return tuple(allocations)

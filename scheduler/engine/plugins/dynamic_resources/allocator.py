"""
The allocator: which devices the claims of a pod would get on a node.

Source: structured/internal/incubating/allocator_incubating.go (kubernetes 1.36), the allocator of the default gates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Final

from scheduler.engine.model.allocations import Allocation
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.devices import ResourceSlice
from scheduler.engine.plugins.dynamic_resources.checks import CheckedClaim, Checks
from scheduler.engine.plugins.dynamic_resources.first_fit import FirstFit, first_fit
from scheduler.engine.plugins.dynamic_resources.inputs import (
    AllocatedView,
    Candidate,
    Inputs,
    Refusal,
    RefusalKind,
    SearchError,
    TargetNode,
)
from scheduler.engine.plugins.dynamic_resources.pool_index import PoolIndex
from scheduler.engine.plugins.dynamic_resources.pools import NodePools
from scheduler.engine.plugins.dynamic_resources.results import allocation_of
from scheduler.engine.plugins.dynamic_resources.search import Budget, Outcome, Search
from scheduler.engine.plugins.dynamic_resources.selection import ENDED_AT_LIMIT, SelectorResults, all_match

#: Devices that the search for a pod looks at once more in a piece, over all nodes: 8 ms at up to 2.7 µs each.
DEFAULT_STEPS: Final = 3_125
#: The most on one node, over all pieces that go on with its search: those of one cycle.
MAX_STEPS: Final = 50_000

CANNOT_ALLOCATE: Final = "cannot allocate all claims"
INVALID_POOLS: Final = "invalid resource pools were encountered"


class Allocator:
    """Allocates devices in one cycle, for claims that are not allocated; changes nothing but its budget."""

    def __init__(
        self,
        pools: PoolIndex,
        inputs: Inputs,
        results: SelectorResults,
        *,
        seed: str,
        n_steps: int = DEFAULT_STEPS,
    ) -> None:
        """`seed`: makes share IDs unique; another one for each decision."""
        self._pools = pools
        self._inputs = inputs
        self._results = results
        self._seed = seed
        self._n_steps = n_steps
        self.renew()

    def renew(self) -> None:
        """Let the search take as much as at first."""
        self._budget = Budget(self._n_steps)
        self._results.renew()

    @property
    def goes_on(self) -> bool:
        """Whether a search that is not over goes on in the same cycle: unless its selectors are costly."""
        return not self._results.is_spent_on_few

    def allocate(self, node: TargetNode, claims: Sequence[ResourceClaim]) -> tuple[Allocation, ...] | Refusal:
        """Return the allocation of each claim on the node, or why there is none."""
        pools = self._pools.pools(node)
        search = _error(pools) if isinstance(pools, SearchError) else self.search(node, pools, claims)
        return search if isinstance(search, Refusal) else self.allocations(node, search, claims)

    def search(self, node: TargetNode, pools: NodePools, claims: Sequence[ResourceClaim]) -> Search | Refusal:
        """Return the search that found devices for all claims in the pools of the node, or why there are none."""
        begun = self.begin(node, pools, claims)
        return begun if isinstance(begun, Refusal) else self.go_on(node, begun)

    def begin(self, node: TargetNode, pools: NodePools, claims: Sequence[ResourceClaim]) -> Search | Refusal:
        """Return the search for devices for all claims in the pools of the node, or why there is none."""
        checks = Checks(node, pools, self._inputs, self._results)
        checked: list[CheckedClaim] = []
        for claim in claims:
            each = checks.claim(claim)
            if isinstance(each, SearchError):
                return _error(each)
            checked.append(each)
        return Search(checked, pools, checks, self._inputs.allocated)

    def go_on(self, node: TargetNode, search: Search) -> Search | Refusal:
        """Return the search of the node if it finds devices now, else why it does not, or not yet (POSTPONED)."""
        outcome = search.run(self._budget)
        if isinstance(outcome, SearchError):
            return _error(outcome)
        if outcome is Outcome.FOUND:
            if any(has_several_terms(taken.candidate) for of_claim in search.taken for taken in of_claim):
                claims = [each.claim for each in search.claims]
                allocations = self.allocations(node, search, claims)
                return allocations if isinstance(allocations, Refusal) else search
            return search
        if outcome is Outcome.OPEN:
            is_over = search.n_steps >= MAX_STEPS
            return Refusal(RefusalKind.LIMIT if is_over else RefusalKind.POSTPONED, ENDED_AT_LIMIT)
        if search.pools.has_invalid:
            return Refusal(RefusalKind.INVALID_POOLS, INVALID_POOLS)
        return Refusal(RefusalKind.NO_DEVICES, CANNOT_ALLOCATE)

    def first_fit(self, claims: Sequence[ResourceClaim]) -> FirstFit | None:
        """Return the claims if all their requests are plain."""
        return first_fit(claims, self._inputs, self._results)

    def beside(self, allocated: AllocatedView) -> Allocator:
        """Return this allocator, its budget and results included, as if other devices were allocated."""
        other = copy(self)
        other._inputs = Inputs(allocated, self._inputs.classes)
        return other

    def may_take(self, claims: Sequence[ResourceClaim], slices: Iterable[ResourceSlice]) -> bool:
        """Return whether a request of the claims selects a device of the slices, or fails to select it."""
        candidates = [
            Candidate(device, each, each.device_id(device)) for each in slices for device in each.devices
        ]
        classes = self._inputs.classes
        return any(
            query is not None
            and query.class_name in classes
            and all_match(classes[query.class_name].selectors, candidate, self._results, owner="")
            is not False
            and all_match(query.selectors, candidate, self._results, owner="") is not False
            for claim in claims
            for request in claim.requests
            for query in (request.exactly, *request.first_available)
            for candidate in candidates
        )

    def allocations(
        self, node: TargetNode, search: Search, claims: Sequence[ResourceClaim]
    ) -> tuple[Allocation, ...] | Refusal:
        """Return what the search has found as allocations of these claims, which may be others of its form."""
        alternatives = search.alternatives()
        allocations: list[Allocation] = []
        for index, each in enumerate(search.claims):
            chosen = [
                request.queries[alternatives.get((index, position), 0)]
                for position, request in enumerate(each.requests)
            ]
            allocation = allocation_of(claims[index], search.taken[index], chosen, node, self._seed)
            if isinstance(allocation, SearchError):
                return _error(allocation)
            allocations.append(allocation)
        return tuple(allocations)


def has_several_terms(candidate: Candidate) -> bool:
    """Return whether the nodes of a device may not have a single selector, which is an error once it is taken."""
    each = candidate.slice
    selection = candidate.device.node_selection if each.per_device_node_selection else each.node_selection
    return selection is not None and len(selection.terms) > 1


def _error(error: SearchError) -> Refusal:
    return Refusal(RefusalKind.POSTPONED if error.is_limit else RefusalKind.ERROR, error.text)

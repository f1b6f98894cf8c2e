"""
Whether the first devices that requests select are free: where they are, a node needs no search.

Requests for numbers of devices, without alternatives and constraints, compete for nothing but the devices: the first
path of the search takes these. Where it would have to turn back, the search has the answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.model.device_requests import EXACT_COUNT, DeviceQuery, ResourceClaim
from scheduler.model.devices import MAX_RESULTS
from scheduler.plugins.dynamic_resources.inputs import Candidate, Inputs
from scheduler.plugins.dynamic_resources.pools import NodePools
from scheduler.plugins.dynamic_resources.selection import SelectorResults, all_match


class FirstFit:
    """The plain requests of one form of claims."""

    def __init__(self, queries: Sequence[DeviceQuery], inputs: Inputs, results: SelectorResults) -> None:
        self._requests = [
            ((*inputs.classes[query.class_name].selectors, *query.selectors), query.count)
            for query in queries
        ]
        self._dedicated, self._consumed = inputs.allocated.dedicated, inputs.allocated.consumed
        self._results = results

    def succeeds(self, pools: NodePools) -> bool:
        """Return whether the requests get their devices; False also where it takes a search to know."""
        if not pools.are_plain:
            return False
        taken: set[Candidate] = set()
        for selectors, n_missing in self._requests:
            for candidate in pools.candidates:
                if not n_missing:
                    break
                if candidate in taken or candidate.id in self._dedicated or candidate.id in self._consumed:
                    continue
                selected = all_match(selectors, candidate, self._results, owner="")
                if selected is True:
                    taken.add(candidate)
                    n_missing -= 1
                elif selected is not False:
                    return False
            if n_missing:
                return False
        return True


def first_fit(claims: Sequence[ResourceClaim], inputs: Inputs, results: SelectorResults) -> FirstFit | None:
    """Return the requests of the claims if all are plain."""
    queries: list[DeviceQuery] = []
    for claim in claims:
        of_claim = [request.exactly for request in claim.requests if request.exactly is not None]
        if claim.constraints or len(of_claim) < len(claim.requests):
            return None
        if sum(query.count for query in of_claim) > MAX_RESULTS:
            return None
        queries += of_claim
    is_plain = all(
        query.mode == EXACT_COUNT
        and not (query.capacity or query.problem)
        and query.class_name in inputs.classes
        for query in queries
    )
    return FirstFit(queries, inputs, results) if is_plain else None

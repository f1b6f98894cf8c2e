"""
Whether the first devices that requests select can be taken: where they can, a node needs no search.

It is the first path of the search, for requests for numbers of devices without alternatives. Where the search would
turn back, only the search has the answer, unless there is one request and no constraint.

It pays: 5 to 13 % more pods/s on a real API server, with a claim or an extended resource each (2,000 nodes with eight
devices, six interleaved rounds with and without it), and a fifth of the CPU for the first decision of a form whose
selectors are known.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.engine.model.device_requests import EXACT_COUNT, DeviceQuery, ResourceClaim
from scheduler.engine.model.devices import MAX_RESULTS
from scheduler.engine.plugins.dynamic_resources.constraints import constraints_of
from scheduler.engine.plugins.dynamic_resources.inputs import Candidate, Inputs, SearchError
from scheduler.engine.plugins.dynamic_resources.pools import NodePools
from scheduler.engine.plugins.dynamic_resources.selection import SelectorResults, all_match


class FirstFit:
    """Claims of one form whose requests are all plain."""

    def __init__(self, claims: Sequence[ResourceClaim], inputs: Inputs, results: SelectorResults) -> None:
        self._claims = [
            (claim, [_selection(request.exactly, inputs) for request in claim.requests if request.exactly])
            for claim in claims
        ]
        self._dedicated, self._consumed = inputs.allocated.dedicated, inputs.allocated.consumed
        self._results = results
        #: Without a second request or a constraint, what the first path lacks no other path has.
        self._is_single = sum(len(claim.requests) for claim in claims) == 1 and not any(
            claim.constraints for claim in claims
        )

    def succeeds(self, pools: NodePools) -> bool | None:
        """Return whether the claims get their devices; None where it takes a search to know."""
        if not pools.are_plain:
            return None
        taken: set[Candidate] = set()
        for claim, requests in self._claims:
            takes = self._takes(claim, requests, pools, taken)
            if not takes:
                return takes if self._is_single else None
        return True

    def _takes(
        self,
        claim: ResourceClaim,
        requests: Sequence[tuple[str, int, tuple[str | None, ...]]],
        pools: NodePools,
        taken: set[Candidate],
    ) -> bool | None:
        """Return whether the first devices do; None if that fails with an error."""
        constraints = constraints_of(claim) if claim.constraints else None
        if isinstance(constraints, SearchError):
            return None
        for name, n_missing, selectors in requests:
            for candidate in pools.candidates:
                if not n_missing:
                    break
                if candidate in taken or candidate.id in self._dedicated or candidate.id in self._consumed:
                    continue
                selected = all_match(selectors, candidate, self._results, owner="")
                if isinstance(selected, SearchError):
                    return None
                if not selected or (constraints and not constraints.accepts(name, "", candidate)):
                    continue
                if constraints:
                    constraints.add(name, "", candidate)
                taken.add(candidate)
                n_missing -= 1
            if n_missing:
                return False
        return True


def first_fit(claims: Sequence[ResourceClaim], inputs: Inputs, results: SelectorResults) -> FirstFit | None:
    """Return the claims if all their requests are plain."""
    for claim in claims:
        queries = [request.exactly for request in claim.requests if request.exactly is not None]
        if len(queries) < len(claim.requests) or sum(query.count for query in queries) > MAX_RESULTS:
            return None
        for query in queries:
            is_special = query.admin_access or query.capacity or None in query.selectors
            if query.mode != EXACT_COUNT or is_special or query.class_name not in inputs.classes:
                return None
    return FirstFit(claims, inputs, results)


def _selection(query: DeviceQuery, inputs: Inputs) -> tuple[str, int, tuple[str | None, ...]]:
    """Return the name of a request, how many devices it asks for, and all its selectors."""
    return query.name, query.count, (*inputs.classes[query.class_name].selectors, *query.selectors)

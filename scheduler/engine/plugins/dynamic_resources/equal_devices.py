"""
Devices that are equal for a pod: where one leads nowhere, another leads nowhere, too.

Upstream tries every combination. A choice that skips an equal device finds the same first solution: in any solution
with the second device the two can be exchanged.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from scheduler.engine.plugins.dynamic_resources.checks import CheckedClaim, Checks, Query
from scheduler.engine.plugins.dynamic_resources.constraints import attribute_of
from scheduler.engine.plugins.dynamic_resources.inputs import Candidate, SearchError


class EqualDevices:
    """The class of equal devices of each device of a node; computed where it is asked for."""

    def __init__(self, claims: Sequence[CheckedClaim], checks: Checks) -> None:
        self._claims = claims
        self._checks = checks
        self._queries = [
            (each, query) for each in claims for request in each.requests for query in request.queries
        ]
        self._attributes = sorted(
            {
                constraint.match_attribute
                for each in claims
                for constraint in each.claim.constraints
                if constraint.match_attribute is not None
            }
        )
        self._id_by_candidate: dict[Candidate, int] = {}
        self._id_by_signature: dict[Hashable, int] = {}
        self._can_be_equal = not any(
            # Values are remembered by request, by its last device alone: the order counts.
            constraint.distinct_attribute is not None
            for each in claims
            for constraint in each.claim.constraints
        ) and not any(
            # All ends with an error at the first device that a constraint refuses, which depends on what is in use;
            # what is in use by admin access depends on the claim.
            query.takes_all or query.query.admin_access
            for _, query in self._queries
        )

    def class_of(self, candidate: Candidate) -> int:
        """Return the same number for equal devices. O(requests + constraints) for each device at first."""
        number = self._id_by_candidate.get(candidate)
        if number is None:
            number = self._id_by_candidate[candidate] = self._id_by_signature.setdefault(
                self._signature(candidate), len(self._id_by_signature)
            )
        return number

    def _signature(self, candidate: Candidate) -> Hashable:
        device = candidate.device
        # The rest of a shared device depends on the amounts taken of it.
        if not self._can_be_equal or device.allow_multiple_allocations:
            return candidate
        return (
            tuple(self._use(each, query, candidate) for each, query in self._queries),
            tuple(attribute_of(candidate, name) for name in self._attributes),
            # Equal counters of another pool are others.
            (candidate.slice.pool_id, _consumption(candidate)) if device.consumes_counters else None,
        )

    def _use(self, claim: CheckedClaim, query: Query, candidate: Candidate) -> Hashable:
        """Return whether the query can use the device while it is free; an error is a use of its own."""
        selected = self._checks.selects(claim.claim, query, candidate)
        if isinstance(selected, SearchError):
            # What may be evaluated is spent, so that no other device is known to be equal.
            return candidate if selected.is_limit else selected.text
        return (
            selected
            and query.tolerates(candidate.device.taints)
            and self._checks.has_capacity(query, candidate)
        )


def _consumption(candidate: Candidate) -> Hashable:
    return tuple(
        (each.name, tuple(sorted(each.counters.items()))) for each in candidate.device.consumes_counters
    )

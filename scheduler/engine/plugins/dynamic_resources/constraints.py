"""
Constraints: attributes that the devices of a claim share, or in which they differ.

Source: structured/internal/incubating/allocator_incubating.go, matchAttributeConstraint, and constraint.go
(kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from scheduler.engine.model.device_requests import DeviceConstraint, ResourceClaim
from scheduler.engine.model.devices import AttributeType, DeviceAttribute
from scheduler.engine.plugins.dynamic_resources.inputs import Candidate, SearchError


class Constraint(Protocol):
    """A constraint and the devices that were taken under it. Each `add` is undone by `remove` of the same device."""

    def accepts(self, request: str, candidate: Candidate) -> bool:
        """Return whether the device fits to those that were added."""

    def add(self, request: str, candidate: Candidate) -> None:
        """Add a device that is accepted."""

    def remove(self, request: str, candidate: Candidate) -> None:
        """Take back a device."""


class MatchAttribute:
    """All devices have the same value of an attribute."""

    def __init__(self, attribute: str) -> None:
        self._attribute = attribute
        self._reference: DeviceAttribute | None = None
        self._n_devices = 0

    def accepts(self, request: str, candidate: Candidate) -> bool:
        """Return whether the device has the attribute with the value of the first device."""
        del request
        value = attribute_of(candidate, self._attribute)
        if value is None:
            return False
        return not self._n_devices or (value == self._reference and value.type is not AttributeType.NONE)

    def add(self, request: str, candidate: Candidate) -> None:
        """Add a device; the first is the reference."""
        del request
        if not self._n_devices:
            self._reference = attribute_of(candidate, self._attribute)
        self._n_devices += 1

    def remove(self, request: str, candidate: Candidate) -> None:
        """Take back a device; after the last one, the next is the reference."""
        del request, candidate
        self._n_devices -= 1


class DistinctAttribute:
    """
    All devices have different values of an attribute.

    As upstream, one value is remembered by request: of several devices the last one's, and none once one is taken back.
    """

    def __init__(self, attribute: str) -> None:
        self._attribute = attribute
        self._value_by_request: dict[str, DeviceAttribute] = {}

    def accepts(self, request: str, candidate: Candidate) -> bool:
        """Return whether the device has the attribute with a value that is not remembered."""
        del request
        value = attribute_of(candidate, self._attribute)
        if value is None:
            return False
        if value.type is AttributeType.NONE:
            return not self._value_by_request
        return value not in self._value_by_request.values()

    def add(self, request: str, candidate: Candidate) -> None:
        """Remember the value of the device for its request."""
        value = attribute_of(candidate, self._attribute)
        if value is not None:
            self._value_by_request[request] = value

    def remove(self, request: str, candidate: Candidate) -> None:
        """Forget the value of the request."""
        del candidate
        self._value_by_request.pop(request, None)


class ClaimConstraints:
    """The constraints of a claim, each with the requests for which it is; empty: for all."""

    def __init__(self, constraints: Sequence[tuple[frozenset[str], Constraint]]) -> None:
        self._constraints = constraints

    def accepts(self, request: str, alternative: str, candidate: Candidate) -> bool:
        """Return whether all constraints accept the device. `alternative`: empty if the request has none."""
        return all(
            constraint.accepts(request, candidate) for constraint in self._applying(request, alternative)
        )

    def add(self, request: str, alternative: str, candidate: Candidate) -> None:
        """Add a device that is accepted."""
        for constraint in self._applying(request, alternative):
            constraint.add(request, candidate)

    def remove(self, request: str, alternative: str, candidate: Candidate) -> None:
        """Take back a device that was added."""
        for constraint in self._applying(request, alternative):
            constraint.remove(request, candidate)

    def _applying(self, request: str, alternative: str) -> list[Constraint]:
        full_name = f"{request}/{alternative}" if alternative else request
        return [
            constraint
            for requests, constraint in self._constraints
            if not requests or request in requests or full_name in requests
        ]


def constraints_of(claim: ResourceClaim) -> ClaimConstraints | SearchError:
    """Return the constraints of a claim without devices, or that one is of an unknown kind."""
    constraints: list[tuple[frozenset[str], Constraint]] = []
    for index, each in enumerate(claim.constraints):
        constraint = _constraint_of(each)
        if constraint is None:
            return SearchError(
                f"claim {claim.key}, constraint #{index}: empty constraint (unsupported constraint type?)"
            )
        constraints.append((each.requests, constraint))
    return ClaimConstraints(constraints)


def attribute_of(candidate: Candidate, name: str) -> DeviceAttribute | None:
    """Return an attribute by its qualified name; None if the device lacks it."""
    attributes = candidate.device.attributes
    value = attributes.get(name)
    if value is not None:
        return value
    domain, slash, identifier = name.partition("/")
    return attributes.get(identifier) if slash and domain == candidate.id.driver else None


def _constraint_of(constraint: DeviceConstraint) -> Constraint | None:
    if constraint.match_attribute is not None:
        return MatchAttribute(constraint.match_attribute)
    if constraint.distinct_attribute is not None:
        return DistinctAttribute(constraint.distinct_attribute)
    return None

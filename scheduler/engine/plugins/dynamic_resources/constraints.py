"""
Constraints: attributes that the devices of a claim share, or in which they differ.

Source: structured/internal/incubating/allocator_incubating.go, matchAttributeConstraint, and constraint.go
(kubernetes 1.36).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from scheduler.engine.model.device_requests import DeviceConstraint, ResourceClaim
from scheduler.engine.model.devices import AttributeType, DeviceAttribute
from scheduler.engine.plugins.dynamic_resources.answers import NotAllocated
from scheduler.engine.plugins.dynamic_resources.pools import PoolDevice


class AttributeConstraint(ABC):
    """
    A constraint and the devices that were taken under it. Each `add` is undone by `remove`, the last one first.

    Attributes:
        stored: as the claim has it.
    """

    def __init__(self, stored: DeviceConstraint, attribute: str) -> None:
        self.stored, self._attribute = stored, attribute

    def accepts(self, device: PoolDevice) -> bool:
        """Return whether the device has the attribute and agrees with the devices added before."""
        value = attribute_of(device, self._attribute)
        return value is not None and self._fits(value)

    def add(self, request: str, device: PoolDevice) -> None:
        """Add a device that is accepted."""
        value = attribute_of(device, self._attribute)
        if value is not None:
            self._add(request, value)

    @abstractmethod
    def remove(self, request: str) -> None:
        """Take back the device that was added last."""

    @abstractmethod
    def _fits(self, value: DeviceAttribute) -> bool: ...

    @abstractmethod
    def _add(self, request: str, value: DeviceAttribute) -> None: ...


class MatchAttribute(AttributeConstraint):
    """All devices have the attribute with the value of the first one."""

    def __init__(self, stored: DeviceConstraint, attribute: str) -> None:
        super().__init__(stored, attribute)
        self._values: list[DeviceAttribute] = []

    def remove(self, request: str) -> None:
        """Take back a device; once none is left, the next one sets the value."""
        del request
        self._values.pop()

    def _fits(self, value: DeviceAttribute) -> bool:
        return not self._values or (value == self._values[0] and value.type is not AttributeType.NONE)

    def _add(self, request: str, value: DeviceAttribute) -> None:
        del request
        self._values.append(value)


class DistinctAttribute(AttributeConstraint):
    """
    All devices have different values of an attribute.

    As upstream, one value is remembered for each request: the last device's; none once a device is taken back.
    """

    def __init__(self, stored: DeviceConstraint, attribute: str) -> None:
        super().__init__(stored, attribute)
        self._value_by_request: dict[str, DeviceAttribute] = {}

    def remove(self, request: str) -> None:
        """Forget the value of the request."""
        self._value_by_request.pop(request, None)

    def _fits(self, value: DeviceAttribute) -> bool:
        if value.type is AttributeType.NONE:
            return not self._value_by_request
        return value not in self._value_by_request.values()

    def _add(self, request: str, value: DeviceAttribute) -> None:
        self._value_by_request[request] = value


def constraints_of(claim: ResourceClaim) -> tuple[AttributeConstraint, ...] | NotAllocated:
    """Return the constraints of a claim without devices, or the failure if one is of an unknown kind."""
    constraints: list[AttributeConstraint] = []
    for index, each in enumerate(claim.constraints):
        if each.match_attribute is not None:
            constraints.append(MatchAttribute(each, each.match_attribute))
        elif each.distinct_attribute is not None:
            constraints.append(DistinctAttribute(each, each.distinct_attribute))
        else:
            problem = "empty constraint (unsupported constraint type?)"
            return NotAllocated(f"claim {claim.key}, constraint #{index}: {problem}")
    return tuple(constraints)


def attribute_of(device: PoolDevice, name: str) -> DeviceAttribute | None:
    """Return an attribute by its qualified name; None if the device lacks it."""
    attributes = device.device.attributes
    value = attributes.get(name)
    if value is not None:
        return value
    domain, slash, identifier = name.partition("/")
    return attributes.get(identifier) if slash and domain == device.id.driver else None

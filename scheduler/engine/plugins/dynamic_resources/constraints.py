"""
Constraints: attributes that the devices of a claim share, or in which they differ.

Source: structured/internal/incubating/allocator_incubating.go, matchAttributeConstraint, and constraint.go
(kubernetes 1.36).
"""

from __future__ import annotations

from scheduler.engine.model.device_requests import DeviceConstraint, ResourceClaim
from scheduler.engine.model.devices import DeviceAttribute
from scheduler.engine.plugins.dynamic_resources.answers import NotAllocated
from scheduler.engine.plugins.dynamic_resources.pools import PoolDevice


class AttributeConstraint:
    """
    A constraint and the values of the devices that were taken under it. `stored`: as the claim has it.

    With matchAttribute all devices have the value of the first one. With distinctAttribute all have other values; as
    upstream, one is remembered for each request: the last device's, and none once a device is taken back.
    `remove` undoes `add`, the last device first.
    """

    def __init__(self, stored: DeviceConstraint, attribute: str) -> None:
        self.stored, self._attribute = stored, attribute
        self._matched: list[DeviceAttribute] = []
        self._distinct: dict[str, DeviceAttribute] = {}

    def accepts(self, device: PoolDevice) -> bool:
        """Return whether the device has the attribute and agrees with the devices added before."""
        value = attribute_of(device, self._attribute)
        if value is None:
            return False
        if self.stored.match_attribute is not None:
            first = self._matched[0] if self._matched else None
            return first is None or (value == first and value.value is not None)
        if value.value is None:
            return not self._distinct
        return value not in self._distinct.values()

    def add(self, request: str, device: PoolDevice) -> None:
        """Add a device that is accepted."""
        value = attribute_of(device, self._attribute)
        if value is not None and self.stored.match_attribute is not None:
            self._matched.append(value)
        elif value is not None:
            self._distinct[request] = value

    def remove(self, request: str) -> None:
        """Take back the device that was added last."""
        if self.stored.match_attribute is not None:
            self._matched.pop()
        else:
            self._distinct.pop(request, None)


def constraints_of(claim: ResourceClaim) -> tuple[AttributeConstraint, ...] | NotAllocated:
    """Return the constraints of a claim without devices, or the failure if one is of an unknown kind."""
    constraints: list[AttributeConstraint] = []
    for index, each in enumerate(claim.constraints):
        attribute = each.distinct_attribute if each.match_attribute is None else each.match_attribute
        if attribute is None:
            problem = "empty constraint (unsupported constraint type?)"
            return NotAllocated(f"claim {claim.key}, constraint #{index}: {problem}")
        constraints.append(AttributeConstraint(each, attribute))
    return tuple(constraints)


def attribute_of(device: PoolDevice, name: str) -> DeviceAttribute | None:
    """Return an attribute by its qualified name; None if the device lacks it."""
    attributes = device.device.attributes
    value = attributes.get(name)
    if value is not None:
        return value
    domain, slash, identifier = name.partition("/")
    return attributes.get(identifier) if slash and domain == device.id.driver else None

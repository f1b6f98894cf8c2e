"""
A device as selectors see it: the variable `device` of an expression.

Source: dynamic-resource-allocation/cel/compile.go DeviceMatches (kubernetes 1.36).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.syntax.quantity import Quantity


@dataclass(frozen=True, slots=True)
class Version:
    """An attribute of type version, as written; whether it parses is seen when a selector is evaluated."""

    text: str


#: None: the attribute has no value that this version knows; every selector fails on such a device.
AttributeValue = str | int | bool | Version | None


@dataclass(frozen=True)
class DeviceFields:
    """
    The fields of a device that selectors may read. Evaluations remember derived values in it, so keep it.

    Names are as in the ResourceSlice: "domain/name", or "name" alone for the driver's own domain.
    """

    driver: str
    allow_multiple_allocations: bool = False
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    capacity: Mapping[str, Quantity] = field(default_factory=dict)

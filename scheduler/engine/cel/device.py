"""
A device as selectors see it: the variable `device` of an expression.

Source: dynamic-resource-allocation/cel/compile.go DeviceMatches (kubernetes 1.36).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from scheduler.engine.cel.semvers import parse_semver
from scheduler.engine.cel.values import CelError, MapWithDefault, Value
from scheduler.engine.syntax.quantity import Quantity


@dataclass(frozen=True, slots=True)
class VersionText:
    """An attribute of type version, as written; whether it parses is seen when a selector is evaluated."""

    text: str


@dataclass(frozen=True, slots=True)
class EvaluationError:
    """Why a selector has no answer for a device, in upstream's words (without "CEL runtime error: ")."""

    text: str


#: None: the attribute has no value that this version knows; every selector fails on such a device.
AttributeValue = str | int | bool | VersionText | None


@dataclass(frozen=True)
class DeviceFields:
    """
    The fields of a device that selectors may read. Evaluations remember a derived value in it, so keep it.

    Names are as in the ResourceSlice: "domain/name", or "name" alone for the driver's own domain.
    """

    driver: str
    allow_multiple_allocations: bool = False
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    capacity: Mapping[str, Quantity] = field(default_factory=dict)

    @cached_property
    def variable(self) -> Value | EvaluationError:
        """The value of `device` in expressions, or the first attribute by name that has none."""
        attributes: dict[str, Value] = {}
        for name in sorted(self.attributes):
            value = self.attributes[name]
            if value is None:
                return EvaluationError(f"attribute {name}: unsupported attribute value")
            try:
                attributes[name] = parse_semver(value.text) if isinstance(value, VersionText) else value
            except CelError as error:
                return EvaluationError(f"attribute {name}: parse semantic version: {error}")
        return {
            "driver": self.driver,
            "allowMultipleAllocations": self.allow_multiple_allocations,
            "attributes": self._by_domain(attributes),
            "capacity": self._by_domain(self.capacity),
        }

    def _by_domain(self, fields: Mapping[str, Value]) -> MapWithDefault:
        by_domain = MapWithDefault()
        for name, value in fields.items():
            domain, slash, identifier = name.partition("/")
            key = (domain, identifier) if slash else (self.driver, name)
            by_domain.setdefault(key[0], {})[key[1]] = value
        return by_domain

"""
Devices, the slices in which drivers publish them, and their classes, as the scheduler reads them.

Source: api/resource/v1/types.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from scheduler.engine.cel import AttributeValue, DeviceFields, Version
from scheduler.engine.model.allocations import DeviceConfiguration
from scheduler.engine.model.node_selection import NodeSelection
from scheduler.engine.model.terms import Taint
from scheduler.engine.syntax.quantity_format import FormattedQuantity

#: The most devices that a claim gets.
MAX_RESULTS: Final = 32
#: The most pods that reserve a claim.
MAX_CONSUMERS: Final = 256
#: The most alternatives of a request.
MAX_ALTERNATIVES: Final = 8

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"

#: Before the name of a class, it is the extended resource that every class provides.
CLASS_RESOURCE_PREFIX: Final = "deviceclass.resource.kubernetes.io/"


class DeviceKind(StrEnum):
    """The kinds of dynamic resource allocation."""

    CLAIM = "ResourceClaim"
    SLICE = "ResourceSlice"
    CLASS = "DeviceClass"
    TAINT_RULE = "DeviceTaintRule"


#: The kinds without which no claim is placed.
NEEDED_KINDS: Final = frozenset({DeviceKind.CLAIM, DeviceKind.SLICE, DeviceKind.CLASS})


class PoolId(NamedTuple):
    """A pool of devices, in the order in which pools are tried."""

    driver: str
    pool: str

    def __str__(self) -> str:
        """Return the pool as messages name it."""
        return f"{self.driver}/{self.pool}"


class DeviceId(NamedTuple):
    """A device of the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        """Return the device as messages name it."""
        return f"{self.driver}/{self.pool}/{self.device}"


class AttributeType(StrEnum):
    """The types of an attribute's value; NONE: it has no value that this version knows."""

    STRING = "string"
    INT = "int"
    BOOL = "bool"
    VERSION = "version"
    NONE = ""


class DeviceAttribute(NamedTuple):
    """The value of an attribute; None for the type NONE. Equal only if the types are, too."""

    type: AttributeType
    value: str | int | bool | None


@dataclass(frozen=True, slots=True)
class ValidRange:
    """
    The amounts of a capacity that may be requested: from `minimum` in steps up to `maximum`.

    Attributes:
        in_thousandths: whether steps are counted in thousandths of a unit, not in whole units.
    """

    minimum: FormattedQuantity | None
    maximum: FormattedQuantity | None
    step: FormattedQuantity | None
    in_thousandths: bool = False

    @property
    def is_fractional(self) -> bool:
        """Whether an amount is no whole number, and all are whole thousandths."""
        given = [each.nano for each in (self.minimum, self.maximum, self.step) if each is not None]
        return any(nano % 10**9 for nano in given) and not any(nano % 10**6 for nano in given)


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """
    How much of a capacity a request takes.

    Attributes:
        default: taken where a request names no amount; None takes all.
    """

    default: FormattedQuantity | None
    valid_values: tuple[FormattedQuantity, ...]
    valid_range: ValidRange | None


@dataclass(frozen=True, slots=True)
class DeviceCapacity:
    """A capacity of a device."""

    value: FormattedQuantity
    policy: RequestPolicy | None


@dataclass(frozen=True, slots=True)
class CounterSet:
    """Counters that the devices of a pool share, in billionths; of a device: what it consumes of them."""

    name: str
    counters: Mapping[str, int] = field(hash=False)


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """
    A device of a slice. Compared and hashed by identity.

    Attributes:
        attributes: by name as published: "domain/name", or "name" alone for the driver's domain.
        capacity: by name as published.
        node_name: like the two fields after it, read only if the slice selects nodes per device.
        binding_conditions: None without the field, which an empty list is not.
        allow_multiple_allocations: whether several claims may share the device.
    """

    name: str
    attributes: Mapping[str, DeviceAttribute]
    capacity: Mapping[str, DeviceCapacity]
    consumes_counters: tuple[CounterSet, ...]
    taints: tuple[Taint, ...]
    node_name: str | None
    node_selection: NodeSelection | None
    all_nodes: bool
    binds_to_node: bool
    binding_conditions: tuple[str, ...] | None
    binding_failure_conditions: tuple[str, ...] | None
    allow_multiple_allocations: bool


@dataclass(frozen=True, slots=True, eq=False)
class ResourceSlice:
    """
    A part of a pool at one resourceVersion. Compared and hashed by identity.

    Attributes:
        key: its name.
        slice_count: how many slices the pool has in this generation.
        node_name: of the only node that reaches the devices; None if not set.
    """

    key: str
    uid: str
    resource_version: str
    driver: str
    pool: str
    generation: int
    slice_count: int
    node_name: str | None
    node_selection: NodeSelection | None
    all_nodes: bool
    per_device_node_selection: bool
    shared_counters: tuple[CounterSet, ...]
    devices: tuple[Device, ...]

    kind = DeviceKind.SLICE

    @property
    def pool_id(self) -> PoolId:
        """The pool of which this slice is a part."""
        return PoolId(self.driver, self.pool)

    def device_id(self, device: Device) -> DeviceId:
        """Return the id of a device of this slice."""
        return DeviceId(self.driver, self.pool, device.name)


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """
    A class of devices.

    Attributes:
        selectors: CEL expressions; None for a selector of a kind that this version does not know.
        extended_resource: the extended resource that it provides besides the implicit one; empty without one.
        created: the creationTimestamp as text, whose order is that of time.
        provides_resources: whether it provides extended resources at all.
    """

    key: str
    uid: str
    resource_version: str = field(compare=False)
    selectors: tuple[str | None, ...]
    config: tuple[DeviceConfiguration, ...] = field(hash=False)
    extended_resource: str
    created: str
    provides_resources: bool = True

    kind = DeviceKind.CLASS


@dataclass(frozen=True, slots=True)
class DeviceTaintRule:
    """A taint of all devices with this driver, pool and name; None for any."""

    key: str
    resource_version: str = field(compare=False)
    driver: str | None
    pool: str | None
    device: str | None
    taint: Taint

    kind = DeviceKind.TAINT_RULE

    def selects(self, driver: str, pool: str) -> bool:
        """Return whether devices of the pool may be among them."""
        return self.driver in (None, driver) and self.pool in (None, pool)

    def taints(self, device: DeviceId, taint: Taint) -> bool:
        """Return whether the device has the taint by this rule."""
        return (
            self.taint == taint
            and self.selects(device.driver, device.pool)
            and self.device in (None, device.device)
        )


def fields_of(driver: str, device: Device) -> DeviceFields:
    """Return a device as expressions see it."""
    return DeviceFields(
        driver=driver,
        allow_multiple_allocations=device.allow_multiple_allocations,
        attributes={name: _value(attribute) for name, attribute in device.attributes.items()},
        capacity={name: capacity.value.amount for name, capacity in device.capacity.items()},
    )


def _value(attribute: DeviceAttribute) -> AttributeValue:
    return Version(str(attribute.value)) if attribute.type is AttributeType.VERSION else attribute.value

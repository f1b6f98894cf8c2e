"""Devices, their slices and their classes, as they are read. Source: api/resource/v1/types.go (kubernetes 1.36)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from sys import intern
from typing import Annotated, Final, NamedTuple

import msgspec

from scheduler.engine.cel import CelError, EvaluationError, Value, device_variable, parse_semver
from scheduler.engine.model.allocations import DeviceConfiguration, with_own_parameters
from scheduler.engine.model.json_fields import At, Created, Name, Reader, ResourceVersion, Uid
from scheduler.engine.model.node_selector import NodeSelector
from scheduler.engine.model.terms import Taint
from scheduler.engine.model.wire import QuantityText, Wire
from scheduler.engine.syntax.quantity_format import FormattedQuantity, parse_formatted

#: The most devices that a claim gets.
MAX_RESULTS: Final = 32
#: The most pods that reserve a claim.
MAX_CONSUMERS: Final = 256
#: The most alternatives of a request.
MAX_ALTERNATIVES: Final = 8

#: With the name of a class behind it: the extended resource that every class provides.
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


class DeviceAttribute(Wire, frozen=True):
    """The value of an attribute: one of these, or of a type that this version does not know. Equal if the types are."""

    string: str | None = None
    int_: int | None = msgspec.field(name="int", default=None)
    bool_: bool | None = msgspec.field(name="bool", default=None)
    version: str | None = None

    @property
    def value(self) -> str | int | bool | None:
        """The value; None for a type that this version does not know."""
        given = (self.string, self.int_, self.bool_, self.version)
        return next((each for each in given if each is not None), None)


class DraCounter(Wire, frozen=True):
    """A counter of a slice or of a device."""

    value: QuantityText = None


def _quantity(text: QuantityText) -> FormattedQuantity:
    return parse_formatted(0 if text is None else text)


def _counters(counters: Mapping[str, DraCounter]) -> Mapping[str, int]:
    return {intern(name): _quantity(counter.value).nano for name, counter in counters.items()}


@dataclass(frozen=True, slots=True)
class DeviceSelector:
    """selectors[] of a class or request."""

    expression: Annotated[str | None, At("cel.expression", parse=intern)]


def _expressions(selectors: tuple[DeviceSelector, ...]) -> tuple[str | None, ...]:
    return tuple(selector.expression for selector in selectors)


#: An amount; null counts as 0.
Amount = Annotated[FormattedQuantity, At(of=QuantityText, parse=_quantity)]
_OptionalAmount = Annotated[FormattedQuantity | None, At(of=QuantityText, parse=_quantity)]
#: CEL expressions; None for a selector of a kind that this version does not know.
Expressions = Annotated[tuple[str | None, ...], At(of=tuple[DeviceSelector, ...], parse=_expressions)]
Interned = Annotated[str, At(parse=intern)]


@dataclass(frozen=True, slots=True)
class ValidRange:
    """The amounts of a capacity that may be requested: from `minimum` in steps up to `maximum`."""

    minimum: Annotated[_OptionalAmount, At("min")]
    maximum: Annotated[_OptionalAmount, At("max")]
    step: _OptionalAmount

    @property
    def is_fractional(self) -> bool:
        """
        Whether steps are counted in thousandths: an amount is no whole number, and all are whole thousandths.

        Upstream counts in whole units before 1.37.
        """
        given = [each.nano for each in (self.minimum, self.maximum, self.step) if each is not None]
        return any(nano % 10**9 for nano in given) and not any(nano % 10**6 for nano in given)


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """How much of a capacity a request takes: `default` where it names no amount, or all without a default."""

    default: _OptionalAmount
    valid_values: tuple[Amount, ...]
    valid_range: ValidRange | None


@dataclass(frozen=True, slots=True)
class DeviceCapacity:
    """A capacity of a device."""

    value: Amount
    policy: Annotated[RequestPolicy | None, At("requestPolicy")]


@dataclass(frozen=True, slots=True)
class CounterSet:
    """Counters that the devices of a pool share, or what a device consumes of them; in billionths."""

    name: Interned
    counters: Annotated[Mapping[str, int], At(of=dict[str, DraCounter], parse=_counters)] = field(hash=False)


#: Reads an entry of `consumesCounters`, which names its set in another field than the set itself.
_CONSUMED: Final = Reader(CounterSet, name=At("counterSet", parse=intern))


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """
    A device of a slice. Compared and hashed by identity.

    Attributes:
        attributes: by name as published: "domain/name", or "name" alone for the driver's domain.
        capacity: by name as published.
        node_name: like the two fields after it, read only if the slice selects nodes per device.
        binding_conditions: None without the field; an empty list is something else.
        allow_multiple_allocations: whether several claims may share the device.
    """

    name: Interned
    attributes: Mapping[str, Annotated[DeviceAttribute, At(is_shared=True)]]
    capacity: Mapping[str, Annotated[DeviceCapacity, At(is_shared=True)]]
    consumes_counters: Annotated[
        tuple[CounterSet, ...], At(of=tuple[_CONSUMED.struct, ...], parse=_CONSUMED.each)
    ]
    taints: Annotated[tuple[Taint, ...], At(is_shared=True)]
    node_name: Annotated[str | None, At(parse=intern)]
    node_selector: NodeSelector | None
    all_nodes: bool
    binds_to_node: bool
    binding_conditions: Annotated[tuple[str, ...] | None, At(is_shared=True)]
    binding_failure_conditions: Annotated[tuple[str, ...] | None, At(is_shared=True)]
    allow_multiple_allocations: bool


@dataclass(frozen=True, slots=True, eq=False)
class ResourceSlice:
    """
    A part of a pool at one resourceVersion. Compared and hashed by identity.

    Attributes:
        slice_count: how many slices the pool has in this generation.
        node_name: the only node that reaches the devices; None if not set.
    """

    key: Name
    uid: Uid
    resource_version: ResourceVersion
    driver: Annotated[Interned, At("spec.driver")]
    pool: Annotated[Interned, At("spec.pool.name")]
    generation: Annotated[int, At("spec.pool.generation")]
    slice_count: Annotated[int, At("spec.pool.resourceSliceCount")]
    node_name: Annotated[str | None, At("spec.nodeName", parse=intern)]
    node_selector: Annotated[NodeSelector | None, At("spec.nodeSelector")]
    all_nodes: Annotated[bool, At("spec.allNodes")]
    per_device_node_selection: Annotated[bool, At("spec.perDeviceNodeSelection")]
    shared_counters: Annotated[tuple[CounterSet, ...], At("spec.sharedCounters")]
    devices: Annotated[tuple[Device, ...], At("spec.devices")]

    kind = DeviceKind.SLICE

    @property
    def pool_id(self) -> PoolId:
        """The pool that has this slice."""
        return PoolId(self.driver, self.pool)

    def device_id(self, device: Device) -> DeviceId:
        """Return the id of a device of this slice."""
        return DeviceId(self.driver, self.pool, device.name)


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """
    A class of devices.

    Attributes:
        extended_resource: the extended resource that it provides besides the implicit one; empty without one.
        created: the creationTimestamp as text; texts sort as the times do.
    """

    key: Name
    uid: Uid
    resource_version: ResourceVersion = field(compare=False)
    selectors: Annotated[Expressions, At("spec.selectors")]
    config: Annotated[
        tuple[Annotated[DeviceConfiguration, At(parse=with_own_parameters)], ...], At("spec.config")
    ] = field(hash=False)
    extended_resource: Annotated[str, At("spec.extendedResourceName")]
    created: Created

    kind = DeviceKind.CLASS


class TaintSelector(Wire, frozen=True):
    """The devices with this driver, pool and name; None for any."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


#: The driver of none.
_NO_DEVICES: Final = TaintSelector(driver="")


def _or_no_devices(selector: TaintSelector | None) -> TaintSelector:
    return _NO_DEVICES if selector is None else selector


@dataclass(frozen=True, slots=True)
class DeviceTaintRule:
    """A taint of all devices that the selector selects."""

    key: Name
    resource_version: ResourceVersion = field(compare=False)
    selector: Annotated[
        TaintSelector, At("spec.deviceSelector", of=TaintSelector | None, parse=_or_no_devices)
    ]
    taint: Annotated[Taint, At("spec.taint")]

    kind = DeviceKind.TAINT_RULE

    def selects(self, driver: str, pool: str) -> bool:
        """Return whether devices of the pool may be among them."""
        return self.selector.driver in (None, driver) and self.selector.pool in (None, pool)

    def taints(self, device: DeviceId, taint: Taint) -> bool:
        """Return whether the device has the taint by this rule."""
        return (
            self.taint == taint
            and self.selects(device.driver, device.pool)
            and self.selector.device in (None, device.device)
        )


def variable_of(driver: str, device: Device) -> Value | EvaluationError:
    """Return a device as the value of `device` in expressions, or why its first attribute by name has none."""
    attributes: dict[str, Value] = {}
    for name in sorted(device.attributes):
        attribute = device.attributes[name]
        try:
            value = attribute.value if attribute.version is None else parse_semver(attribute.version)
        except CelError as error:
            return EvaluationError(f"attribute {name}: parse semantic version: {error}")
        if value is None:
            return EvaluationError(f"attribute {name}: unsupported attribute value")
        attributes[name] = value
    capacity = {name: capacity.value.amount for name, capacity in device.capacity.items()}
    return device_variable(driver, attributes, capacity, may_be_shared=device.allow_multiple_allocations)

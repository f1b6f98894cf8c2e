"""
Decoding of slices, device classes and claims from JSON.

Only the fields that a scheduler reads are decoded; equal attributes, capacities and taints are one object.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from sys import intern
from typing import Any, Final, TypeVar, cast

import msgspec

from scheduler.engine.model import allocations, device_wire, wire
from scheduler.engine.model.allocations import Allocation, DeviceConfiguration
from scheduler.engine.model.device_requests import DeviceConstraint, DeviceQuery, DeviceRequest, ResourceClaim
from scheduler.engine.model.devices import (
    AttributeType,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClass,
    DeviceKind,
    DeviceTaintRule,
    RequestPolicy,
    ResourceSlice,
    ValidRange,
)
from scheduler.engine.model.node_selection import NodeSelection, node_selection
from scheduler.engine.model.terms import Taint
from scheduler.engine.model.wire import MalformedObjectError, QuantityText
from scheduler.engine.syntax.quantity import QuantityError
from scheduler.engine.syntax.quantity_format import FormattedQuantity, parse_formatted

DeviceObject = ResourceSlice | DeviceClass | ResourceClaim | DeviceTaintRule
_Maker = Callable[[Any], DeviceObject]
_T = TypeVar("_T", bound=Hashable)
_Configuration = TypeVar("_Configuration", bound=DeviceConfiguration)

_NO_ATTRIBUTES: Final[Mapping[str, DeviceAttribute]] = {}
_NO_CAPACITY: Final[Mapping[str, DeviceCapacity]] = {}
_NO_REQUESTS: Final[Mapping[str, FormattedQuantity]] = {}
#: Values that are shared; more than this many different ones are not worth to be remembered.
_MAX_SHARED: Final = 65536


class DeviceDecoder:
    """Decodes JSON into objects of devices. Objects of one decoder share equal parts: use one per process."""

    def __init__(self) -> None:
        decoder = msgspec.json.Decoder
        #: The decoder of each kind, and what makes an object of the struct that it returns.
        self._by_kind: Mapping[DeviceKind, tuple[msgspec.json.Decoder[Any], _Maker]] = {
            DeviceKind.SLICE: (decoder(device_wire.Slice), self._slice_of),
            DeviceKind.CLASS: (decoder(device_wire.Class), _class_of),
            DeviceKind.CLAIM: (decoder(device_wire.Claim), _claim_of),
            DeviceKind.TAINT_RULE: (decoder(device_wire.TaintRule), _taint_rule_of),
        }
        self._shared: dict[Hashable, Hashable] = {}

    def decode(self, kind: DeviceKind, data: bytes | msgspec.Raw) -> DeviceObject:
        """Return the object of a JSON document; raise MalformedObjectError, which names field and problem."""
        decoder, make = self._by_kind[kind]
        try:
            return make(wire.decoded(decoder, kind, data))
        except QuantityError as error:
            raise MalformedObjectError(f"{kind}: {error}") from error

    def _slice_of(self, raw: device_wire.Slice) -> ResourceSlice:
        meta, spec = raw.metadata, raw.spec
        return ResourceSlice(
            key=wire.name_of(DeviceKind.SLICE, meta),
            uid=meta.uid or "",
            resource_version=meta.resource_version,
            driver=intern(spec.driver),
            pool=intern(spec.pool.name),
            generation=spec.pool.generation,
            slice_count=spec.pool.resource_slice_count,
            node_name=None if spec.node_name is None else intern(spec.node_name),
            node_selection=_selection(spec.node_selector),
            all_nodes=spec.all_nodes is True,
            per_device_node_selection=spec.per_device_node_selection is True,
            shared_counters=tuple(_counters(each.name, each.counters) for each in spec.shared_counters or ()),
            devices=tuple(self._device_of(each) for each in spec.devices or ()),
        )

    def _device_of(self, raw: device_wire.Device) -> Device:
        return Device(
            name=intern(raw.name),
            attributes={
                intern(name): self._share(_attribute(value)) for name, value in raw.attributes.items()
            }
            if raw.attributes
            else _NO_ATTRIBUTES,
            capacity={intern(name): self._share(_capacity(value)) for name, value in raw.capacity.items()}
            if raw.capacity
            else _NO_CAPACITY,
            consumes_counters=tuple(
                _counters(each.counter_set, each.counters) for each in raw.consumes_counters or ()
            ),
            taints=self._share(
                tuple(Taint(each.key, each.value or "", each.effect) for each in raw.taints or ())
            ),
            node_name=None if raw.node_name is None else intern(raw.node_name),
            node_selection=_selection(raw.node_selector),
            all_nodes=raw.all_nodes is True,
            binds_to_node=raw.binds_to_node is True,
            binding_conditions=self._share(raw.binding_conditions),
            binding_failure_conditions=self._share(raw.binding_failure_conditions),
            allow_multiple_allocations=raw.allow_multiple_allocations is True,
        )

    def _share(self, value: _T) -> _T:
        """Return the same object for equal values: 40,000 devices have a few types and capacities."""
        shared = self._shared
        if len(shared) >= _MAX_SHARED and value not in shared:
            return value
        return cast("_T", shared.setdefault(value, value))


def _taint_rule_of(raw: device_wire.TaintRule) -> DeviceTaintRule:
    # Without a selector no devices are selected, by the driver of none; an empty one selects all.
    taint, selector = raw.spec.taint, raw.spec.device_selector or device_wire.TaintSelector(driver="")
    return DeviceTaintRule(
        key=wire.name_of(DeviceKind.TAINT_RULE, raw.metadata),
        resource_version=raw.metadata.resource_version,
        driver=selector.driver,
        pool=selector.pool,
        device=selector.device,
        taint=Taint(taint.key, taint.value or "", taint.effect),
    )


def _class_of(raw: device_wire.Class) -> DeviceClass:
    meta, spec = raw.metadata, raw.spec
    return DeviceClass(
        key=intern(wire.name_of(DeviceKind.CLASS, meta)),
        uid=meta.uid or "",
        resource_version=meta.resource_version,
        selectors=_expressions(spec.selectors),
        config=tuple(map(_own, spec.config or ())),
        extended_resource=spec.extended_resource_name or "",
        created=meta.creation_timestamp or "",
    )


def _claim_of(raw: device_wire.Claim) -> ResourceClaim:
    meta, devices, status = raw.metadata, raw.spec.devices, raw.status
    namespace, name = wire.namespace_and_name(DeviceKind.CLAIM, meta)
    return ResourceClaim(
        key=intern(f"{namespace}/{name}"),
        uid=intern(meta.uid or ""),
        resource_version=meta.resource_version,
        owners=meta.owner_references or (),
        annotations=meta.annotations or {},
        finalizers=meta.finalizers or (),
        terminating=meta.deletion_timestamp is not None,
        requests=tuple(map(_request, devices.requests or ())),
        constraints=tuple(
            DeviceConstraint(frozenset(each.requests or ()), each.match_attribute, each.distinct_attribute)
            for each in devices.constraints or ()
        ),
        config=tuple(_own(each) for each in devices.config or ()),
        allocation=_allocation(status.allocation),
        reserved_for=status.reserved_for or (),
        devices=status.devices or (),
    )


def _request(raw: device_wire.Request) -> DeviceRequest:
    return DeviceRequest(
        name=raw.name,
        exactly=None if raw.exactly is None else _query(raw.name, raw.exactly),
        first_available=tuple(_query(each.name, each) for each in raw.first_available or ()),
    )


def _query(name: str, raw: device_wire.Query) -> DeviceQuery:
    requests = None if raw.capacity is None else raw.capacity.requests
    return DeviceQuery(
        name=intern(name),
        class_name=intern(raw.device_class_name),
        selectors=_expressions(raw.selectors),
        mode=intern(raw.allocation_mode),
        count=raw.count,
        admin_access=raw.admin_access is True,
        tolerations=raw.tolerations or (),
        capacity={key: _quantity(amount) for key, amount in requests.items()} if requests else _NO_REQUESTS,
    )


def _expressions(selectors: tuple[device_wire.Selector, ...] | None) -> tuple[str | None, ...]:
    return tuple(None if each.cel is None else intern(each.cel.expression) for each in selectors or ())


def _attribute(raw: device_wire.Attribute) -> DeviceAttribute:
    if raw.string is not None:
        return DeviceAttribute(AttributeType.STRING, raw.string)
    if raw.int_ is not None:
        return DeviceAttribute(AttributeType.INT, raw.int_)
    if raw.bool_ is not None:
        return DeviceAttribute(AttributeType.BOOL, raw.bool_)
    if raw.version is not None:
        return DeviceAttribute(AttributeType.VERSION, raw.version)
    return DeviceAttribute(AttributeType.NONE, None)


def _capacity(raw: device_wire.Capacity) -> DeviceCapacity:
    policy = raw.request_policy
    if policy is None:
        return DeviceCapacity(_quantity(raw.value), None)
    valid = policy.valid_range
    return DeviceCapacity(
        _quantity(raw.value),
        RequestPolicy(
            default=_optional(policy.default),
            valid_values=tuple(map(_quantity, policy.valid_values or ())),
            valid_range=None
            if valid is None
            else ValidRange(_optional(valid.min), _optional(valid.max), _optional(valid.step)),
        ),
    )


def _counters(name: str, raw: Mapping[str, device_wire.Counter] | None) -> CounterSet:
    return CounterSet(
        intern(name), {intern(key): _quantity(counter.value).nano for key, counter in (raw or {}).items()}
    )


def _quantity(text: QuantityText) -> FormattedQuantity:
    return parse_formatted(0 if text is None else text)


def _optional(text: QuantityText) -> FormattedQuantity | None:
    return None if text is None else parse_formatted(text)


def _selection(raw: wire.NodeSelector | None) -> NodeSelection | None:
    return None if raw is None else node_selection(raw)


def _own(configuration: _Configuration) -> _Configuration:
    """Return the configuration with parameters of its own: a raw part keeps the message around it alive."""
    opaque = configuration.opaque
    if opaque is None:
        return configuration
    return msgspec.structs.replace(configuration, opaque=_own_opaque(opaque))


def _own_opaque(opaque: allocations.OpaqueConfiguration) -> allocations.OpaqueConfiguration:
    return msgspec.structs.replace(opaque, parameters=opaque.parameters.copy())


def _allocation(raw: Allocation | None) -> Allocation | None:
    for result in () if raw is None else raw.devices.results:
        for amount in (result.consumed_capacity or {}).values():
            _quantity(amount)  # kept as written; what counts it relies on that it is one
    if raw is None or not raw.devices.config:
        return raw
    config = tuple(
        each if each.opaque is None else msgspec.structs.replace(each, opaque=_own_opaque(each.opaque))
        for each in raw.devices.config
    )
    return msgspec.structs.replace(raw, devices=msgspec.structs.replace(raw.devices, config=config))

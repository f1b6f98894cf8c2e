"""Devices as CEL expressions see them."""

from __future__ import annotations

from scheduler.engine.cel import AttributeValue, DeviceFields, Version
from scheduler.engine.model.devices import AttributeType, Device, DeviceAttribute


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

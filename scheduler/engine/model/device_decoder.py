"""Decoding of slices, device classes, claims and taint rules from JSON; equal parts are one object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.devices import DeviceClass, DeviceKind, DeviceTaintRule, ResourceSlice
from scheduler.engine.model.json_fields import Reader

DeviceObject = ResourceSlice | DeviceClass | ResourceClaim | DeviceTaintRule

DEVICES: Final[Mapping[DeviceKind, Reader[Any]]] = {
    DeviceKind.SLICE: Reader(ResourceSlice),
    DeviceKind.CLASS: Reader(DeviceClass),
    DeviceKind.CLAIM: Reader(ResourceClaim),
    DeviceKind.TAINT_RULE: Reader(DeviceTaintRule),
}


class DeviceDecoder:
    """Decodes JSON into objects of devices."""

    def decode(self, kind: DeviceKind, data: bytes | msgspec.Raw) -> DeviceObject:
        """Return the object of a JSON document; raise MalformedObjectError, which names field and problem."""
        found: DeviceObject = DEVICES[kind].decode(kind, data)
        return found

"""What is known of devices, and what tells readers that it changed."""

from __future__ import annotations

import json
from typing import Any

from scheduler.model.device_decoder import DeviceDecoder
from scheduler.model.devices import DeviceKind
from scheduler.state.devices import Devices
from tests.support.build import Json
from tests.support.device_documents import device_class

_DECODER = DeviceDecoder()


def decoded(document: Json) -> Any:
    return _DECODER.decode(DeviceKind(document["kind"]), json.dumps(document).encode())


def test_each_change_of_a_class_is_told() -> None:
    """Also one that takes the place of another: what was computed with the former class is computed anew."""
    devices = Devices()
    versions = [devices.classes_version]
    for resource in ("", "example.com/gpu"):
        devices.upsert(decoded(device_class("gpu", resource)))
        versions.append(devices.classes_version)
    devices.remove(DeviceKind.CLASS, "gpu")
    versions.append(devices.classes_version)
    assert len(set(versions)) == 4

"""
The allocation of a claim and the state of its devices, as they are read from JSON and written to it.

Source: api/resource/v1/types.go, AllocationResult (kubernetes 1.36).
"""

from __future__ import annotations

from typing import Final

import msgspec

from scheduler.engine.model.terms import Taint, Toleration
from scheduler.engine.model.wire import NodeSelector, QuantityText

FROM_CLASS: Final = "FromClass"
FROM_CLAIM: Final = "FromClaim"


class Written(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A struct with camelCase field names that leaves out what is not set."""


class OpaqueConfiguration(Written, frozen=True):
    """Parameters that the driver alone understands, as they stood in the JSON."""

    driver: str = ""
    parameters: msgspec.Raw = msgspec.Raw()


class DeviceConfiguration(Written, frozen=True):
    """spec.config[] of a class."""

    opaque: OpaqueConfiguration | None = None


class ClaimConfiguration(DeviceConfiguration, frozen=True):
    """spec.devices.config[] of a claim. Without requests it is for all of them."""

    requests: tuple[str, ...] | None = None


class AllocatedConfiguration(Written, frozen=True):
    """status.allocation.devices.config[] of a claim."""

    source: str = ""
    requests: tuple[str, ...] | None = None
    opaque: OpaqueConfiguration | None = None


class DeviceToleration(Written, frozen=True):
    """A toleration of a request, and of the devices that it got."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Return whether this toleration covers the taint, as that of a pod covers a node's."""
        return Toleration(self.key, self.operator, self.value, self.effect).tolerates(taint)


class DeviceResult(Written, frozen=True):
    """One device that a request got. `request` is `R`, or `R/S` for the alternative S of R."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    share_id: str | None = msgspec.field(name="shareID", default=None)
    consumed_capacity: dict[str, QuantityText] | None = None


class DeviceResults(Written, frozen=True):
    """status.allocation.devices of a claim."""

    results: tuple[DeviceResult, ...] = ()
    config: tuple[AllocatedConfiguration, ...] = ()


class Allocation(Written, frozen=True):
    """status.allocation of a claim. Without a node selector its devices are available on all nodes."""

    devices: DeviceResults = DeviceResults()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class Consumer(Written, frozen=True):
    """status.reservedFor[] of a claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class DeviceCondition(Written, frozen=True):
    """status.devices[].conditions[] of a claim, as far as it is read."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class DeviceStatus(Written, frozen=True):
    """status.devices[] of a claim, as far as it is read."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    conditions: tuple[DeviceCondition, ...] | None = None

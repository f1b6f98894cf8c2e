"""The allocation of a claim and its devices' state in JSON. Source: api/resource/v1/types.go (kubernetes 1.36)."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from scheduler.engine.model.node_selector import NodeSelector
from scheduler.engine.model.terms import Toleration
from scheduler.engine.model.wire import QuantityText
from scheduler.engine.syntax.quantity_format import parse_formatted

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


_Configuration = TypeVar("_Configuration", DeviceConfiguration, ClaimConfiguration, AllocatedConfiguration)


class DeviceToleration(Toleration, frozen=True, omit_defaults=True):
    """A toleration of a request, and of the devices that it got, which covers taints as a pod's toleration does."""

    toleration_seconds: int | None = None


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


def with_own_parameters(configuration: _Configuration) -> _Configuration:
    """Return the configuration with parameters of its own: a raw part keeps the message around it alive."""
    opaque = configuration.opaque
    if opaque is None:
        return configuration
    own = msgspec.structs.replace(opaque, parameters=opaque.parameters.copy())
    return msgspec.structs.replace(configuration, opaque=own)


def allocation_of_its_own(read: Allocation) -> Allocation:
    """Return an allocation that was read, with parameters of its own; raise QuantityError for a malformed amount."""
    for result in read.devices.results:
        for amount in (result.consumed_capacity or {}).values():
            parse_formatted(0 if amount is None else amount)  # kept as written; what counts it relies on it
    if not read.devices.config:
        return read
    config = tuple(map(with_own_parameters, read.devices.config))
    return msgspec.structs.replace(read, devices=msgspec.structs.replace(read.devices, config=config))

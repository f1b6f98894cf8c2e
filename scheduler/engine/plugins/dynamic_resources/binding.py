"""
Whether the devices of a claim are ready: drivers set the binding conditions of devices that have to be attached.

Source: plugins/dynamicresources/dynamicresources.go, isClaimReadyForBinding and isClaimTimeout (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.engine.cel.times import parse_timestamp
from scheduler.engine.model.allocations import DeviceCondition
from scheduler.engine.model.device_requests import ResourceClaim

BINDING_FAILED: Final = "device binding failed"


def has_conditions(claim: ResourceClaim) -> bool:
    """Return whether a device of the claim has binding conditions."""
    return claim.allocation is not None and any(
        result.binding_conditions for result in claim.allocation.devices.results
    )


def readiness(claim: ResourceClaim) -> bool | str:
    """Return whether all devices are ready, or why they never will be; the first device that is not ready decides."""
    if claim.allocation is None:
        return False
    for result in claim.allocation.devices.results:
        if not result.binding_conditions:
            continue
        # What the driver has published for the device, whatever its share ID.
        device = (result.driver, result.pool, result.device)
        status = next(
            (each for each in claim.devices if (each.driver, each.pool, each.device) == device), None
        )
        if status is None:
            return False
        conditions = status.conditions or ()
        for name in result.binding_failure_conditions or ():
            condition = _condition(conditions, name)
            if condition is not None and condition.status == "True":
                why = f'reason={condition.reason}, message="{condition.message}"'
                return f"{BINDING_FAILED}: claim={claim.name}, {why}"
        for name in result.binding_conditions:
            condition = _condition(conditions, name)
            if condition is None or condition.status != "True":
                return False
    return True


def has_timed_out(claim: ResourceClaim, timeout_s: float, epoch_s: float) -> bool:
    """Return whether the devices of the claim have had their time. `epoch_s`: the time of day."""
    # Quirk: an empty list of binding conditions counts here.
    allocation = claim.allocation
    if allocation is None or allocation.allocation_timestamp is None:
        return False
    if all(result.binding_conditions is None for result in allocation.devices.results):
        return False
    allocated = parse_timestamp(allocation.allocation_timestamp)
    return allocated is not None and allocated.ns / 1e9 + timeout_s < epoch_s


def _condition(conditions: Sequence[DeviceCondition], name: str) -> DeviceCondition | None:
    return next((condition for condition in conditions if condition.type == name), None)

"""
How much of a device's capacities a request takes, and whether that is left.

Source: structured/internal/incubating/consumable_capacity.go (kubernetes 1.36; ranges in thousandths: 1.37).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.engine.model.device_requests import DeviceQuery
from scheduler.engine.model.devices import Device, DeviceCapacity, RequestPolicy, ValidRange
from scheduler.engine.syntax.quantity import Quantity
from scheduler.engine.syntax.quantity_format import FormattedQuantity, binary

#: Amounts by the name of the capacity.
Wanted = Mapping[str, FormattedQuantity]
_NOTHING: Final[Wanted] = {}
NO_USE: Final[Mapping[str, int]] = {}


def wanted_of(query: DeviceQuery, device: Device) -> Wanted | None:
    """Return how much of each capacity of the device a query takes, by name."""
    # None if it names a capacity that the device lacks, or an amount that the policy does not allow.
    if not device.capacity:
        return None if query.capacity else _NOTHING
    if any(name not in device.capacity for name in query.capacity):
        return None
    wanted: dict[str, FormattedQuantity] = {}
    for name in sorted(device.capacity):
        capacity = device.capacity[name]
        amount = _rounded(query.capacity.get(name), capacity)
        if capacity.policy is not None and _violates(amount, capacity.policy):
            return None
        wanted[name] = amount
    return wanted


def missing_capacity(
    wanted: Wanted, device: Device, stored: Mapping[str, int], taken: Mapping[str, int] = NO_USE
) -> dict[str, int]:
    """Return what is missing of each capacity, given what is stored and was taken, in billionths."""
    return {
        name: missing
        for name, amount in wanted.items()
        if (
            missing := amount.nano
            + stored.get(name, 0)
            + taken.get(name, 0)
            - device.capacity[name].value.nano
        )
        > 0
    }


def _rounded(requested: FormattedQuantity | None, capacity: DeviceCapacity) -> FormattedQuantity:
    policy = capacity.policy
    if requested is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return requested
    if policy.valid_range is not None and policy.valid_range.minimum is not None:
        return _rounded_in_range(requested, policy.valid_range, policy.valid_range.minimum)
    return next((value for value in policy.valid_values if requested.nano <= value.nano), requested)


def _rounded_in_range(
    requested: FormattedQuantity, valid: ValidRange, minimum: FormattedQuantity
) -> FormattedQuantity:
    if requested.nano < minimum.nano:
        return minimum
    if valid.step is None or not (step := _counted(valid.step, valid)):
        return requested
    start = _counted(minimum, valid)
    rounded = start + -(-(_counted(requested, valid) - start) // step) * step
    if not valid.is_fractional:
        return binary(rounded)
    is_whole = rounded % 1000 == 0
    return FormattedQuantity(Quantity(rounded * 10**6, 0 if is_whole else -3), valid.step.format)


def _violates(amount: FormattedQuantity, policy: RequestPolicy) -> bool:
    if policy.default is not None and amount.is_same_struct(policy.default):
        return False
    valid = policy.valid_range
    if valid is not None:
        if valid.maximum is not None and amount.nano > valid.maximum.nano:
            return True
        step = 0 if valid.step is None else _counted(valid.step, valid)
        start = 0 if valid.minimum is None else _counted(valid.minimum, valid)
        return step != 0 and (_counted(amount, valid) - start) % step != 0
    return bool(policy.valid_values) and all(amount.nano != value.nano for value in policy.valid_values)


def _counted(amount: FormattedQuantity, valid: ValidRange) -> int:
    """Return the amount in whole units, or in thousandths where the range counts in these, rounded up."""
    # Exact in thousandths, where upstream's int64 would overflow: more than a device has is refused as such.
    return -(-amount.nano // 10**6) if valid.is_fractional else amount.amount.value()

"""
Counters that the devices of a pool share: a device cannot be given as a whole once a part of it is taken.

Deviation: upstream keeps counters by the pool's name without its driver, and does not give back those of a device that
is refused later (kubernetes #140434, #140436).

Source: structured/internal/incubating/allocator_incubating.go, checkAvailableCounters (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scheduler.engine.model.devices import Device, DeviceId
from scheduler.engine.plugins.dynamic_resources.pools import Pool
from scheduler.engine.state.allocated_devices import AllocatedDevices


def available(pool: Pool, allocated: AllocatedDevices) -> dict[tuple[str, str], int]:
    """Return what the allocated devices of the pool leave of its counters; below zero if they took too much."""
    left = dict(pool.counters or {})
    for _, consumed in consuming(pool, allocated):
        for counter, amount in consumed.items():
            left[counter] -= amount
    return left


def missing_counters(device: Device, left: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Return how much the device needs beyond what is left of each counter of its pool, consumed by it or not."""
    consumed = consumption_of(device)
    return {
        counter: missing
        for counter, amount in left.items()
        if (missing := consumed.get(counter, 0) - amount) > 0
    }


def consuming(
    pool: Pool, allocated: AllocatedDevices
) -> Iterator[tuple[DeviceId, dict[tuple[str, str], int]]]:
    """Yield the allocated devices of the pool that consume counters, with the amount of each counter."""
    for each in (*pool.slices, *pool.slices_elsewhere):
        for device in each.devices:
            if device.consumes_counters:
                device_id = each.device_id(device)
                if allocated.has(device_id):
                    yield device_id, consumption_of(device)


def consumption_of(device: Device) -> dict[tuple[str, str], int]:
    """Return how much the device consumes of each counter, in billionths, by set and counter."""
    sums: dict[tuple[str, str], int] = {}
    for each in device.consumes_counters:
        for name, amount in each.counters.items():
            sums[each.name, name] = sums.get((each.name, name), 0) + amount
    return sums

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


class Counters:
    """The rest of the counters of each pool while devices are taken, in billionths."""

    def __init__(self, allocated: AllocatedDevices) -> None:
        self._allocated = allocated
        self._left_by_pool: dict[Pool, dict[tuple[str, str], int]] = {}

    def can_take(self, pool: Pool, device: Device) -> bool:
        """Return whether no counter of the pool is below zero with the device, consumed by it or not."""
        return not missing_counters(device, self._left(pool))

    def change(self, pool: Pool, device: Device, sign: int) -> None:
        """Consume the counters of a device (-1), or return them (1)."""
        left = self._left(pool)
        for counter, amount in consumption_of(device).items():
            left[counter] += sign * amount

    def _left(self, pool: Pool) -> dict[tuple[str, str], int]:
        left = self._left_by_pool.get(pool)
        if left is None:
            left = self._left_by_pool[pool] = available(pool, self._allocated)
        return left


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

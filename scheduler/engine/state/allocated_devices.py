"""
The devices that claims hold, and what they consume of devices that several claims share.

Source: plugins/dynamicresources/allocateddevices.go (kubernetes 1.36). Difference: upstream keeps sets, from which a
device is gone as soon as one of two claims that name it is; here every claim counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from scheduler.engine.model.allocations import Allocation, DeviceResult
from scheduler.engine.model.devices import DeviceId
from scheduler.engine.state.sparse_dicts import add_count
from scheduler.engine.syntax.quantity_format import parse_formatted


class AllocatedDevices:
    """Allocations by device. Results with admin access do not count. `version`: the number of the last change."""

    def __init__(self) -> None:
        self.version = 0
        #: How many devices claims have or share; drivers without any are left out.
        self.n_by_driver: dict[str, int] = {}
        #: By device: keys of the claims that have it for themselves, and in how many results.
        self._dedicated: dict[DeviceId, dict[str, int]] = {}
        #: By device: keys of the claims that share it, and in how many results.
        self._shared: dict[DeviceId, dict[str, int]] = {}
        #: By device that claims share: the capacities that results consume, in billionths, without zeros; may be empty.
        self.consumed: dict[DeviceId, dict[str, int]] = {}
        #: By device: how many results consume capacity.
        self._n_consuming: dict[DeviceId, int] = {}

    @property
    def dedicated(self) -> Set[DeviceId]:
        """The devices that a claim has for itself."""
        return self._dedicated.keys()

    def owners(self, device: DeviceId) -> Iterator[str]:
        """Yield the keys of the claims that have the device for themselves; two if two schedulers gave it away."""
        yield from self._dedicated.get(device, ())

    def claims_of(self, device: DeviceId) -> Iterator[str]:
        """Yield the keys of the claims that have the device."""
        yield from self._dedicated.get(device, ())
        yield from self._shared.get(device, ())

    def has(self, device: DeviceId) -> bool:
        """Return whether a claim has the device, or shares it."""
        return device in self._dedicated or device in self._shared

    def count(self, allocation: Allocation, claim_key: str, delta: int) -> None:
        """Count the claim's allocation in (`delta` 1), or out (-1). O(results)."""
        self.version += 1
        for result in allocation.devices.results:
            if result.admin_access:
                continue
            device = DeviceId(result.driver, result.pool, result.device)
            had = self.has(device)
            by_device = self._dedicated if result.share_id is None else self._shared
            claims = by_device.setdefault(device, {})
            add_count(claims, claim_key, delta)
            if not claims:
                del by_device[device]
            if (change := self.has(device) - had) != 0:
                add_count(self.n_by_driver, device.driver, change)
            if result.share_id is not None and result.consumed_capacity:
                self._consume(device, result, delta)

    def _consume(self, device: DeviceId, result: DeviceResult, delta: int) -> None:
        if add_count(self._n_consuming, device, delta) == 0:
            del self.consumed[device]
            return
        consumed = self.consumed.setdefault(device, {})
        for name, text in (result.consumed_capacity or {}).items():
            amount = parse_formatted(0 if text is None else text).nano
            if amount:
                add_count(consumed, name, delta * amount)

    def content(self) -> tuple[object, ...]:
        """Return everything that is counted, to compare it with a recount."""
        return self._dedicated, self._shared, self.consumed, self._n_consuming, self.n_by_driver

"""
The taints that DeviceTaintRules add to the devices of slices.

Source: k8s.io/dynamic-resource-allocation/resourceslice/tracker, applyPatches (kubernetes 1.36; on from 1.37).
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.engine.model.devices import DeviceTaintRule, ResourceSlice
from scheduler.engine.model.terms import Taint

#: By device of a slice, the taints that rules add.
_Added = tuple[tuple[Taint, ...], ...]


class SliceTaints:
    """The rules by name, and the slices that they change."""

    def __init__(self) -> None:
        self.rules: dict[str, DeviceTaintRule] = {}
        #: Key of a slice -> the slice as published, the taints that were added, and the slice with them.
        self._tainted: dict[str, tuple[ResourceSlice, _Added, ResourceSlice]] = {}

    def applied(self, published: ResourceSlice) -> ResourceSlice:
        """Return the slice with the taints of all rules; the same object as before if neither changed."""
        rules = [
            rule for _, rule in sorted(self.rules.items()) if rule.selects(published.driver, published.pool)
        ]
        added = tuple(
            tuple(rule.taint for rule in rules if rule.selector.device in (None, device.name))
            for device in published.devices
        )
        if not any(added):
            self._tainted.pop(published.key, None)
            return published
        known = self._tainted.get(published.key)
        if known is not None and known[:2] == (published, added):
            return known[2]
        devices = (
            replace(device, taints=(*device.taints, *taints)) if taints else device
            for device, taints in zip(published.devices, added, strict=True)
        )
        tainted = replace(published, devices=tuple(devices))
        self._tainted[published.key] = (published, added, tainted)
        return tainted

    def published(self, of_slice: ResourceSlice) -> ResourceSlice:
        """Return the slice without the taints of rules."""
        known = self._tainted.get(of_slice.key)
        return of_slice if known is None else known[0]

    def forget(self, key: str) -> None:
        """Note that there is no such slice any more."""
        self._tainted.pop(key, None)

    def share_with(self, other: SliceTaints) -> None:
        """Let the other, which has no slices yet, return the same objects for the same slices and rules."""
        other._tainted = dict(self._tainted)

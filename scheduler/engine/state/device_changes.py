"""The pools of devices that changed lately, so that what nodes offer is not computed again for each pod."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from scheduler.engine.model.devices import PoolId

#: Changes remembered; a value that is older than all of them is computed again.
_REMEMBERED: Final = 1024


class DeviceChange(NamedTuple):
    """A change of a pool: of its slices, or of what is allocated of its devices."""

    pool: PoolId
    of_slices: bool


class DeviceChanges:
    """The latest changes of pools, and a version that only grows."""

    def __init__(self) -> None:
        self.version = 0
        self._changes: list[DeviceChange] = []

    def append(self, pool: PoolId, *, of_slices: bool) -> None:
        """Remember a change. O(1)."""
        self.version += 1
        self._changes.append(DeviceChange(pool, of_slices))
        if len(self._changes) > 2 * _REMEMBERED:
            del self._changes[:_REMEMBERED]

    def since(self, version: int) -> Sequence[DeviceChange] | None:
        """Return the changes after the version, oldest first; None if they are not all remembered."""
        n_changes = self.version - version
        if n_changes > len(self._changes):
            return None
        return self._changes[len(self._changes) - n_changes :]

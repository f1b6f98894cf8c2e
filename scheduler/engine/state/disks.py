"""The disks that pods name without a claim, and the rows where they are mounted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from scheduler.engine.model.disks import RESTRICTED, Disk, disks_conflict
from scheduler.engine.state.partitioned_dict import PartitionedDict
from scheduler.engine.state.sparse_dicts import add_count

_NONE: Final[Mapping[Disk, Mapping[int, int]]] = {}


class MountedDisks:
    """Disks of placed pods, as far as pods may not share them at will. Exactly one writer: ClusterState."""

    def __init__(self) -> None:
        #: By `_key`: disk -> row -> volumes.
        self._by_key: PartitionedDict[dict[Disk, dict[int, int]]] = PartitionedDict()

    def count(self, row: int, disks: Iterable[Disk], delta: int) -> None:
        """Count the disks of a pod that came to the row (delta 1), or left it (-1)."""
        for disk in disks:
            if disk.plugin in RESTRICTED:
                key = _key(disk)
                mounted = self._by_key.get(key)
                if mounted is None:
                    mounted = self._by_key[key] = {}
                rows = mounted.setdefault(disk, {})
                add_count(rows, row, delta)
                if not rows:
                    del mounted[disk]
                if not mounted:
                    del self._by_key[key]

    def conflicting_rows(self, disks: Iterable[Disk]) -> Collection[int]:
        """Return the rows with a pod that uses one of the disks and may not share it."""
        rows: set[int] = set()
        for disk in disks:
            for other, on_rows in (self._by_key.get(_key(disk)) or _NONE).items():
                if disks_conflict(disk, other):
                    rows.update(on_rows)
        return rows

    def on_rows(self) -> dict[tuple[Disk, int], int]:
        """Return how many volumes there are of each disk on each row; for the audit."""
        return {
            (disk, row): n
            for mounted in self._by_key.values()
            for disk, rows in mounted.items()
            for row, n in rows.items()
        }


def _key(disk: Disk) -> str:
    return f"{disk.plugin} {disk.name}"

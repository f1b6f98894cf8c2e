"""The volumes that claims may take, ordered: the smallest fitting volume is found without a walk over all volumes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final

from scheduler.engine.model.node_selector import NodeSelector
from scheduler.engine.model.volumes import PersistentVolume

#: Bytes and name of a volume, which order the entries, and the volume.
Entry = tuple[int, str, PersistentVolume]
_NONE: Final[Mapping[NodeSelector | None, list[Entry]]] = {}


class FreeVolumes:
    """Free volumes by class and topology, smallest first; those of equal size by name."""

    def __init__(self) -> None:
        self._by_class: dict[str, dict[NodeSelector | None, list[Entry]]] = {}

    def add(self, volume: PersistentVolume) -> None:
        """Add the volume if it is free. O(log n), and moving n pointers."""
        if volume.is_free:
            by_topology = self._by_class.setdefault(volume.class_name, {})
            entries = by_topology.setdefault(volume.source.topology, [])
            insort(entries, (volume.capacity_bytes, volume.key, volume))

    def discard(self, volume: PersistentVolume) -> None:
        """Take the volume out if it was added."""
        if not volume.is_free:
            return
        by_topology = self._by_class[volume.class_name]
        entries = by_topology[volume.source.topology]
        del entries[bisect_left(entries, (volume.capacity_bytes, volume.key))]
        if not entries:
            del by_topology[volume.source.topology]
            if not by_topology:
                del self._by_class[volume.class_name]

    def at_least(self, class_name: str, bytes_: int) -> Iterator[tuple[Sequence[Entry], int]]:
        """Yield for each topology the class's volumes, smallest first, and the first index with that many bytes."""
        for entries in self._by_class.get(class_name, _NONE).values():
            start = 0 if entries[0][0] >= bytes_ else bisect_left(entries, bytes_, key=itemgetter(0))
            if start < len(entries):
                yield entries, start

    def names(self) -> set[str]:
        """Return the names of all free volumes; for the audit."""
        lists = (entries for by_topology in self._by_class.values() for entries in by_topology.values())
        return {name for entries in lists for _, name, _ in entries}

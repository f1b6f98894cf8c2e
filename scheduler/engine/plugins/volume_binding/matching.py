"""
Existing volumes for claims that wait for a node: for each node the smallest that fits, for all nodes at once.

kube-scheduler walks all volumes of a class for every node. Here the smallest that fits is looked up once for each
topology, and then given to the nodes that reach it.

Source: component-helpers/storage/volume/pv_helpers.go, FindMatchingVolume (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduler.engine.model.volumes import PersistentVolume, PersistentVolumeClaim
from scheduler.engine.state.arrays import Mask, Rows
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.free_volumes import Entry
from scheduler.engine.state.topology_rows import TopologyRows
from scheduler.engine.state.volumes import Volumes

#: Stands for no volume in an array of volumes by row.
NO_VOLUME: Final = -1


class StaticMatching:
    """Volumes for the claims of one pod, claim after claim: no volume is given to two of them on one node."""

    def __init__(self, view: ClusterView) -> None:
        self._volumes: Volumes = view.volumes
        self._topologies: TopologyRows = view.topology_rows()
        self._n_rows, self._n_nodes = view.n_rows, view.n_nodes
        self._number: dict[str, int] = {}
        #: The volumes, by their number in the arrays.
        self.found: list[PersistentVolume] = []
        #: For each claim that was asked about, the number of its volume by row.
        self.chosen: list[Rows] = []

    def find(self, claim: PersistentVolumeClaim) -> Mask:
        """Choose a volume for the claim on every row. Returns the rows that have one."""
        best = self._promised(claim)
        if best is None:
            best = self._smallest(claim)
        self.chosen.append(best)
        return np.not_equal(best, NO_VOLUME)

    def _promised(self, claim: PersistentVolumeClaim) -> Rows | None:
        """Return the volume that refers to the claim already, None if there is none."""
        # Quirk: its phase, selector and access modes are not looked at; and on a node that does not reach it, no other
        # volume will do. If there are several, upstream takes the first that it finds.
        for name in sorted(self._volumes.promised_to(claim.key)):
            volume = self._volumes.volume(name)
            if volume is None or volume.class_name != claim.class_name or not volume.is_for(claim):
                continue
            if _fits(volume, claim) and volume.capacity_bytes >= claim.requested_bytes:
                best = self._nothing()
                best[self._topologies.mask(volume.source.topology)] = self._number_of(volume)
                return best
        return None

    def _smallest(self, claim: PersistentVolumeClaim) -> Rows:
        best = self._nothing()
        n_unset = self._n_nodes
        for volume in self._candidates(claim):
            reached = self._topologies.rows(volume.source.topology)
            if isinstance(reached, tuple):
                n_unset -= self._give_to_few(volume, reached, best)
            else:
                n_unset -= self._give(volume, reached, best)
            if not n_unset:
                break
        return best

    def _candidates(self, claim: PersistentVolumeClaim) -> list[PersistentVolume]:
        """Return the smallest volumes that fit the claim, some of each topology, smallest first."""
        # Each claim before this one may have taken one volume, so one more than these claims is enough.
        n_wanted = len(self.chosen) + 1
        candidates: list[Entry] = []
        for entries, start in self._volumes.free.at_least(claim.class_name, claim.requested_bytes):
            n_left = n_wanted
            for index in range(start, len(entries)):
                volume = entries[index][2]
                if _fits(volume, claim) and _serves(volume, claim):
                    candidates.append(entries[index])
                    n_left -= 1
                    if not n_left:
                        break
        candidates.sort()
        return [volume for _, _, volume in candidates]

    def _give(self, volume: PersistentVolume, reached: Mask, best: Rows) -> int:
        """Give the volume to each row that has none and where no earlier claim took it. Return how many rows."""
        free = reached & (best == NO_VOLUME)
        number = self._number_of(volume)
        for taken in self.chosen:
            free &= taken != number
        best[free] = number
        return int(np.count_nonzero(free))

    def _give_to_few(self, volume: PersistentVolume, reached: Sequence[int], best: Rows) -> int:
        number, n = self._number_of(volume), 0
        for row in reached:
            if best.item(row) == NO_VOLUME and all(taken.item(row) != number for taken in self.chosen):
                best[row] = number
                n += 1
        return n

    def _number_of(self, volume: PersistentVolume) -> int:
        number = self._number.setdefault(volume.key, len(self.found))
        if number == len(self.found):
            self.found.append(volume)
        return number

    def _nothing(self) -> Rows:
        return np.full(self._n_rows, NO_VOLUME, dtype=np.intp)


def reached_rows(volume: PersistentVolume, view: ClusterView) -> Mask:
    """Return the rows that reach a bound volume: by its driver's labels where its plugin was migrated."""
    topologies, source = view.topology_rows(), volume.source
    mask = topologies.mask(source.topology)
    if source.migrated_topology == source.topology:
        return mask
    return np.where(view.migrated_rows(source.plugin), topologies.mask(source.migrated_topology), mask)


def _fits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether the volume can be the claim's at all, its size aside."""
    return (
        volume.volume_mode == claim.volume_mode
        and volume.attributes_class == claim.attributes_class
        and not volume.terminating
    )


def _serves(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether the claim may take the volume, which names no claim."""
    if claim.selector is not None and not claim.selector.matches(volume.labels):
        return False
    # Equal lists are one object.
    return claim.access_modes is volume.access_modes or all(
        mode in volume.access_modes for mode in claim.access_modes
    )

"""Placed pods as columns, one slot per pod, so that a few array operations count the pods of any selector."""

from __future__ import annotations

from typing import Final

import numpy as np

from scheduler.state.arrays import Amounts, Counts, Mask, Rows, grown

_FIRST_CAPACITY: Final = 64
#: The label set number of a free slot; label sets are numbered from 1.
_FREE: Final = 0


class PodColumns:
    """Label set, node row, liveness (not terminating) and priority of every placed pod. One writer: ClusterState."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._n_slots = 0
        #: intp, shape (capacity,): `LabelSet.number`, `_FREE` where the slot holds no pod.
        self._label_set: Rows = np.zeros(_FIRST_CAPACITY, dtype=np.intp)
        self._row: Rows = np.zeros(_FIRST_CAPACITY, dtype=np.intp)
        self._live: Mask = np.zeros(_FIRST_CAPACITY, dtype=np.bool_)
        self._priority: Amounts = np.zeros(_FIRST_CAPACITY, dtype=np.int64)

    def add(self, label_set: int, row: int, priority: int, *, live: bool) -> int:
        """Add a pod and return its slot. O(1)."""
        if self._free:
            slot = self._free.pop()
        else:
            slot = self._n_slots
            self._n_slots += 1
            if slot == len(self._row):
                capacity = 2 * slot
                self._label_set = grown(self._label_set, capacity)
                self._row = grown(self._row, capacity)
                self._live = grown(self._live, capacity)
                self._priority = grown(self._priority, capacity)
        self._label_set[slot], self._row[slot], self._live[slot] = label_set, row, live
        self._priority[slot] = priority
        return slot

    def relabel(self, slot: int, label_set: int) -> None:
        """Set the pod's label set."""
        self._label_set[slot] = label_set

    def remove(self, slot: int) -> None:
        """Free the slot."""
        self._label_set[slot] = _FREE
        self._free.append(slot)

    def at(self, slot: int) -> tuple[int, int, bool, int]:
        """Return label set number, row, liveness and priority of the pod in the slot; for the audit."""
        label_set, row = self._label_set.item(slot), self._row.item(slot)
        return label_set, row, self._live.item(slot), self._priority.item(slot)

    def has_below(self, priority: int, n_rows: int) -> Mask:
        """Return the rows with a pod of a lower priority. O(pods): 0.3 ms for 150,000."""
        n = self._n_slots
        rows = self._row[:n][(self._priority[:n] < priority) & (self._label_set[:n] != _FREE)]
        mask = np.zeros(n_rows, dtype=np.bool_)
        mask[rows] = True
        return mask

    def n_by_label_set(self, n_numbers: int) -> Counts:
        """Return the number of pods of each label set, by number; for the audit. O(pods)."""
        counts = np.bincount(self._label_set[: self._n_slots], minlength=n_numbers).astype(np.int32)
        counts[_FREE] = 0
        return counts

    def per_row(self, selected: Mask, n_rows: int, *, live_only: bool) -> Counts:
        """
        Return how many pods on each row have a selected label set: int32 array of shape (n_rows,).

        Args:
            selected: bool array by label set number, from `LabelSets.selected`.
            n_rows: rows of the node table.
            live_only: do not count terminating pods.

        Cost: O(pods): 20 µs for 5,000, 0.4 ms for 150,000.
        """
        n = self._n_slots
        counted = selected.take(self._label_set[:n])
        if live_only:
            counted &= self._live[:n]
        return np.bincount(self._row[:n][counted], minlength=n_rows).astype(np.int32)

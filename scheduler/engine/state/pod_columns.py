"""Placed pods as columns, one slot per pod, so that a few array operations count the pods of any selector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from scheduler.engine.model.requests import CPU, EPHEMERAL_STORAGE, MEMORY
from scheduler.engine.state.arrays import Amounts, Counts, Mask, Rows, grown

_FIRST_CAPACITY: Final = 64
#: Pods in one piece of a pass over all of them.
_SLOTS_PER_PIECE: Final = 10_000
#: Arrays are doubled at different numbers of pods: at 131,072 all of them at once took 8 to 20 ms.
_FIRST_TAKEN: Final = 96
#: The label set number of a free slot; label sets are numbered from 1.
_FREE: Final = 0

#: The resources with a column of the amounts that pods take.
COUNTED: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)


class PodsByRow(NamedTuple):
    """Some of the pods, sorted by row and within a row by importance. Each array has an entry per pod."""

    rows: Rows
    priorities: Amounts
    #: `Pod.start_rank`.
    start_ranks: Amounts
    label_sets: Rows
    #: Shape (1 + len(COUNTED), n): 1 for the pod itself, and what it takes of each resource.
    taken: Amounts


class PodColumns:
    """Label set, node row, liveness (not terminating), priority, start and requests of every placed pod."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._n_slots = 0
        #: intp, shape (capacity,): `LabelSet.number`, `_FREE` where the slot holds no pod.
        self._label_set: Rows = np.zeros(_FIRST_CAPACITY, dtype=np.intp)
        self._row: Rows = np.zeros(_FIRST_CAPACITY, dtype=np.intp)
        self._live: Mask = np.zeros(_FIRST_CAPACITY, dtype=np.bool_)
        self._priority: Amounts = np.zeros(_FIRST_CAPACITY, dtype=np.int64)
        self._start_rank: Amounts = np.zeros(_FIRST_CAPACITY, dtype=np.int64)
        self._taken: Amounts = np.zeros((1 + len(COUNTED), _FIRST_TAKEN), dtype=np.int64)

    def add(
        self,
        label_set: int,
        row: int,
        priority: int,
        start_rank: int,
        requested: Mapping[str, int],
        *,
        live: bool,
    ) -> int:
        """Add a pod and return its slot. O(1)."""
        if self._free:
            slot = self._free.pop()
        else:
            slot = self._n_slots
            self._n_slots += 1
            if slot == len(self._row):
                self._label_set, self._row = grown(self._label_set, 2 * slot), grown(self._row, 2 * slot)
                self._live, self._priority = grown(self._live, 2 * slot), grown(self._priority, 2 * slot)
                self._start_rank = grown(self._start_rank, 2 * slot)
            if slot == self._taken.shape[1]:
                self._taken = grown(self._taken, 2 * slot)
        self._label_set[slot], self._row[slot], self._live[slot] = label_set, row, live
        self._priority[slot], self._start_rank[slot] = priority, start_rank
        self._taken[0, slot] = 1
        for index, resource in enumerate(COUNTED, 1):
            self._taken[index, slot] = requested.get(resource, 0)
        return slot

    def restart(self, slot: int, start_rank: int) -> None:
        """Set when the pod started."""
        self._start_rank[slot] = start_rank

    def recount(self, slot: int, label_set: int, *, live: bool) -> None:
        """Set the pod's label set, and whether it is live."""
        self._label_set[slot], self._live[slot] = label_set, live

    def remove(self, slot: int) -> None:
        """Free the slot."""
        self._label_set[slot] = _FREE
        self._free.append(slot)

    def at(self, slot: int) -> tuple[object, ...]:
        """Return the arguments of `add` for the pod in the slot, requests as a list; for the audit."""
        columns = (self._label_set, self._row, self._priority, self._start_rank)
        requested = self._taken[1:, slot].tolist()
        return (*(column.item(slot) for column in columns), requested, self._live.item(slot))

    def has_below(self, priority: int, n_rows: int) -> Mask:
        """Return the rows with a pod of a lower priority. O(pods)."""
        n = self._n_slots
        rows = self._row[:n][(self._priority[:n] < priority) & (self._label_set[:n] != _FREE)]
        mask = np.zeros(n_rows, dtype=np.bool_)
        mask[rows] = True
        return mask

    def below(self, priority: int, wanted: Mask) -> PodsByRow:
        """Return the pods of a lower priority on the wanted rows. O(pods)."""
        slots = self._slots_below(priority, wanted, slice(self._n_slots))
        by_importance = (self._start_rank[slots], -self._priority[slots], self._row[slots])
        return self._pods_in(slots[np.lexsort(by_importance)])

    def below_in_pieces(self, priority: int, wanted: Mask) -> Iterator[PodsByRow]:
        """Yield the pods that `below` returns, in any order, some thousands at a time."""
        for start in range(0, self._n_slots, _SLOTS_PER_PIECE):
            part = slice(start, min(start + _SLOTS_PER_PIECE, self._n_slots))
            yield self._pods_in(start + self._slots_below(priority, wanted, part))

    def _slots_below(self, priority: int, wanted: Mask, part: slice) -> Rows:
        """Return where in the part of the columns these pods are."""
        is_lower = (self._priority[part] < priority) & (self._label_set[part] != _FREE)
        return np.flatnonzero(is_lower & wanted.take(self._row[part]))

    def _pods_in(self, slots: Rows) -> PodsByRow:
        return PodsByRow(
            self._row[slots],
            self._priority[slots],
            self._start_rank[slots],
            self._label_set[slots],
            self._taken[:, slots],
        )

    def relocate(self, slot: int, row: int) -> None:
        """Set the pod's row."""
        self._row[slot] = row

    def from_priority(self, priority: int, *, without: int | None) -> tuple[Rows, Amounts]:
        """Return the rows of the pods of at least this priority, `without` one slot, and `PodsByRow.taken`. O(pods)."""
        n = self._n_slots
        wanted = (self._priority[:n] >= priority) & (self._label_set[:n] != _FREE)
        if without is not None:
            wanted[without] = False
        slots = np.flatnonzero(wanted)
        return self._row[slots], self._taken[:, slots]

    def n_by_label_set(self, n_numbers: int) -> Counts:
        """Return the number of pods of each label set, by number, and of free slots; for the audit. O(pods)."""
        return np.bincount(self._label_set[: self._n_slots], minlength=n_numbers).astype(np.int32)

    def per_row(self, selected: Mask, n_rows: int, *, live_only: bool) -> Counts:
        """Return how many pods, or live ones alone, on each row have a label set of `selected`, by number. O(pods)."""
        n = self._n_slots
        counted = selected.take(self._label_set[:n])
        if live_only:
            counted &= self._live[:n]
        return np.bincount(self._row[:n][counted], minlength=n_rows).astype(np.int32)

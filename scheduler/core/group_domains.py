"""The domains of a topology key with room for members of a group, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from scheduler.model.pod_groups import GroupKey
from scheduler.state.arrays import Amounts, Mask
from scheduler.state.cluster import ClusterState
from scheduler.state.columns import ABSENT, LabelColumn


def rows_for(state: ClusterState, key: GroupKey, topology_key: str) -> Mask:
    """
    Return the rows that may be chosen for the group's members: of the domains in which others run, if all share one.

    `topology_key`: of the group's constraint; empty for none.
    """
    nodes = state.nodes
    rows = nodes.alive.copy()
    if topology_key:
        ids = nodes.column(topology_key).ids[: nodes.n_rows]
        held = {int(ids[state.placed[pod.uid].row]) for pod in state.groups.placed(key)} - {ABSENT}
        rows &= np.isin(ids, list(held)) if held else ids != ABSENT
    return rows


class Domain(NamedTuple):
    """A domain: the value of its key, an upper bound of the pods that it has room for, and its rows."""

    value: str
    room: int
    rows: Mask


class Domains:
    """
    The domains of one key within a scope.

    Args:
        column: of the key; None if all rows of the scope count as one domain without a name.
        room: upper bound of the pods by domain, int64 of shape (n_ids,).
        scope: bool array of shape (n_rows,).
    """

    def __init__(self, column: LabelColumn | None, room: Amounts, scope: Mask) -> None:
        self._column, self._room, self._scope = column, room, scope
        if column is not None:
            self._room[ABSENT] = 0

    @classmethod
    def one(cls, scope: Mask) -> Domains:
        """Return a single domain of all rows of the scope."""
        return cls(None, np.array([max(1, len(scope))]), scope)

    def __bool__(self) -> bool:
        return bool(self._room.any())

    def with_room(self, n_wanted: int) -> Iterator[Domain]:
        """Yield the domains that may have room for `n_wanted`, the tightest first; the roomiest if none has."""
        numbers = np.flatnonzero(self._room >= max(1, n_wanted))
        if not len(numbers):
            yield from self.roomiest(1)
            return
        for number in numbers[np.argsort(self._room[numbers], kind="stable")].tolist():
            yield self._domain(number)

    def roomiest(self, n_most: int, n_wanted: int | None = None) -> Iterator[Domain]:
        """Yield the `n_most` roomiest domains, and all others with room for `n_wanted`."""
        for index, number in enumerate(np.argsort(-self._room, kind="stable").tolist()):
            room = self._room.item(number)
            if not room or (index >= n_most and (n_wanted is None or room < n_wanted)):
                return
            yield self._domain(number)

    def room_by_value(self) -> dict[str, int]:
        """Return the upper bounds by value of the key. O(domains)."""
        if self._column is None:
            return {}
        numbers = np.flatnonzero(self._room).tolist()
        return {self._column.value_of(number): self._room.item(number) for number in numbers}

    def _domain(self, number: int) -> Domain:
        if self._column is None:
            return Domain("", self._room.item(number), self._scope)
        rows = self._scope & (self._column.ids[: len(self._scope)] == number)
        return Domain(self._column.value_of(number), self._room.item(number), rows)

"""The domains of topology keys with room for members of a group, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from scheduler.engine.state.arrays import Amounts, Mask, Rows
from scheduler.engine.state.columns import ABSENT, LabelColumn
from scheduler.engine.state.node_table import NodeTable


class DomainIds:
    """
    The domains by the values of topology keys, the outermost first; without keys, all rows are one without a name.

    `ids`: by row, ABSENT where a key is missing.
    """

    def __init__(self, columns: Sequence[LabelColumn], n_rows: int) -> None:
        self._columns = columns
        self.ids: Rows = columns[0].ids[:n_rows] if columns else np.full(n_rows, ABSENT + 1)
        for column in columns[1:]:
            inner = column.ids[:n_rows]
            pairs = np.where(
                (self.ids == ABSENT) | (inner == ABSENT), ABSENT, self.ids * column.n_ids + inner
            )
            self.ids = np.searchsorted(np.flatnonzero(np.bincount(np.append(pairs, ABSENT))), pairs)

    @property
    def name(self) -> str:
        """Return the key whose values tell the domains apart, the innermost."""
        return self._columns[-1].key

    def value_of(self, number: int) -> str:
        """Return the values of the domain, the outermost first. O(n_rows) if there are several keys."""
        if len(self._columns) == 1:
            return self._columns[0].value_of(number)
        row = int(np.argmax(self.ids == number))
        return "/".join(column.value_of(column.ids.item(row)) for column in self._columns)

    def per_domain(self, amounts: Amounts) -> Amounts:
        """Return the amounts of rows added up per domain."""
        totals = np.bincount(self.ids, weights=amounts, minlength=1).astype(np.int64)
        totals[ABSENT] = 0
        return totals


def domain_ids(keys: Sequence[str], nodes: NodeTable) -> DomainIds:
    """Return the domains of these keys, the outermost first."""
    return DomainIds([nodes.column(key) for key in keys], nodes.n_rows)


class Domain(NamedTuple):
    """A domain: the value of its key, and its rows."""

    value: str
    rows: Mask


class Domains:
    """Domains within a scope. `room`: how many pods each row takes; their sum is an upper bound for the domain."""

    def __init__(self, ids: DomainIds, room: Amounts, scope: Mask) -> None:
        self._ids, self._room, self._scope = ids, ids.per_domain(room), scope

    @classmethod
    def none(cls) -> Domains:
        """Return no domains."""
        return cls(DomainIds((), 0), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_))

    def __bool__(self) -> bool:
        return bool(self._room.any())

    def with_room(self, n_wanted: int) -> Iterator[Domain]:
        """Yield the domains that may have room for `n_wanted`, the tightest first; the roomiest if none has room."""
        numbers = np.flatnonzero(self._room >= max(1, n_wanted))
        if not len(numbers):
            yield from self.roomiest(1)
            return
        for number in numbers[np.lexsort((self._first_rows()[numbers], self._room[numbers]))].tolist():
            yield self._domain(number)

    def roomiest(self, n_most: int, n_wanted: int | None = None) -> Iterator[Domain]:
        """Yield the `n_most` roomiest domains, and all others with room for `n_wanted`."""
        for index, number in enumerate(np.lexsort((self._first_rows(), -self._room)).tolist()):
            room = self._room.item(number)
            if not room or (index >= n_most and (n_wanted is None or room < n_wanted)):
                return
            yield self._domain(number)

    def room_by_value(self) -> dict[str, int]:
        """Return the upper bounds by value of the key."""
        numbers = np.flatnonzero(self._room).tolist()
        return {self._ids.value_of(number): self._room.item(number) for number in numbers}

    def _first_rows(self) -> Rows:
        """Return the first row of each domain, which orders equal ones: ids depend on when a column was first used."""
        first, ids = np.zeros(len(self._room), dtype=np.intp), self._ids.ids
        first[ids[::-1]] = np.arange(len(ids))[::-1]
        return first

    def _domain(self, number: int) -> Domain:
        return Domain(self._ids.value_of(number), self._scope & (self._ids.ids == number))

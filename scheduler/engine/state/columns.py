"""Node labels as columns of domain ids, and amounts per domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler.engine.state.arrays import Amounts, Column, Counts, Mask, Rows, read_only
from scheduler.engine.state.id_sets import Interned
from scheduler.engine.state.rule_guard import not_for_rules

#: Domain id of a node that lacks the label; domains start at 1. Amounts have an entry for it too, so that a look-up of
#: every row needs no mask.
ABSENT: Final = 0


@dataclass(frozen=True, slots=True)
class PerDomain:
    """
    One amount per domain of a topology key: pods, weights of terms, or scores.

    `amounts`: int64 array of shape (n_ids,), entry ABSENT always 0. `ids`: the domain of each row, shape (n_rows,).
    """

    amounts: Amounts
    ids: Rows

    @property
    def read_only(self) -> PerDomain:
        """The same amounts, which cannot be written to."""
        return PerDomain(read_only(self.amounts), self.ids)

    def add(self, row: int, amount: int) -> None:
        """Add the amount to the row's domain, if the row has a domain. O(1)."""
        domain = self.ids.item(row)
        if domain != ABSENT:
            self.amounts[domain] += amount

    def on_nodes(self) -> Amounts:
        """Return for each row the amount of its domain, 0 without the label."""
        # No id is out of range; the mode only avoids the check.
        return self.amounts.take(self.ids, mode="clip")

    def at_least(self, least: int | Amounts) -> Mask:
        """Return the labelled rows whose domain has at least `least`: one for all domains, or one for each."""
        has_enough = self.amounts >= least
        has_enough[ABSENT] = False
        return has_enough.take(self.ids, mode="clip")


class LabelColumn:
    """One node label over all rows: equal values share a domain id. Pods count per row: relabelling changes an id."""

    def __init__(self, key: str, capacity: int) -> None:
        self.key = key
        #: intp, shape (capacity,). ABSENT where the row has no live node or the node lacks the label.
        self._column = Column(np.zeros(capacity, dtype=np.intp))
        self.ids: Rows = self._column.seen
        self._values: Interned[str] = Interned(first=ABSENT + 1)
        #: Domain id of each value in use; ids of values that no node has any more are reused.
        self.id_by_value: Mapping[str, int] = self._values.ids
        #: Nodes that have the label.
        self.n_labelled = 0

    @classmethod
    def of(cls, key: str, values: Sequence[str | None], capacity: int) -> LabelColumn:
        """Return the column of rows that have these values, None for a row without the label."""
        column = cls(key, capacity)
        add = column._values.add
        column._column.own[: len(values)] = [ABSENT if value is None else add(value)[0] for value in values]
        column.n_labelled = int(np.count_nonzero(column.ids))
        return column

    @property
    def n_ids(self) -> int:
        """One more than the highest domain id: the length of arrays indexed by domain."""
        return self._values.n_ids

    @property
    def is_unique(self) -> bool:
        """Whether no two nodes share a value, as with the hostname: each domain is then one node."""
        return self.n_labelled == self.n_domains

    @property
    def n_domains(self) -> int:
        """Number of values that at least one node has."""
        return len(self.id_by_value)

    def value_of(self, domain_id: int) -> str:
        """Return the label value of a domain."""
        return self._values.value_of(domain_id)

    @not_for_rules
    def set(self, row: int, value: str | None) -> None:
        """Set the row's value; None if it lacks the label. O(1)."""
        if row >= len(self.ids):
            self.grow(max(row + 1, 2 * len(self.ids)))
        old = self.ids.item(row)
        new = ABSENT if value is None else self._values.add(value)[0]
        self._column.own[row] = new
        self.n_labelled += (new != ABSENT) - (old != ABSENT)
        if old != ABSENT:
            self._values.remove(old)

    @not_for_rules
    def grow(self, capacity: int) -> None:
        """Let there be `capacity` rows, the new ones without the label."""
        self._column.grow(capacity)
        self.ids = self._column.seen

    def per_domain(self, amounts: Amounts | Counts | Mask) -> PerDomain:
        """Return the amounts of rows added up per domain. Their sum is below 2**53: bincount adds in float64."""
        ids = self.ids[: len(amounts)]
        totals = np.bincount(ids, weights=amounts, minlength=self.n_ids).astype(np.int64)
        totals[ABSENT] = 0
        return PerDomain(totals, ids)

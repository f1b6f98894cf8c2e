"""Sums of many terms' counts over domains, kept up to date by what changed instead of being added up anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Final, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from scheduler.state.arrays import Amounts
from scheduler.state.columns import ABSENT, LabelColumn
from scheduler.state.row_counts import RowCounts

_Owner = TypeVar("_Owner")

#: Owners whose sums are kept, 40 KB each at 5,000 nodes: pods of a stateful set have one each.
MAX_KEPT: Final = 1024

#: Terms in all of them, 0.2 KB each: pods may declare thousands that select everybody.
MAX_KEPT_TERMS: Final = 500_000


#: Domains that are looked at one by one.
_FEW_DOMAINS: Final = 32

#: What is declared by a topology key that no node has.
_NOWHERE: Final[Amounts] = np.zeros(0, dtype=np.int64)


class Declared(Protocol):
    """Something that pods are or declare for the domains of a topology key, and how many do so on each row."""

    @property
    def topology_key(self) -> str: ...  # noqa: D102  (said above)

    @property
    def counts(self) -> RowCounts: ...  # noqa: D102  (said above)


class Selected(NamedTuple):
    """
    Pods that a term selects, in the domains of its topology key.

    A tuple, since it is made and looked up for each preferred term in each decision, 2 µs less than a dataclass.
    """

    topology_key: str
    counts: RowCounts


#: What is declared, and its weight.
Weighted = tuple[Declared, int]


class InDomains(NamedTuple):
    """A sum by domain id: int64 array of shape (n_ids,), entry ABSENT 0, not to be written to; and the column."""

    amounts: Amounts
    column: LabelColumn


class Sum:
    """The weighted sum of terms: see `TermSums.updated`."""

    __slots__ = ("_by_domain", "_contained", "_edition", "_sums", "_terms", "amounts")

    def __init__(self, sums: TermSums, terms: Sequence[Weighted], n_rows: int) -> None:
        """As of now."""
        self.amounts = sums.updated(terms, n_rows)
        self._sums = sums
        self._terms = terms
        self._edition = -1
        self._contained: list[_Contained] = []
        self._by_domain: InDomains | None = None

    def again(self, n_rows: int) -> Amounts | InDomains | None:
        """
        The sum of the same terms now, for as long as nodes are the same; by domain where all are of the same few.

        Cost: 0.1 µs per term and 0.5 per term that changed, and a gather where there are several topology keys.
        """
        sums = self._sums
        if not (self._edition == sums.edition and sums.follow(self._contained)):
            sums.contain(self._terms, n_rows)
            self._contained = sums.contained(self._terms)
        if self._edition != sums.edition:
            self._by_domain, self._edition = sums.in_domains(), sums.edition
        by_domain = self._by_domain
        return by_domain if by_domain is not None and sums.n_reaching else sums.total()


class KeptSums(Generic[_Owner]):
    """The sums of those that were asked about last, as label sets; nothing is kept of an owner that is gone."""

    def __init__(self, max_terms: int = MAX_KEPT_TERMS) -> None:
        """
        Nobody has asked.

        Args: max_terms: terms in all sums that are kept. Their counts live as long.
        """
        self._max_terms = max_terms
        self._kept: WeakKeyDictionary[_Owner, TermSums] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def n_terms(self) -> int:
        """Terms in all sums that are kept. O(sums)."""
        return sum(len(sums) for sums in self._kept.values())

    def of(
        self,
        owner: _Owner,
        column_of: Callable[[str], LabelColumn],
        terms: Sequence[Weighted],
        n_rows: int,
    ) -> Sum:
        """The sum of the owner's terms. Past the limits the sums that were made first go."""
        sums = self._kept.get(owner)
        if sums is None:
            while len(self._kept) >= MAX_KEPT:
                self._forget_one()
            sums = self._kept[owner] = TermSums(column_of)
        n_before = len(sums)
        found = Sum(sums, terms, n_rows)
        if len(sums) > n_before and len(sums) * MAX_KEPT > self._max_terms:
            while len(self._kept) > 1 and self.n_terms > self._max_terms:
                self._forget_one()
        return found

    def _forget_one(self) -> None:
        del self._kept[next(iter(self._kept))]


@dataclass(slots=True)
class _Contained:
    """A term of a sum: its pods, its weight, and how far they are in `amounts`: the version of the counts."""

    counts: RowCounts
    weight: int
    column: LabelColumn
    #: By row where each node is a domain, else by domain.
    amounts: Amounts
    is_by_row: bool
    version: int


class TermSums:
    """
    The weighted sum, per node, of how often terms are declared in the node's domain.

    With a thousand tenants a pod is selected by a thousand terms, of which one or two have moved since the last
    decision. Keeps an array for each topology key that nodes share and one for all, whatever the number of terms.
    """

    def __init__(self, column_of: Callable[[str], LabelColumn]) -> None:
        self._column_of = column_of
        self._contained: dict[Declared, _Contained] = {}
        #: Moves where other terms than before are contained, or all are anew.
        self.edition = 0
        #: Of each topology key the column, and its version.
        self._columns: dict[str, tuple[LabelColumn, int]] = {}
        self._n_rows = -1
        #: Per node what is declared where a node is its domain, None without; per domain all else.
        self._per_row: Amounts | None = None
        self._per_domain: dict[LabelColumn, Amounts] = {}
        #: Both together per node; None where they have moved.
        self._total: Amounts | None = None
        #: Declaring pods on nodes that have the topology key.
        self.n_reaching = 0

    def __len__(self) -> int:
        return len(self._contained)

    def updated(self, terms: Sequence[Weighted], n_rows: int) -> Amounts | None:
        """
        The sum over `terms`, none of them twice, each times its weight; None where no term is declared on a node that
        has its key.

        int64 array of shape (n_rows,), not to be written to, valid until the next stimulus. It may be 0 everywhere and
        still not be None: upstream tells the two apart.
        Cost: O(terms) look-ups of 0.1 µs, 0.5 µs per term that changed, one gather per topology key that nodes share
        (3 µs at 5,000); all are added anew where nodes changed, O(rows on which they are declared).
        """
        self.contain(terms, n_rows)
        return self.total()

    def contain(self, terms: Sequence[Weighted], n_rows: int) -> None:
        """The sum is that of these terms, as of now."""
        if not self._add_changes(terms, n_rows):
            self._build(terms, n_rows)

    def contained(self, terms: Sequence[Weighted]) -> list[_Contained]:
        """The terms, all of them contained."""
        return [self._contained[term] for term, _ in terms]

    def total(self) -> Amounts | None:
        """What `updated` says, of those that are contained."""
        if not self.n_reaching:
            return None
        if self._total is None:
            n_rows = self._n_rows
            # No id is beyond them; other modes look first.
            parts = [
                amounts.take(column.ids[:n_rows], mode="clip") for column, amounts in self._per_domain.items()
            ]
            self._total = reduce(add, parts if self._per_row is None else [*parts, self._per_row])
        return self._total

    def in_domains(self) -> InDomains | None:
        """The same by domain, where all are counted by the few domains of one topology key; true of this edition."""
        if self._per_row is not None or len(self._per_domain) != 1:
            return None
        ((column, amounts),) = self._per_domain.items()
        return InDomains(amounts, column) if len(amounts) <= _FEW_DOMAINS else None

    def follow(self, contained: Sequence[_Contained]) -> bool:
        """All that is contained is of now, where nodes are as they were; False where what changed is not known."""
        for one in contained:
            if one.version != one.counts.version:
                rows = one.counts.changes_since(one.version)
                if rows is None:
                    return False
                self._move(one, rows)
        return True

    def _add_changes(self, terms: Sequence[Weighted], n_rows: int) -> bool:
        """Adds what changed since the last time; False where that is not known for every term."""
        if self._n_rows != n_rows:
            return False
        for column, contained_as_of in self._columns.values():
            if column.version != contained_as_of:
                return False
        known: list[_Contained] = []
        new: list[Weighted] = []
        for weighted in terms:
            one = self._contained.get(weighted[0])
            if one is None:
                new.append(weighted)
            else:
                known.append(one)
        if len(known) != len(self._contained) or not self.follow(known):
            return False
        for term, weight in new:
            rows = term.counts.changes_since(0)
            if rows is None:
                return False
            self._contain(term, weight, rows)
        return True

    def _build(self, terms: Iterable[Weighted], n_rows: int) -> None:
        self.edition += 1
        self._contained, self._columns, self._n_rows = {}, {}, n_rows
        self._per_row, self._per_domain, self._total = None, {}, None
        self.n_reaching = 0
        many: dict[LabelColumn, Amounts] = {}
        for term, weight in terms:
            rows = term.counts.few(n_rows)
            if rows is not None:
                self._contain(term, weight, rows)
                continue
            column = self._contain(term, weight, ())
            if not column.n_labelled:
                continue
            counts = term.counts.rows(n_rows)
            self.n_reaching += int(counts[column.ids[:n_rows] != ABSENT].sum())
            if column not in many:
                many[column] = np.zeros(n_rows, dtype=np.int64)
            many[column] += np.multiply(counts, weight, dtype=np.int64)
        for column, amounts in many.items():
            if column.is_unique:
                self._rows()[:] += np.where(column.ids[:n_rows] != ABSENT, amounts, 0)
            else:
                self._domains(column)[:] += column.sums(amounts)

    def _contain(self, term: Declared, weight: int, rows: Iterable[tuple[int, int]]) -> LabelColumn:
        """The term is contained from now on, with these (row, pods)."""
        key = term.topology_key
        known = self._columns.get(key)
        if known is None:
            column = self._column_of(key)
            self._columns[key] = (column, column.version)
        else:
            column = known[0]
        is_by_row, amounts = column.is_unique, _NOWHERE
        if column.n_labelled:
            amounts = self._rows() if is_by_row else self._domains(column)
        one = self._contained[term] = _Contained(term.counts, weight, column, amounts, is_by_row, 0)
        self.edition += 1
        self._move(one, rows)
        return column

    def _move(self, one: _Contained, rows: Iterable[tuple[int, int]]) -> None:
        """The term has these (row, pods) more, and is of now."""
        one.version = one.counts.version
        ids, amounts = one.column.ids, one.amounts
        if amounts is not self._total:
            self._total = None
        for row, n_pods in rows:
            domain = ids.item(row)
            if domain != ABSENT:
                self.n_reaching += n_pods
                at = row if one.is_by_row else domain
                amounts[at] = amounts.item(at) + n_pods * one.weight

    def _rows(self) -> Amounts:
        """What is declared by row, to be written to."""
        if self._per_row is None:
            self._per_row = np.zeros(self._n_rows, dtype=np.int64)
        return self._per_row

    def _domains(self, column: LabelColumn) -> Amounts:
        """What is declared by domain of the column, to be written to."""
        amounts = self._per_domain.get(column)
        if amounts is None:
            amounts = self._per_domain[column] = np.zeros(column.n_ids, dtype=np.int64)
        return amounts

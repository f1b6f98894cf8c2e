"""
The affinity terms of placed pods as columns, to weigh very many of them against one label set at once.

To try a selector on a label set takes 2 µs. An ordinary label set meets a few terms, but one namespace can declare
200,000 terms, each of which selects the pods of all other namespaces: to try each would take 0.5 s for every new label
set. Here a term's selector and namespaces are found from the label set's own labels, and the sums are a few array
operations: 20 ns each.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler.engine.state.arrays import Mask, Rows, grown
from scheduler.engine.state.columns import ABSENT, LabelColumn, PerDomain
from scheduler.engine.state.id_sets import Interned, Postings
from scheduler.engine.state.label_sets import LabelSet
from scheduler.engine.state.matching import NamespaceRule
from scheduler.engine.syntax.selectors import Selector

#: Replaces each value that no selector reads; no label has it.
ANY_VALUE: Final = "\0"
_NO_LABELS: Final[Mapping[str, str]] = {}
#: Required labels of a selector that matches nothing: more than a label set has.
_NEVER: Final = np.iinfo(np.int32).max
#: A rule that names more namespaces is evaluated, not entered under each name.
_MAX_NAMES: Final = 1024
#: Entries that may have cancelled out before they are added up.
_FEW_ENTRIES: Final = 4096

_Ints = npt.NDArray[np.int32]


class SelectorIndex:
    """
    Selectors by id, and which of them match given labels.

    A selector matches labels if all of its requirements In and Exists hold, and none of its requirements NotIn and
    DoesNotExist is broken. Both kinds are looked up by the labels, so that terms that no label touches cost nothing.
    All requirements In of a key count as one, with the values that all of them have.
    """

    def __init__(self) -> None:
        self._selectors: Interned[Selector] = Interned()
        #: Requirements In and Exists by id.
        self._n_required: _Ints = np.zeros(0, dtype=np.int32)
        #: Ids by what satisfies In or Exists, and by what breaks NotIn or DoesNotExist: a (key, value) label, or a key.
        self._held: Postings[Hashable] = Postings()
        self._broken: Postings[Hashable] = Postings()

    def add(self, selector: Selector) -> int:
        """Return the selector's id. O(values)."""
        number, is_new = self._selectors.add(selector)
        if is_new:
            self._n_required = at_least(self._n_required, number + 1)
            self._n_required[number] = _NEVER if selector.is_nothing else _n_required(selector)
            for postings, keys in self._keys(selector):
                for key in keys:
                    postings.add(key, number)
        return number

    def remove(self, number: int) -> None:
        """Undo one `add`. O(values)."""
        selector = self._selectors.remove(number)
        if selector is not None:
            for postings, keys in self._keys(selector):
                for key in keys:
                    postings.remove(key, number)

    def matching(self, labels: Mapping[str, str]) -> Mask:
        """Return which selectors match: bool array of shape (ids,); undefined at ids that are not in use."""
        n = self._selectors.n_ids
        keys: list[Hashable] = [*labels.items(), *labels]
        held = np.concatenate([np.zeros(0, dtype=np.intp), *(self._held.array(key) for key in keys)])
        matches: Mask = np.bincount(held, minlength=n) >= self._n_required[:n]
        for key in keys:
            matches[self._broken.array(key)] = False
        return matches

    def read(self, labels: Mapping[str, str]) -> dict[str, str]:
        """
        Return what selectors read of the labels; equal results match alike. O(labels).

        The value is `ANY_VALUE` where selectors read only whether the key is there.
        """
        held, broken = self._held.keys, self._broken.keys
        read = {key: ANY_VALUE for key in labels if key in held or key in broken}
        read.update(pair for pair in labels.items() if pair in held or pair in broken)
        return read

    def _keys(self, selector: Selector) -> tuple[tuple[Postings[Hashable], set[Hashable]], ...]:
        return (self._held, _holding(selector)), (self._broken, _breaking(selector))


def _n_required(selector: Selector) -> int:
    return len(
        {(key, operator) for key, operator, _ in selector.requirements if operator in ("In", "Exists")}
    )


def _holding(selector: Selector) -> set[Hashable]:
    """Return the labels and keys that hold a requirement In or Exists."""
    keys: set[Hashable] = {key for key, operator, _ in selector.requirements if operator == "Exists"}
    values_by_key: dict[str, set[str]] = {}
    for key, operator, values in selector.requirements:
        if operator == "In":
            values_by_key[key] = values_by_key.get(key, set(values)) & set(values)
    return keys.union((key, value) for key, values in values_by_key.items() for value in values)


def _breaking(selector: Selector) -> set[Hashable]:
    """Return the labels and keys that break a requirement NotIn or DoesNotExist."""
    keys: set[Hashable] = {key for key, operator, _ in selector.requirements if operator == "DoesNotExist"}
    return keys.union(
        (key, value)
        for key, operator, values in selector.requirements
        if operator == "NotIn"
        for value in values
    )


class NamespaceRuleIndex:
    """Namespace rules by id, and which of them cover a namespace."""

    def __init__(self) -> None:
        self._rules: Interned[NamespaceRule] = Interned()
        self._selectors = SelectorIndex()
        #: The selector of each rule, by rule.
        self._selector: _Ints = np.zeros(0, dtype=np.int32)
        self._by_name: Postings[str] = Postings()
        self._wide: dict[int, NamespaceRule] = {}

    def add(self, rule: NamespaceRule) -> int:
        """Return the rule's id. O(names + values)."""
        number, is_new = self._rules.add(rule)
        if is_new:
            self._selector = at_least(self._selector, number + 1)
            self._selector[number] = self._selectors.add(rule.selector)
            if len(rule.names) > _MAX_NAMES:
                self._wide[number] = rule
            else:
                for name in rule.names:
                    self._by_name.add(name, number)
        return number

    def remove(self, number: int) -> None:
        """Undo one `add`."""
        rule = self._rules.remove(number)
        if rule is not None:
            self._selectors.remove(int(self._selector[number]))
            if self._wide.pop(number, None) is None:
                for name in rule.names:
                    self._by_name.remove(name, number)

    def covering(self, namespace: str, labels: Mapping[str, str] | None) -> Mask:
        """Return which rules cover the namespace: bool array of shape (ids,); undefined at ids that are not in use."""
        n = self._rules.n_ids
        covers = self._selectors.matching(_NO_LABELS if labels is None else labels)[self._selector[:n]]
        covers[self._by_name.array(namespace)] = True
        for number, rule in self._wide.items():
            covers[number] |= namespace in rule.names
        return covers


class TermTable:
    """
    Terms by id: selector, rule, effect and topology key of each, and the pods that declare them.

    An effect is what a term does to the sums; the caller gives each a number and a weight. The pods are entries (term,
    row, 1 or -1); only their sum counts.
    """

    def __init__(self) -> None:
        self._selectors, self._rules = SelectorIndex(), NamespaceRuleIndex()
        self._keys: Interned[str] = Interned()
        self._free = array("i")
        #: One more than the highest id that was ever given.
        self.n_ids = 0
        #: int32, shape (4, capacity): selector, rule, effect, and topology key.
        self._columns = np.zeros((4, 0), dtype=np.int32)
        #: int32, shape (3, capacity): term, row, and how many more pods of the row declare it.
        self._entries = np.zeros((3, 0), dtype=np.int32)
        self._n_entries = self._n_declared = 0

    def add(self, rule: NamespaceRule, selector: Selector, topology_key: str, effect: int) -> int:
        """Return the id of a new term. O(values + names)."""
        if self._free:
            number = self._free.pop()
        else:
            number, self.n_ids = self.n_ids, self.n_ids + 1
            self._columns = at_least(self._columns, self.n_ids)
        self._columns[:, number] = (
            self._selectors.add(selector), self._rules.add(rule), effect, self._keys.add(topology_key)[0],
        )  # fmt: skip
        return number

    def remove(self, number: int) -> None:
        """Remove a term that no pod declares any more; its id is used again."""
        selector, rule, _, key = self._columns[:, number].tolist()
        self._selectors.remove(selector)
        self._rules.remove(rule)
        self._keys.remove(key)
        self._free.append(number)

    def declare(self, terms: Rows, row: int, delta: int) -> None:
        """Add `delta` to the number of the row's pods that declare each of the terms."""
        self._n_declared += delta * len(terms)
        limit = 2 * self._n_declared + _FEW_ENTRIES - len(terms)
        if self._n_entries > limit:
            self._drop_undeclared()
            if self._n_entries > limit:
                self._add_up()
        first, end = self._n_entries, self._n_entries + len(terms)
        self._entries = at_least(self._entries, end)
        self._entries[0, first:end] = terms
        self._entries[1:, first:end] = ((row,), (delta,))
        self._n_entries = end

    def read(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the part of a pod's labels that the terms' selectors read; see `SelectorIndex.read`."""
        return self._selectors.read(labels)

    def sums(
        self,
        label_set: LabelSet,
        namespace_labels: Mapping[str, str] | None,
        weight_by_effect: npt.NDArray[np.int64],
        columns_of: Callable[[Collection[str]], Mapping[str, LabelColumn]],
        n_rows: int,
    ) -> dict[str, PerDomain]:
        """
        Return the weighted sums of the terms that select the label set, by topology key.

        `columns_of` returns the columns of those keys that a node has, 65,535 at most. O(terms + entries).
        """
        selector, rule, effect, key = self._columns[:, : self.n_ids]
        weights = weight_by_effect.take(effect)
        weights *= self._selectors.matching(label_set.labels)[selector]
        weights *= self._rules.covering(label_set.namespace, namespace_labels)[rule]
        weight_of_entry = weights.take(self._entries[0, : self._n_entries])
        counted = np.flatnonzero(weight_of_entry)
        term, row, delta = self._entries[:, counted]
        amounts = weight_of_entry[counted] * delta
        columns = columns_of(self._keys.ids.keys())
        # 16 bits: sorted in one pass.
        place_by_key = np.full(self._keys.n_ids, len(columns), dtype=np.uint16)
        place_by_key[[self._keys.ids[name] for name in columns]] = np.arange(len(columns))
        places = place_by_key[key[term]]
        order = np.argsort(places, kind="stable")
        ends = np.searchsorted(places[order], np.arange(len(columns)), side="right").tolist()
        sums_by_key = {}
        for (name, column), first, end in zip(columns.items(), [0, *ends], ends, strict=False):
            if first < end:
                own, ids = order[first:end], column.ids[:n_rows]
                totals = np.bincount(ids[row[own]], weights=amounts[own], minlength=column.n_ids)
                totals[ABSENT] = 0
                sums_by_key[name] = PerDomain(totals.astype(np.int64), ids)
        return sums_by_key

    def _drop_undeclared(self) -> None:
        """Drop the entries of terms that no pod declares. O(entries): most terms belong to one pod."""
        term, _, delta = entries = self._entries[:, : self._n_entries]
        self._entries = entries[:, np.bincount(term, weights=delta).take(term) != 0]
        self._n_entries = self._entries.shape[1]

    def _add_up(self) -> None:
        """Add up the entries of equal terms and rows, and drop sums of 0. O(entries)."""
        term, row, delta = self._entries[:, : self._n_entries].astype(np.int64)
        width = int(row.max(initial=0)) + 1
        places, where = np.unique(term * width + row, return_inverse=True)
        totals = np.bincount(where, weights=delta, minlength=len(places)).astype(np.int64)
        kept = totals != 0
        self._entries = np.stack([places[kept] // width, places[kept] % width, totals[kept]]).astype(np.int32)
        self._n_entries = self._entries.shape[1]


def at_least(array: _Ints, length: int) -> _Ints:
    """Return the array, or a copy of about twice the length if its last axis is shorter than `length`."""
    return array if array.shape[-1] >= length else grown(array, 2 * length)

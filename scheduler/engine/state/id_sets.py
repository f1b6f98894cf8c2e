"""Sets of small ids that are read as arrays, and ids of values in use."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, KeysView
from typing import Final, Generic, TypeVar, cast

import numpy as np

from scheduler.engine.state.arrays import Rows

T = TypeVar("T", bound=Hashable)
K = TypeVar("K", bound=Hashable)

_FIRST_CAPACITY: Final = 8
_NONE: Final[Rows] = np.zeros(0, dtype=np.intp)


class Interned(Generic[T]):
    """Gives each distinct value in use an id; an id is reused after its value was removed as often as it was added."""

    def __init__(self, first: int = 0) -> None:
        """`first`: the lowest id that a value gets."""
        #: The id of each value in use, not to be written to.
        self.ids: dict[T, int] = {}
        self._value_by_id: list[T | None] = [None] * first
        # Arrays: thousands of int objects among the values would keep the memory of freed values from being given back.
        self._n_uses = array("i", [0] * first)
        self._free = array("i")

    @property
    def n_ids(self) -> int:
        """One more than the highest id: the length of arrays indexed by id."""
        return len(self._value_by_id)

    def value_of(self, number: int) -> T:
        """Return the value in use that has the id."""
        return cast("T", self._value_by_id[number])

    def add(self, value: T) -> tuple[int, bool]:
        """Return the id of the value, and whether it is new. O(1)."""
        known = self.ids.get(value)
        if known is not None:
            self._n_uses[known] += 1
            return known, False
        if self._free:
            new = self._free.pop()
            self._value_by_id[new], self._n_uses[new] = value, 1
        else:
            new = len(self._value_by_id)
            self._value_by_id.append(value)
            self._n_uses.append(1)
        self.ids[value] = new
        return new, True

    def remove(self, number: int) -> T | None:
        """Undo one `add`. Return the value if it is no longer in use. O(1)."""
        self._n_uses[number] -= 1
        if self._n_uses[number]:
            return None
        value = cast("T", self._value_by_id[number])
        self._value_by_id[number] = None
        del self.ids[value]
        self._free.append(number)
        return value


class IdSet:
    """A set of ids, and an array of them: an addition extends it, the first read after a removal rebuilds it."""

    __slots__ = ("_array", "_ids", "_is_current")

    def __init__(self) -> None:
        self._ids: set[int] = set()
        self._array: Rows = np.zeros(_FIRST_CAPACITY, dtype=np.intp)
        self._is_current = True

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, number: int) -> None:
        """Add an id that is not in the set. O(1) in the mean."""
        n = len(self._ids)
        self._ids.add(number)
        if not self._is_current:
            return
        if n == len(self._array):
            self._array = np.concatenate([self._array, np.zeros(n, dtype=np.intp)])
        self._array[n] = number

    def remove(self, number: int) -> None:
        """Remove an id of the set. O(1)."""
        self._ids.remove(number)
        self._array, self._is_current = _NONE, False

    def array(self) -> Rows:
        """Return the ids as an array, not to be written to. O(1), or O(ids) after a removal."""
        if not self._is_current:
            self._array, self._is_current = np.fromiter(self._ids, np.intp, len(self._ids)), True
        return self._array[: len(self._ids)]


class Postings(Generic[K]):
    """Ids by key. A key with one id takes no set: most keys of a hostile term have one id."""

    def __init__(self) -> None:
        self._by_key: dict[K, int | IdSet] = {}

    @property
    def keys(self) -> KeysView[K]:
        """The keys that have an id."""
        return self._by_key.keys()

    def add(self, key: K, number: int) -> None:
        """Add an id that the key does not have. O(1) in the mean."""
        ids = self._by_key.get(key)
        if ids is None:
            self._by_key[key] = number
        elif isinstance(ids, int):
            made = self._by_key[key] = IdSet()
            made.add(ids)
            made.add(number)
        else:
            ids.add(number)

    def remove(self, key: K, number: int) -> None:
        """Remove an id of the key. O(1)."""
        ids = self._by_key[key]
        if isinstance(ids, IdSet):
            ids.remove(number)
            if len(ids):
                return
        del self._by_key[key]

    def array(self, key: K) -> Rows:
        """Return the ids of the key, not to be written to."""
        ids = self._by_key.get(key)
        if ids is None:
            return _NONE
        return np.array([ids], dtype=np.intp) if isinstance(ids, int) else ids.array()

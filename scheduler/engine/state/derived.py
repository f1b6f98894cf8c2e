"""
The cache of everything that is derived from the columns and kept between two decisions.

A derived value (a mask, scores, counts) is stamped with the version of the change log. When it is asked for again, it
is patched with the changes since, or recomputed. Plugins keep nothing themselves: they ask the view each time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from scheduler.engine.state.arrays import read_only
from scheduler.engine.state.change_log import ChangeLog, RowChange

#: Bytes of an entry beside its value: the key, two functions and what they hold. Measured: 1,400.
ENTRY_BYTES: Final = 1400
#: Values that a piece of a sweep drops, 10 to 100 µs each.
_DROPPED_AT_ONCE: Final = 50
#: Bytes of all entries together: 1,600 counts at 5,000 nodes. The least recently used go first.
MAX_BYTES: Final = 64 * 2**20


class Sized(Protocol):
    """A value that knows its size, as every numpy array does."""

    @property
    def nbytes(self) -> int:
        """Bytes, dictionaries of the value included."""
        ...


T = TypeVar("T", bound=Sized)


@dataclass(slots=True)
class _Derived:
    value: Any
    version: int
    compute: Callable[[], Any]
    patch: Callable[[Any, Sequence[RowChange]], None] | None
    #: Sweeps before it was last asked for.
    used_at: int
    n_bytes: int = 0
    #: The value as readers get it: an array cannot be written to.
    seen: Any = field(init=False)

    def __post_init__(self) -> None:
        self.renew(self.value, self.version)

    def renew(self, value: Any, version: int) -> None:  # noqa: ANN401 - of any type
        """Have this value, of this version of the change log."""
        self.value, self.version = value, version
        self.seen = read_only(value) if isinstance(value, np.ndarray) else value


class DerivedValues:
    """Values by key. A returned value is current, and valid until the next stimulus; an array cannot be written to."""

    def __init__(self, log: ChangeLog, max_bytes: int | None) -> None:
        """`max_bytes`: None keeps every value, for a process that uses all of them regularly."""
        self._log = log
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Hashable, _Derived] = OrderedDict()
        self.n_bytes = 0
        self._n_sweeps = 0

    def get(
        self,
        key: Hashable,
        compute: Callable[[], T],
        patch: Callable[[T, Sequence[RowChange]], None] | None = None,
    ) -> T:
        """
        Return the value of the key.

        Args:
            key: identifies the value; equal keys must compute equal values.
            compute: computes the value from the columns.
            patch: applies changes to the value in place; None if it depends on neither pods nor amounts.
        """
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Derived(
                compute(), self._log.version, compute, patch, self._n_sweeps
            )
        else:
            entry.compute, entry.patch, entry.used_at = compute, patch, self._n_sweeps
            self._entries.move_to_end(key)
            if self._is_current(entry):
                current: T = entry.seen
                return current
            if not self._bring_up_to_date(entry):
                entry.renew(compute(), self._log.version)
                # Insert again: the computation may have asked for other values, which may have evicted this one.
                self._entries[key] = entry
                self._entries.move_to_end(key)
        value: T = entry.seen
        self._resize(entry, value.nbytes + ENTRY_BYTES)
        return value

    def kept(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of the key. Its reader brings it up to date: a changed node does not drop it."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Derived(make(), self._log.version, make, None, self._n_sweeps)
        entry.used_at = self._n_sweeps
        self._entries.move_to_end(key)
        value: T = entry.value
        self._resize(entry, value.nbytes + ENTRY_BYTES)
        return value

    def sweeping(self) -> Iterator[None]:
        """Drop what nothing has asked for since the last sweep. Yield after every piece. O(values dropped)."""
        self._n_sweeps += 1
        while oldest := list(islice(self._entries.items(), _DROPPED_AT_ONCE)):
            for key, entry in oldest:
                # The least recently used come first.
                if entry.used_at >= self._n_sweeps - 1:
                    return
                self.n_bytes -= self._entries.pop(key).n_bytes
            yield

    def keys(self) -> list[Hashable]:
        """Return the keys of all values, the least recently used first."""
        return list(self._entries)

    def differs(self, key: Hashable) -> bool:
        """Return whether the value is not what its computation returns now; for the audit."""
        entry = self._entries.get(key)
        # A value that has to be recomputed is skipped: after nodes changed, only its next caller's `compute` is valid.
        if entry is None or not self._bring_up_to_date(entry):
            return False
        fresh = entry.compute()
        if isinstance(fresh, np.ndarray):
            return not np.array_equal(entry.value, fresh)
        return not entry.value.same_as(fresh)

    def _is_current(self, entry: _Derived) -> bool:
        version = entry.version
        return version == self._log.version or (entry.patch is None and version >= self._log.restarted_at)

    def _bring_up_to_date(self, entry: _Derived) -> bool:
        """Patch the value if it is stale. Return False if it has to be recomputed."""
        if self._is_current(entry):
            return True
        log = self._log
        if entry.patch is None or entry.version < log.restarted_at:
            return False
        changes = log.since(entry.version)
        if changes is None:
            return False
        entry.patch(entry.value, changes)
        entry.version = log.version
        return True

    def _resize(self, entry: _Derived, n_bytes: int) -> None:
        """Account for the new size of the entry, the last one used, and evict others while the total is too large."""
        if n_bytes != entry.n_bytes:
            self.n_bytes += n_bytes - entry.n_bytes
            entry.n_bytes = n_bytes
            while self._max_bytes is not None and self.n_bytes > self._max_bytes and len(self._entries) > 1:
                evicted = self._entries.popitem(last=False)[1]
                self.n_bytes -= evicted.n_bytes
                evicted.n_bytes = 0

"""
The one place where anything is kept between two decisions.

A derived value (a mask, scores, counts) is computed from columns, stamped with the version of the change log, patched
at what changed since, or computed again. Plugins know nothing of it: they ask the snapshot each time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from scheduler.state.change_log import Change, ChangeLog

#: Bytes of all values together: 1,600 counts at 5,000 nodes. The least recently used go first.
MAX_BYTES: Final = 64 * 2**20


class Sized(Protocol):
    """A value that knows its size, as every numpy array does."""

    @property
    def nbytes(self) -> int:
        """Bytes, of dictionaries that grow with the value as well."""
        ...


T = TypeVar("T", bound=Sized)


@dataclass(slots=True)
class _Entry:
    value: Any
    version: int
    compute: Callable[[], Any]
    patch: Callable[[Any, Sequence[Change]], None] | None
    n_bytes: int = 0
    used: bool = True


class DerivedValues:
    """Values by key, current when handed out and valid until the next stimulus."""

    def __init__(self, log: ChangeLog, max_bytes: int | None = MAX_BYTES) -> None:
        """`max_bytes`: None keeps every value, for a process that asks for all of them again and again."""
        self._log = log
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self.n_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(
        self,
        key: Hashable,
        compute: Callable[[], T],
        patch: Callable[[T, Sequence[Change]], None] | None = None,
    ) -> T:
        """
        Return the value of the key.

        Args:
            key: names the value; equal keys must compute equal values.
            compute: makes it from the columns.
            patch: applies changes to it in place; None if it depends on no pod and no amount.

        Cost: 1 µs and the patch, or the computation.
        """
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(compute(), self._log.version, compute, patch)
        else:
            entry.compute, entry.patch, entry.used = compute, patch, True
            self._refresh(entry)
            # Again: the computation may have asked for other values, and they may have displaced this one.
            self._entries[key] = entry
            self._entries.move_to_end(key)
        value: T = entry.value
        if value.nbytes != entry.n_bytes:
            self._resize(entry, value.nbytes)
        return value

    def sweep(self) -> None:
        """Drop the values that nothing has asked for since the last sweep. O(values)."""
        for key, entry in list(self._entries.items()):
            if not entry.used:
                self.n_bytes -= self._entries.pop(key).n_bytes
            entry.used = False

    def keys(self) -> list[Hashable]:
        """Return the keys of all values, the least recently used first."""
        return list(self._entries)

    def differs(self, key: Hashable) -> bool:
        """
        Return whether the value, brought up to date, is not what its computation returns now; for the audit.

        A value that nothing has asked for since the last restart is left alone. It is computed again anyway, and by
        another closure: the one at hand may hold what was true of the nodes of then.
        """
        entry = self._entries.get(key)
        if entry is None or entry.version < self._log.restarted_at:
            return False
        self._refresh(entry)
        fresh = entry.compute()
        if isinstance(fresh, np.ndarray):
            return not np.array_equal(entry.value, fresh)
        return not entry.value.same_as(fresh)

    def _refresh(self, entry: _Entry) -> None:
        log = self._log
        if entry.version >= log.restarted_at:
            if entry.patch is None or entry.version == log.version:
                return
            changes = log.since(entry.version)
            if changes is not None:
                entry.patch(entry.value, changes)
                entry.version = log.version
                return
        entry.value, entry.version = entry.compute(), log.version

    def _resize(self, entry: _Entry, n_bytes: int) -> None:
        """Account for the entry, which was used last, and drop others while all are too large."""
        if n_bytes != entry.n_bytes:
            self.n_bytes += n_bytes - entry.n_bytes
            entry.n_bytes = n_bytes
            while self._max_bytes is not None and self.n_bytes > self._max_bytes and len(self._entries) > 1:
                displaced = self._entries.popitem(last=False)[1]
                self.n_bytes -= displaced.n_bytes
                displaced.n_bytes = 0

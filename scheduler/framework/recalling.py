"""What was worked out from all rows, kept until the same is asked for again: then only rows that moved are stale."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, Generic, TypeVar

from scheduler.state.row_log import RowLog

_Value = TypeVar("_Value")

#: Values that are kept. Three zones, each of them open or full, make seven; twice that with pods on the node or none.
_N_KEPT: Final = 16

#: Rows that moved since, past which all is worked out anew.
_FEW_ROWS: Final = 32


class Recalled(Generic[_Value]):
    """Values by what they are of; those that were kept first go."""

    def __init__(self, moved: RowLog) -> None:
        """Nothing is kept. `moved`: told of every row to which a pod came or that one left."""
        self._moved = moved
        self._kept: dict[Hashable, tuple[_Value, int]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def recall(self, key: Hashable) -> tuple[_Value, Sequence[int]] | None:
        """
        The value and the rows to bring up to date, some perhaps repeatedly; None where there is none of use. O(rows).

        It is of now afterwards: who recalls brings up to date.
        """
        found = self._kept.get(key)
        if found is None:
            return None
        value, version = found
        rows = self._moved.since(version)
        if rows is None or len(rows) > _FEW_ROWS:
            return None
        self._kept[key] = (value, self._moved.version)
        return value, rows

    def forget(self) -> None:
        """Nothing that is kept is of use any more."""
        self._kept.clear()

    def keep(self, key: Hashable, value: _Value) -> None:
        """The value is of now."""
        kept = self._kept
        if key not in kept and len(kept) == _N_KEPT:
            del kept[next(iter(kept))]
        kept[key] = (value, self._moved.version)

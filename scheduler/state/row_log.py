"""Which rows changed lately, so that what was derived from all rows need not be derived again."""

from __future__ import annotations

from typing import Final

#: Changes remembered. Past this many it is cheaper to compute all rows of 5,000 than these one by one.
_REMEMBERED: Final = 512


class RowLog:
    """An ever-growing version, and the rows that its last few steps concerned."""

    def __init__(self) -> None:
        #: Number of changes so far.
        self.version = 0
        self._rows: list[int] = []

    def note(self, row: int) -> None:
        """The row changed. O(1)."""
        self.version += 1
        self._rows.append(row)
        if len(self._rows) > 2 * _REMEMBERED:
            del self._rows[:_REMEMBERED]

    def since(self, version: int) -> list[int] | None:
        """Rows changed after `version`, repeated ones repeatedly; None where they are too many to know."""
        n_changes = self.version - version
        if n_changes > _REMEMBERED:
            return None
        return self._rows[len(self._rows) - n_changes :]

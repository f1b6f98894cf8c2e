"""Text tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_GAP: Final = "  "


def table_lines(head: Sequence[str], rows: Sequence[Sequence[str | int]], indent: str = "  ") -> list[str]:
    """
    Return the table's lines, the head first; none if there are no rows.

    A column whose cells are all numbers is aligned to the right, its head included.
    """
    if not rows:
        return []
    to_right = [all(isinstance(row[place], int) for row in rows) for place in range(len(head))]
    texts = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[place]) for row in texts) for place in range(len(head))]
    return [indent + _line(row, widths, to_right) for row in texts]


def _line(row: Sequence[str], widths: Sequence[int], to_right: Sequence[bool]) -> str:
    cells = zip(row, widths, to_right, strict=True)
    return _GAP.join(
        text.rjust(width) if right else text.ljust(width) for text, width, right in cells
    ).rstrip()

"""Text tables."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

_GAP: Final = "  "
#: A column is not made narrower than this, so that most words stay whole.
_NARROWEST: Final = 16


def table_lines(
    head: Sequence[str], rows: Sequence[Sequence[str | int]], indent: str = "  ", columns: int | None = None
) -> list[str]:
    """
    Return the table's lines, the head first; none if there are no rows.

    A column whose cells are all numbers is aligned to the right, its head included. In a terminal of so many `columns`
    the cells of the widest columns have several lines.
    """
    if not rows:
        return []
    to_right = [all(isinstance(row[place], int) for row in rows) for place in range(len(head))]
    texts = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[place]) for row in texts) for place in range(len(head))]
    if columns is not None:
        widths = _narrowed(widths, columns - len(indent) - len(_GAP) * (len(head) - 1))
    return [indent + line for row in texts for line in _lines(row, widths, to_right)]


def _narrowed(widths: Sequence[int], total: int) -> list[int]:
    """Return the widths with those of the widest columns cut, as long as they exceed the total."""
    widths = list(widths)
    while sum(widths) > total and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _lines(row: Sequence[str], widths: Sequence[int], to_right: Sequence[bool]) -> Iterator[str]:
    """Yield the lines of a row: several if a cell is wider than its column."""
    wrapped = [
        textwrap.wrap(cell, width) if len(cell) > width else [cell]
        for cell, width in zip(row, widths, strict=True)
    ]
    for parts in zip_longest(*wrapped, fillvalue=""):
        cells = zip(parts, widths, to_right, strict=True)
        yield _GAP.join(
            text.rjust(width) if right else text.ljust(width) for text, width, right in cells
        ).rstrip()

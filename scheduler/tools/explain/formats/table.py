"""Text tables."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

_GAP: Final = "  "
#: A column is not made narrower than this, so that a sentence does not become a word a line.
_NARROWEST: Final = 24
#: Elsewhere than in a terminal no column is made wider for a longer cell, which moves the rest of its own row alone.
_PADDED: Final = 60


def table_lines(
    head: Sequence[str], rows: Sequence[Sequence[str | int]], indent: str = "  ", columns: int | None = None
) -> list[str]:
    """
    Return the table's lines, the head first; none if there are no rows.

    A column whose cells are all numbers is aligned to the right, its head included. In a terminal of so many `columns`
    the cells of the widest columns have several lines, broken between words: names are copied. The last columns for
    which there is no room are lines below their row, such as `where: zone=a`. Elsewhere each row is one line.
    """
    if not rows:
        return []
    to_right = [all(isinstance(row[place], int) for row in rows) for place in range(len(head))]
    texts = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[place]) for row in texts) for place in range(len(head))]
    if columns is None:
        usual = [
            max(len(row[place]) for row in texts if len(row[place]) <= _PADDED) for place in range(len(head))
        ]
        return [indent + _line(row, usual, to_right) for row in texts]
    least = [min(widths[place], max(_NARROWEST, _longest_word(texts, place))) for place in range(len(head))]
    room = columns - len(indent)
    n_beside = len(head)
    while n_beside > 1 and sum(least[:n_beside]) + len(_GAP) * (n_beside - 1) > room:
        n_beside -= 1
    widths = _narrowed(widths[:n_beside], least, room - len(_GAP) * (n_beside - 1))
    lines = list(_lines(texts[0][:n_beside], widths, to_right)) if any(head[:n_beside]) else []
    for row in texts[1:]:
        lines += _lines(row[:n_beside], widths, to_right)
        for name, cell in zip(head[n_beside:], row[n_beside:], strict=True):
            text = f"{name.lower()}: {cell}" if name else cell
            lines += _wrap(text, room, indent=_GAP * 2) if cell else ()
    return [indent + line for line in lines]


def _longest_word(texts: Sequence[Sequence[str]], place: int) -> int:
    return max((len(word) for row in texts for word in row[place].split()), default=0)


def _narrowed(widths: Sequence[int], least: Sequence[int], total: int) -> list[int]:
    """Return the widths with those of the widest columns cut, down to the least ones, while they exceed the total."""
    widths = list(widths)
    while sum(widths) > total:
        wider = [place for place, width in enumerate(widths) if width > least[place]]
        if not wider:
            break
        widths[max(wider, key=lambda place: widths[place])] -= 1
    return widths


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        max(width, len(indent) + 1),
        initial_indent=indent,
        subsequent_indent=indent and indent + _GAP,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _lines(row: Sequence[str], widths: Sequence[int], to_right: Sequence[bool]) -> Iterator[str]:
    """Yield the lines of a row: several if a cell is wider than its column."""
    wrapped = [
        _wrap(cell, width) if len(cell) > width else [cell] for cell, width in zip(row, widths, strict=True)
    ]
    for parts in zip_longest(*wrapped, fillvalue=""):
        yield _line(parts, widths, to_right)


def _line(cells: Sequence[str], widths: Sequence[int], to_right: Sequence[bool]) -> str:
    placed = zip(cells, widths, to_right, strict=False)
    return _GAP.join(
        text.rjust(width) if right else text.ljust(width) for text, width, right in placed
    ).rstrip()

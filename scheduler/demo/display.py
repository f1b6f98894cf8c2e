"""
The screen: steps, a progress bar, tables. Plain lines without a terminal; no colour if NO_COLOR is set.

Control codes are written only by `Display._painted` and `Display.progress`, and only to a terminal.
"""

from __future__ import annotations

import shutil
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

_BAR_WIDTH: Final = 30
_REDRAW_S: Final = 0.05
#: Between columns; the widest table then fits into 80 characters.
_GAP: Final = "  "
_WIDEST: Final = 110
_UNBOUNDED: Final = 1_000_000
_ERASED: Final = "\r\x1b[K"
#: Colours of groups in order of appearance: blue, green, yellow, magenta, cyan, red.
_COLOURS: Final = ("34;1", "32;1", "33;1", "35;1", "36;1", "31;1")
_BOLD: Final = "1"
_FAINT: Final = "2"
_GOOD: Final = "32"
_BAD: Final = "31;1"


@dataclass(frozen=True, slots=True)
class Group:
    """Pods that are drawn alike: their letter, and its meaning."""

    letter: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Row:
    """One node of a table: its zone, pool or other region, its name, and one group for each of its pods."""

    region: str
    name: str
    groups: tuple[Group, ...]


class Display:
    """Writes to `out`. Of `environ`, NO_COLOR (https://no-color.org) and TERM are read."""

    def __init__(
        self, out: TextIO, environ: Mapping[str, str], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._out = out
        self._is_terminal = out.isatty() and environ.get("TERM", "") not in ("", "dumb")
        self._is_coloured = self._is_terminal and not environ.get("NO_COLOR")
        self._is_unicode = (out.encoding or "").lower().replace("-", "") == "utf8"
        self._now_s = now_s
        self._drawn_at_s: float | None = None
        self._bar_shown = False
        self._is_blank = True
        #: A group keeps its colour in all tables of a story.
        self._colour_by_group: dict[Group, str] = {}

    # -- lines -----------------------------------------------------------------------------------------------

    def title(self, text: str, about: str) -> None:
        """Print the title of a story and what it is about."""
        self._colour_by_group.clear()
        self.line()
        self.line(self._painted(text, _BOLD))
        for line in textwrap.wrap(about, min(self._width(), _WIDEST) - 2):
            self.line(self._painted(line, _FAINT))
        self.line()

    def command(self, text: str) -> None:
        """Print the command that a user would type for the next step."""
        self.line(self._painted(f"  $ {text}", _FAINT))

    def step(self, text: str) -> None:
        """Print what has happened."""
        self._wrapped(text, "  - ", "    ")

    def quote(self, text: str) -> None:
        """Print the cluster's own words."""
        self._wrapped(text, "      ", "      ", self._colour_if(_COLOURS[2]))

    def good(self, text: str) -> None:
        """Print that a claim of the story holds."""
        mark = "✓" if self._is_unicode else "ok"
        self._wrapped(text, f"  {mark} ", "    ", self._colour_if(_GOOD))

    def bad(self, text: str) -> None:
        """Print that a claim of the story does not hold."""
        mark = "✗" if self._is_unicode else "!!"
        self._wrapped(text, f"  {mark} ", "    ", self._colour_if(_BAD))

    def line(self, text: str = "") -> None:
        """Print a line in place of the progress bar, but never two empty ones."""
        self._clear_bar()
        if not text and self._is_blank:
            return
        self._is_blank = not text
        print(text, file=self._out, flush=True)

    # -- progress --------------------------------------------------------------------------------------------

    def progress(self, done: int, total: int, what: str) -> None:
        """Draw the progress bar at `done` of `total`; nothing without a terminal."""
        now_s = self._now_s()
        is_early = self._drawn_at_s is not None and now_s - self._drawn_at_s < _REDRAW_S
        if not self._is_terminal or (is_early and done < total):
            return
        self._drawn_at_s = now_s
        bar = progress_bar(done, total, is_unicode=self._is_unicode)
        text = f"  {bar} {min(done, total)}/{total} {what}"[: self._width()]
        self._out.write(f"{_ERASED}{text}")
        self._out.flush()
        self._bar_shown = True

    def _clear_bar(self) -> None:
        if self._bar_shown:
            self._out.write(_ERASED)
            self._bar_shown = False

    # -- tables ----------------------------------------------------------------------------------------------

    def table(self, region: str, rows: Sequence[Row], waiting: Sequence[Group] = ()) -> None:
        """
        Print nodes by region with a letter for each pod, pods without a node last, and the meaning of the letters.

        `region`: the title of the first column: zone, pool. A region is named once.
        """
        shown_groups = sorted(
            {*waiting, *(group for row in rows for group in row.groups)}, key=lambda one: one.letter
        )
        for group in shown_groups:
            self._colour_of(group)

        def drawn(groups: Iterable[Group]) -> str:
            letters = (self._painted(one.letter, self._colour_of(one)) for one in groups)
            return " ".join(letters) or self._painted("-", _FAINT)

        self.line()
        cells = [(row.region, row.name, drawn(row.groups)) for row in rows]
        regions = [cell[0] for cell in cells]
        first = [name if i == 0 or regions[i - 1] != name else "" for i, name in enumerate(regions)]
        lines = [(shown, name, pods) for shown, (_, name, pods) in zip(first, cells, strict=True)]
        if waiting:
            lines.append(("no node", "", drawn(waiting)))
        for text in columns((region.upper(), "NODE", "PODS"), lines):
            self.line(f"    {text}")
        legend = [f"{drawn([one])} = {one.meaning}" for one in shown_groups]
        self.line()
        is_wide = sum(len(one.letter) + len(one.meaning) + 6 for one in shown_groups) >= self._width()
        for text in legend if is_wide else ["   ".join(legend)]:
            self.line(f"    {text}")
        self.line()

    def figures(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print aligned columns of text and numbers."""
        self.line()
        for text in columns(head, rows):
            self.line(f"  {text}")
        self.line()

    # -- layout ----------------------------------------------------------------------------------------------

    def _wrapped(self, text: str, first: str, rest: str, colour: str = "") -> None:
        lines = textwrap.wrap(
            text,
            self._width() - 1,
            initial_indent=first,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines or [first]:
            self.line(self._painted(line, colour))

    def _colour_of(self, group: Group) -> str:
        n_known = len(self._colour_by_group)
        return self._colour_by_group.setdefault(group, _COLOURS[n_known % len(_COLOURS)])

    def _colour_if(self, code: str) -> str:
        return code if self._is_coloured else ""

    def _painted(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._is_coloured and code else text

    def _width(self) -> int:
        """Return the terminal's columns; without a terminal no line is wrapped, so that text can be searched."""
        return min(shutil.get_terminal_size().columns, _WIDEST) if self._is_terminal else _UNBOUNDED


def progress_bar(done: int, total: int, *, is_unicode: bool) -> str:
    """Return a bar of fixed width, filled by `done` / `total`; full if there is nothing to do."""
    share = min(max(done / total, 0.0), 1.0) if total > 0 else 1.0
    filled = int(share * _BAR_WIDTH)
    full, empty = ("█", "░") if is_unicode else ("#", ".")
    return full * filled + empty * (_BAR_WIDTH - filled)


def columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """
    Return lines of aligned columns under a heading; columns of numbers (a dash for none) stand right.

    The last column may hold text with colours, since nothing stands behind it.
    """
    cells = [list(row) for row in rows]
    numeric = [_is_numeric([row[i] for row in cells]) for i in range(len(head))]
    widths = [max(len(row[i]) for row in [list(head), *cells]) for i in range(len(head))]

    def laid(row: Sequence[str]) -> str:
        last = len(row) - 1
        parts = [
            text.rjust(widths[i]) if numeric[i] else text if i == last else text.ljust(widths[i])
            for i, text in enumerate(row)
        ]
        return _GAP.join(parts).rstrip()

    return [laid(head), *map(laid, cells)]


def _is_numeric(texts: Sequence[str]) -> bool:
    numbers = [text for text in texts if text != "-"]
    return bool(numbers) and all(text.replace(",", "").isdecimal() for text in numbers)

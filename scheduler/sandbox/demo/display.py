"""
The screen: commands, the cluster's own words, maps. No colour without a terminal or with NO_COLOR.

Control codes are written only by `Display._painted`, and only to a terminal.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TextIO

_GAP: Final = "  "
_NARROWEST: Final = 80
_WIDEST: Final = 110
_UNBOUNDED: Final = 1_000_000
#: Colours of the letters of a map, in the order of its legend: blue, green, yellow, magenta.
_COLOURS: Final = ("34;1", "32;1", "33;1", "35;1")
_BOLD: Final = "1"
_FAINT: Final = "2"
_COMMAND: Final = "36"
_QUOTED: Final = "33"
_GOOD: Final = "32"
_BAD: Final = "31;1"


@dataclass(frozen=True, slots=True)
class Scene:
    """One line of a map: the cluster at one moment, a letter for each pod."""

    moment: str
    #: Zone, block or other region -> its nodes, each in brackets.
    nodes_by_region: Mapping[str, str]
    #: Pods without a node.
    waiting: str = ""


class Display:
    """Writes to `out`. Of `environ`, NO_COLOR (https://no-color.org) and TERM are read."""

    def __init__(self, out: TextIO, environ: Mapping[str, str]) -> None:
        self._out = out
        self._is_terminal = out.isatty() and environ.get("TERM", "") not in ("", "dumb")
        self._is_coloured = self._is_terminal and not environ.get("NO_COLOR")
        self._is_unicode = (out.encoding or "").lower().replace("-", "") == "utf8"

    # -- lines -----------------------------------------------------------------------------------------------

    def title(self, text: str, problem: str) -> None:
        """Print the title of a story, and the problem that it is about."""
        rule = "─" if self._is_unicode else "-"
        self.line()
        self.line(self._painted(f"{rule * 2} {text} ".ljust(min(self._width(), _NARROWEST) - 1, rule), _BOLD))
        for line in textwrap.wrap(problem, min(self._width(), _WIDEST) - 1):
            self.line(line)
        self.line()

    def command(self, text: str) -> None:
        """Print the command that a user would type for the next step; a longer one goes on after a backslash."""
        self._wrapped(text, "  $ ", "      ", _COMMAND, " \\")

    def step(self, text: str) -> None:
        """Print what has happened."""
        self._wrapped(text, "  ", "  ")

    def quote(self, lines: Iterable[str]) -> None:
        """Print lines of the cluster's or the product's own words, each with its own indentation."""
        bar = "│" if self._is_unicode else "|"
        for line in textwrap.dedent("\n".join(lines)).splitlines():
            indent = line[: len(line) - len(line.lstrip())]
            self._wrapped(line.strip(), f"    {bar} {indent}", f"    {bar} {indent}  ", _QUOTED)

    def good(self, text: str) -> None:
        """Print that a claim of the story holds."""
        mark = "✓" if self._is_unicode else "ok"
        self._wrapped(text, f"  {mark} ", "    ", _GOOD)

    def bad(self, text: str) -> None:
        """Print that a claim of the story does not hold."""
        mark = "✗" if self._is_unicode else "!!"
        self._wrapped(text, f"  {mark} ", "    ", _BAD)

    def line(self, text: str = "") -> None:
        """Print a line."""
        print(text, file=self._out, flush=True)

    # -- maps ------------------------------------------------------------------------------------------------

    def map(self, scenes: Sequence[Scene], meaning_by_letter: Mapping[str, str]) -> None:
        """Print the scenes one below the other, a column for each region, and the meaning of the letters."""
        regions = sorted({region for scene in scenes for region in scene.nodes_by_region})
        rows = [
            [scene.moment, *(scene.nodes_by_region.get(region, "") for region in regions), scene.waiting]
            for scene in scenes
        ]
        is_waiting = any(scene.waiting for scene in scenes)
        self.line()
        head, *lines = columns(["", *regions, "no node" if is_waiting else ""], rows)
        self.line(f"    {head}")
        moments = max(len(scene.moment) for scene in scenes)
        colours = {
            letter: colour
            for letter, colour in zip(meaning_by_letter, _COLOURS, strict=False)
            if letter.isalnum()
        }
        for text in lines:
            drawn = (self._painted(letter, colours.get(letter, "")) for letter in text[moments:])
            self.line(f"    {text[:moments]}{''.join(drawn)}")
        # A letter and its meaning are one word, so that no line breaks between them.
        meanings = (f"{letter} = {meaning}" for letter, meaning in meaning_by_letter.items())
        legend = "   ".join(each.replace(" ", "\N{NO-BREAK SPACE}") for each in meanings)
        self._wrapped(legend, "    ", "    ", _FAINT)
        self.line()

    def figures(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print aligned columns of text and numbers."""
        self.line()
        for text in columns(head, rows):
            self.line(f"    {text}")
        self.line()

    # -- layout ----------------------------------------------------------------------------------------------

    def _wrapped(self, text: str, first: str, rest: str, colour: str = "", mark: str = "") -> None:
        """Print a text that is broken between words alone, with `mark` at the end of every line that goes on."""
        width = self._width() - 1 - len(mark)
        lines = textwrap.wrap(
            text,
            width,
            initial_indent=first,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [first]
        for line in [*(line + mark for line in lines[:-1]), lines[-1]]:
            self.line(self._painted(line.replace("\N{NO-BREAK SPACE}", " "), colour))

    def _painted(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._is_coloured and code else text

    def _width(self) -> int:
        """Return the terminal's columns; without a terminal no line is wrapped, so that text can be searched."""
        return min(shutil.get_terminal_size().columns, _WIDEST) if self._is_terminal else _UNBOUNDED


def columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return lines of aligned columns under a heading; columns of numbers (a dash for none) stand right."""
    cells = [list(row) for row in rows]
    numbers = [[row[i].replace(",", "") for row in cells if row[i] != "-"] for i in range(len(head))]
    numeric = [bool(column) and all(map(str.isdecimal, column)) for column in numbers]
    widths = [max(len(row[i]) for row in [list(head), *cells]) for i in range(len(head))]

    def laid(row: Sequence[str]) -> str:
        parts = [text.rjust(widths[i]) if numeric[i] else text.ljust(widths[i]) for i, text in enumerate(row)]
        return _GAP.join(parts).rstrip()

    return [laid(head), *map(laid, cells)]

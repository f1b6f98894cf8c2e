"""Output that only terminals get: colours, and lines that are replaced."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TextIO

from scheduler.daemon.settings.problems import printable

_BOLD: Final = "1"
_FAINT: Final = "2"
_GREEN: Final = "32;1"
_RED: Final = "31;1"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
#: A table separates its columns by two blanks or more; only the arrow of a proposed change has them too.
_TABLE_ROW: Final = re.compile(r"\S {2,}(?!->)\S")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
#: Of a terminal that does not know its size.
_COLUMNS: Final = 80
_LINES: Final = 24


class Style:
    """
    How text is printed on one stream: in colours on a terminal unless NO_COLOR is set (https://no-color.org).

    `is_wide`: whether long lists are printed as a whole.
    """

    def __init__(self, out: TextIO, environ: Mapping[str, str], *, is_wide: bool = False) -> None:
        self.is_wide = is_wide
        self.is_terminal = out.isatty() and environ.get("TERM", "") not in ("", "dumb")
        #: Width of the terminal; None for another stream.
        self.columns = _size(out)[0] if self.is_terminal else None
        self._is_coloured = self.is_terminal and not environ.get("NO_COLOR")

    def heading(self, text: str) -> str:
        """Return the text in bold."""
        return self._styled(text, _BOLD)

    def faint(self, text: str) -> str:
        """Return the text in a faint colour, for details."""
        return self._styled(text, _FAINT)

    def good(self, text: str) -> str:
        """Return the text in green."""
        return self._styled(text, _GREEN)

    def bad(self, text: str) -> str:
        """Return the text in red."""
        return self._styled(text, _RED)

    def wrapped(self, text: str) -> str:
        """Return the text with its sentences broken between words at the terminal's width; tables stay as they are."""
        if self.columns is None:
            return text
        return "\n".join(_wrapped(line, self.columns) for line in text.split("\n"))

    def _styled(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._is_coloured else text


def print_notice(text: str) -> None:
    """Print on standard error what the user should know of the input."""
    print(printable(" ".join(text.split())), file=sys.stderr)


def print_unlisted(kind: str, reason: str) -> None:
    """Print on standard error that the answer disregards a kind, since the user may not list its objects."""
    print_notice(f"Without {kind} objects: {reason}")


class LiveLines:
    """Shows lines on a terminal in place of the last ones, elsewhere none; what is written, as a log, stays above."""

    def __init__(self, out: TextIO, environ: Mapping[str, str]) -> None:
        self._out = out
        self._shown = Style(out, environ).is_terminal
        self._lines: Sequence[str] = ()

    def show(self, render: Callable[[int], Sequence[str]]) -> None:
        """Show the lines for a number of columns, each cut there, and as many as the terminal's height takes."""
        if not self._shown:
            return
        columns, n_lines = _size(self._out)
        lines = [_cut(printable(line), columns) for line in render(columns)]
        if len(lines) > n_lines:
            lines[n_lines - 1 :] = [_cut(f"... and {len(lines) - n_lines + 1} more lines", columns)]
        self._write(self._erased(), lines)

    def say(self, text: str) -> None:
        """Show one line, or none without a text."""
        self.show(lambda _: [text] if text else [])

    def write(self, text: str) -> None:
        """Write whole lines above."""
        self._write(self._erased() + text, self._lines)

    def flush(self) -> None:
        """Do nothing: every `write` does."""

    def clear(self) -> None:
        """Erase the lines."""
        self._write(self._erased(), ())

    def _erased(self) -> str:
        """Return what erases the lines, with those into which a terminal that became narrower has broken them."""
        if not self._lines:
            return ""
        columns = _size(self._out)[0] + 1
        n_lines = sum(max(1, -(-len(line) // columns)) for line in self._lines)
        return f"\x1b[{n_lines}F\x1b[J"

    def _write(self, text: str, lines: Sequence[str]) -> None:
        self._lines = lines
        # Without wrapping, one line stays one: some characters are two columns wide.
        block = "".join(f"{line}\n" for line in lines)
        if whole := text + (f"{_NO_WRAP}{block}{_WRAP}" if block else ""):
            self._out.write(whole)
            self._out.flush()


def _size(out: TextIO) -> tuple[int, int]:
    """Return columns and lines to use: the last ones stay free, so that nothing wraps or scrolls."""
    try:
        columns, n_lines = os.get_terminal_size(out.fileno())
    except OSError:
        columns, n_lines = 0, 0
    # Some terminals, such as those of containers without a size, say 0.
    return max(1, (columns or _COLUMNS) - 1), max(1, (n_lines or _LINES) - 1)


def _wrapped(line: str, columns: int) -> str:
    """Return the line in parts of at most so many columns where it has blanks; later parts are indented further."""
    text = _COLOUR.sub("", line)
    if len(text) <= columns or " " not in text.strip() or _TABLE_ROW.search(text):
        return line
    indent = " " * (len(text) - len(text.lstrip(" ")) + 4)
    parts = textwrap.wrap(
        line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(parts)


def _cut(line: str, columns: int) -> str:
    return line if len(line) <= columns else f"{line[: max(columns - 1, 0)]}…"

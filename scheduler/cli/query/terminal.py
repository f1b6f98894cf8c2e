"""Output that only terminals get: colours and a progress line."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import Final, TextIO

_BOLD: Final = "1"
_FAINT: Final = "2"
_GREEN: Final = "32;1"
_RED: Final = "31;1"
_ERASE_LINE: Final = "\r\x1b[K"


def escape_control_characters(text: str) -> str:
    """Escape control characters, since anybody may write them into annotations."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text)


class Style:
    """Colours for one stream; none if it is no terminal or NO_COLOR is set (https://no-color.org)."""

    def __init__(self, out: TextIO, environ: Mapping[str, str]) -> None:
        self.is_terminal = out.isatty() and environ.get("TERM", "") not in ("", "dumb")
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

    def _styled(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._is_coloured else text


class ReadProgress:
    """Shows on one line of a terminal what is going on, such as `reading Pod: 12500`; nothing elsewhere."""

    def __init__(self, out: TextIO, environ: Mapping[str, str]) -> None:
        self._out = out
        self._shown = Style(out, environ).is_terminal

    def update(self, kind: str, n_objects: int) -> None:
        """Show how many objects of the kind were read."""
        self.show(f"reading {kind}: {n_objects}")

    def show(self, text: str) -> None:
        """Show the text in place of the last one, without control characters."""
        if self._shown:
            self._out.write(_ERASE_LINE + escape_control_characters(text))
            self._out.flush()

    def clear(self) -> None:
        """Erase the line."""
        if self._shown:
            self._out.write(_ERASE_LINE)
            self._out.flush()


class LiveLines:
    """Shows lines on a terminal in place of the last ones; nothing elsewhere."""

    def __init__(self, out: TextIO, environ: Mapping[str, str]) -> None:
        self._out = out
        self._shown = Style(out, environ).is_terminal
        self._n_lines = 0

    def show(self, lines: Sequence[str]) -> None:
        """Show the lines, each cut to the terminal's width and as many as its height takes."""
        if not self._shown:
            return
        size = shutil.get_terminal_size()
        shown = [escape_control_characters(line)[: size.columns - 1] for line in lines[: size.lines - 1]]
        self.clear()
        self._out.write("".join(f"{line}\n" for line in shown))
        self._out.flush()
        self._n_lines = len(shown)

    def clear(self) -> None:
        """Erase the lines."""
        if self._n_lines:
            self._out.write(f"\x1b[{self._n_lines}F\x1b[J")
            self._out.flush()
        self._n_lines = 0

"""What a terminal gets and a file does not: colours, and a line that counts while a cluster is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TextIO

_BOLD: Final = "1"
_FAINT: Final = "2"
_GREEN: Final = "32;1"
_RED: Final = "31;1"
_ERASED: Final = "\r\x1b[K"


def harmless(text: str) -> str:
    """The text with control characters written out: what others put into annotations moves no cursor."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text)


class Paint:
    """Colours for one stream; none where it is no terminal, or where NO_COLOR is set (https://no-color.org)."""

    def __init__(self, out: TextIO, environ: Mapping[str, str]) -> None:
        self.is_terminal = out.isatty() and environ.get("TERM", "") not in ("", "dumb")
        self._is_coloured = self.is_terminal and not environ.get("NO_COLOR")

    def head(self, text: str) -> str:
        """A heading."""
        return self._painted(text, _BOLD)

    def faint(self, text: str) -> str:
        """What is beside the point."""
        return self._painted(text, _FAINT)

    def good(self, text: str) -> str:
        """Open, fitting, bound."""
        return self._painted(text, _GREEN)

    def bad(self, text: str) -> str:
        """Refused."""
        return self._painted(text, _RED)

    def _painted(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._is_coloured else text


class Counting:
    """`reading Pod: 12500` on one line of a terminal; nothing anywhere else."""

    def __init__(self, out: TextIO, environ: Mapping[str, str]) -> None:
        self._out = out
        self._shown = Paint(out, environ).is_terminal

    def at(self, kind: str, n_objects: int) -> None:
        """So many objects of the kind have been read."""
        if self._shown:
            self._out.write(f"{_ERASED}reading {kind}: {n_objects}")
            self._out.flush()

    def done(self) -> None:
        """The line is gone."""
        if self._shown:
            self._out.write(_ERASED)
            self._out.flush()

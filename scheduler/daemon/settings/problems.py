"""
Collects all problems of one configuration, so that one run shows them all.

The wording is upstream's: staging/src/k8s.io/apimachinery/pkg/util/validation/field/errors.go (kubernetes 1.36).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from typing import Final, NoReturn

from scheduler.errors import SettingsError

#: Further problems are only counted.
MAX_LINES: Final = 200
_MAX_SHOWN_CHARS: Final = 120


class InvalidSettingsError(SettingsError):
    """A configuration with one or more problems. `lines`: one complete line for each, file name first."""

    def __init__(self, source: str, lines: tuple[str, ...]) -> None:
        super().__init__(source, "", f"{len(lines)} problems", "none")
        self.lines = lines

    def __str__(self) -> str:
        return "\n".join(self.lines)


class Problems:
    """The problems of the document `source`, in the order found, without duplicates."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._lines: dict[str, None] = {}
        self._path = ""

    def at(self, path: str) -> Problems:
        """Return the same problems, to which others are added with paths below this one."""
        below = Problems(self.source)
        below._lines, below._path = self._lines, self._below(path)
        return below

    def _below(self, path: str) -> str:
        return f"{self._path}.{path}" if self._path and path and path[0] != "[" else self._path + path

    def add(self, path: str, text: str) -> None:
        """Record `text` about the field at `path`; '' is the document itself."""
        line = ": ".join(part for part in (self.source, self._below(path), text) if part)
        self._lines[printable(" ".join(line.split()))] = None

    def include(self, lines: Iterable[str]) -> None:
        """Record problems of other sources; each line is complete."""
        self._lines.update(dict.fromkeys(lines))

    def found(self, path: str, found: str, expected: str) -> None:
        """Record a value that cannot be read, or that this scheduler does not support."""
        self.add(path, f"found {found}, expected {expected}")

    def stop(self, path: str, found: str, expected: str) -> NoReturn:
        """Record a value as `found` does, and raise InvalidSettingsError with every line."""
        self.found(path, found, expected)
        raise InvalidSettingsError(self.source, self.lines)

    def invalid(self, path: str, value: object, detail: str) -> None:
        """Record upstream's field.Invalid."""
        self.add(path, f"Invalid value: {shown(value)}: {detail}")

    def required(self, path: str, detail: str = "") -> None:
        """Record upstream's field.Required."""
        self.add(path, "Required value" + (f": {detail}" if detail else ""))

    def duplicate(self, path: str, value: object) -> None:
        """Record upstream's field.Duplicate."""
        self.add(path, f"Duplicate value: {shown(value)}")

    def unsupported(self, path: str, value: object, supported: Iterable[str]) -> None:
        """Record upstream's field.NotSupported."""
        self.add(
            path, f"Unsupported value: {shown(value)}: supported values: {', '.join(map(shown, supported))}"
        )

    def forbidden(self, path: str, detail: str) -> None:
        """Record upstream's field.Forbidden."""
        self.add(path, f"Forbidden: {detail}")

    @property
    def lines(self) -> tuple[str, ...]:
        """One line per problem, at most MAX_LINES, and one line with the number of the others."""
        n_omitted = max(0, len(self._lines) - MAX_LINES)
        rest = (f"{self.source}: and {n_omitted} more problems",) if n_omitted else ()
        return (*islice(self._lines, MAX_LINES), *rest)

    def raise_if_any(self) -> None:
        """Raise InvalidSettingsError with every line if anything was recorded."""
        if self._lines:
            raise InvalidSettingsError(self.source, self.lines)


def shown(value: object) -> str:
    """Return `value` as the user wrote it, on one line, shortened: text in quotes, lists and objects as JSON."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > _MAX_SHOWN_CHARS:
        text = text[: _MAX_SHOWN_CHARS - 3] + "..."
    return printable(text)


def described(value: object) -> str:
    """Return the kind of `value`, for a message about an unexpected one."""
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case _:
            return shown(value)


def printable(text: str) -> str:
    """Return `text` with characters that a terminal or UTF-8 cannot show written as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)

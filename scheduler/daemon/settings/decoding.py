"""
Decodes objects strictly: every field is read by name and type, and a field that is not read is a problem.

Absent and null fields read as None, as in upstream's decoding, so that defaulting can tell them from zero.
"""

from types import TracebackType
from typing import Final, Self

from scheduler.daemon.settings.documents import child_path
from scheduler.daemon.settings.durations import parse_duration_ns
from scheduler.daemon.settings.problems import Problems, described, shown

_MAX_FLOAT32: Final = 3.4028234663852886e38


class ObjectReader:
    """
    Reads the fields of one object, each once. Use it in a `with` block, whose end reports unknown fields.

    A field of the wrong type is recorded in `problems` and reads as None.
    """

    def __init__(self, value: object, path: str, problems: Problems) -> None:
        self.path, self.problems = path, problems
        self._read_names: set[str] = set()
        self._fields: dict[str, object] = {}
        if isinstance(value, dict):
            self._fields = value
        elif value is not None:
            problems.found(path, described(value), "an object")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return
        for name in self._fields:
            if name not in self._read_names:
                known = ", ".join(sorted(self._read_names))
                self.problems.found(self.at(name), "an unknown field", f"one of {known}")

    def names(self) -> list[str]:
        """Return the names of all fields that are there."""
        return list(self._fields)

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return child_path(self.path, name)

    def raw(self, name: str) -> object:
        """Return the undecoded value, None if absent or null; the field counts as read."""
        self._read_names.add(name)
        return self._fields.get(name)

    def integer(self, name: str, *, bits: int = 32) -> int | None:
        """Return a whole number that fits a signed integer of `bits`."""
        value = self.raw(name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        limit = 1 << (bits - 1)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            self.problems.found(self.at(name), described(value), "an integer")
        elif not -limit <= value < limit:
            self.problems.found(self.at(name), shown(value), f"an integer of {bits} bits")
        else:
            return value
        return None

    def number(self, name: str) -> float | None:
        """Return a finite number that fits 32-bit floating point, not rounded to it."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MAX_FLOAT32:
            return float(value)
        self.problems.found(self.at(name), described(value), "a number")
        return None

    def boolean(self, name: str) -> bool | None:
        """Return True or False."""
        value = self.raw(name)
        if value is None or isinstance(value, bool):
            return value
        self.problems.found(self.at(name), described(value), "true or false")
        return None

    def text(self, name: str) -> str | None:
        """Return a string."""
        value = self.raw(name)
        if value is None or isinstance(value, str):
            return value
        self.problems.found(self.at(name), described(value), "a string")
        return None

    def duration_s(self, name: str) -> float | None:
        """Return the seconds of a duration in Go's syntax."""
        value = self.raw(name)
        if value is None:
            return None
        duration_ns = parse_duration_ns(value) if isinstance(value, str) else None
        if duration_ns is None:
            self.problems.found(self.at(name), described(value), 'a duration such as "15s" or "1m30s"')
            return None
        return duration_ns / 1_000_000_000

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings, empty if absent."""
        texts: list[str] = []
        for index, value in enumerate(self._list(name)):
            if isinstance(value, str):
                texts.append(value)
            else:
                self.problems.found(f"{self.at(name)}[{index}]", described(value), "a string")
        return tuple(texts)

    def child(self, name: str) -> "ObjectReader":
        """Return a reader of the object, of an empty one if absent."""
        return ObjectReader(self.raw(name), self.at(name), self.problems)

    def objects(self, name: str) -> list["ObjectReader"]:
        """Return a reader for each object of a list, none if absent."""
        readers: list[ObjectReader] = []
        for index, value in enumerate(self._list(name)):
            path = f"{self.at(name)}[{index}]"
            if value is None:
                self.problems.found(path, "null", "an object")
            readers.append(ObjectReader(value, path, self.problems))
        return readers

    def _list(self, name: str) -> list[object]:
        value = self.raw(name)
        if value is None or isinstance(value, list):
            return value or []
        self.problems.found(self.at(name), described(value), "a list")
        return []

"""
Strict decoding: every field is asked for by name and type; what nobody asked for is a problem.

Absent and null fields read as None, as in upstream's decoding, so that defaulting can tell them from zero.
"""

from types import TracebackType
from typing import Final, Self

from scheduler.settings.documents import child_path
from scheduler.settings.durations import parse_duration_ns
from scheduler.settings.problems import Problems, described, shown

_MAX_FLOAT32: Final = 3.4028234663852886e38


class ObjectReader:
    """
    Reads the fields of one object once each; used as a context, it reports unknown fields on leaving.

    A field of the wrong type is recorded in `problems` and reads as None.
    """

    def __init__(self, value: object, path: str, problems: Problems) -> None:
        self.path, self.problems = path, problems
        self._asked: set[str] = set()
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
            if name not in self._asked:
                known = ", ".join(sorted(self._asked))
                self.problems.found(self.at(name), "an unknown field", f"one of {known}")

    def at(self, name: str) -> str:
        """The path of the field `name`."""
        return child_path(self.path, name)

    def raw(self, name: str) -> object:
        """The undecoded value of `name`, None if absent or null; it counts as read."""
        self._asked.add(name)
        return self._fields.get(name)

    def integer(self, name: str, *, bits: int = 32) -> int | None:
        """A whole number that fits a signed integer of `bits`."""
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
        """A finite number that fits 32-bit floating point, rounded to nothing here."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MAX_FLOAT32:
            return float(value)
        self.problems.found(self.at(name), described(value), "a number")
        return None

    def boolean(self, name: str) -> bool | None:
        """True or false."""
        value = self.raw(name)
        if value is None or isinstance(value, bool):
            return value
        self.problems.found(self.at(name), described(value), "true or false")
        return None

    def text(self, name: str) -> str | None:
        """A text."""
        value = self.raw(name)
        if value is None or isinstance(value, str):
            return value
        self.problems.found(self.at(name), described(value), "a text")
        return None

    def duration_s(self, name: str) -> float | None:
        """Seconds of a duration in Go's syntax."""
        value = self.raw(name)
        if value is None:
            return None
        duration_ns = parse_duration_ns(value) if isinstance(value, str) else None
        if duration_ns is None:
            self.problems.found(self.at(name), described(value), 'a duration such as "15s" or "1m30s"')
            return None
        return duration_ns / 1_000_000_000

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts, empty if absent."""
        texts: list[str] = []
        for index, value in enumerate(self._list(name)):
            if isinstance(value, str):
                texts.append(value)
            else:
                self.problems.found(f"{self.at(name)}[{index}]", described(value), "a text")
        return tuple(texts)

    def child(self, name: str) -> "ObjectReader":
        """A reader of the object at `name`, of an empty one if absent."""
        return ObjectReader(self.raw(name), self.at(name), self.problems)

    def objects(self, name: str) -> list["ObjectReader"]:
        """A reader for each object of a list, none if absent."""
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

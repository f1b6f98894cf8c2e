"""Which of many values an audit compares next: a few at a time, so that a running scheduler can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

_T = TypeVar("_T")

#: Values that an audit compares at once, 20 to 50 µs each.
_AUDITED_AT_ONCE: Final = 64


class AuditWindow:
    """A window that moves over the values."""

    def __init__(self) -> None:
        self._next = 0

    def of(self, values: Sequence[_T]) -> Sequence[_T]:
        """Return the next few of the values."""
        start = self._next if self._next < len(values) else 0
        self._next = start + _AUDITED_AT_ONCE
        return values[start : self._next]

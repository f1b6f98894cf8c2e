"""
A dict in parts, for hundreds of thousands of entries.

A dict is resized in one step, which takes 5 to 20 ms at 87,381 entries: longer than the event loop may be blocked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final, Generic, TypeVar
from zlib import crc32

T = TypeVar("T")

#: A part has 16,000 of a million entries, and is resized in 1 ms.
_N_PARTS: Final = 64


class PartitionedDict(Generic[T]):
    """
    A dict with str keys and the few methods that callers need.

    Iterates part by part, each in insertion order. Parts are chosen by CRC, since str hashes differ between processes
    and runs must be repeatable.
    """

    def __init__(self) -> None:
        self._parts: tuple[dict[str, T], ...] = tuple({} for _ in range(_N_PARTS))

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)

    def __contains__(self, key: str) -> bool:
        return key in self._parts[crc32(key.encode()) % _N_PARTS]

    def __getitem__(self, key: str) -> T:
        return self._parts[crc32(key.encode()) % _N_PARTS][key]

    def __setitem__(self, key: str, value: T) -> None:
        self._parts[crc32(key.encode()) % _N_PARTS][key] = value

    def __delitem__(self, key: str) -> None:
        del self._parts[crc32(key.encode()) % _N_PARTS][key]

    def get(self, key: str) -> T | None:
        """Return the value, None if there is none."""
        return self._parts[crc32(key.encode()) % _N_PARTS].get(key)

    def parts(self) -> tuple[Mapping[str, T], ...]:
        """Return the parts, to go through the entries piece by piece while they change."""
        return self._parts

    def values(self) -> Iterator[T]:
        """Return an iterator over all values."""
        return chain.from_iterable(part.values() for part in self._parts)

    def items(self) -> Iterator[tuple[str, T]]:
        """Return an iterator over all keys with their values."""
        return chain.from_iterable(part.items() for part in self._parts)

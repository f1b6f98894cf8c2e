"""Cuts long work into pieces between which an event loop can turn."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")

#: Long work that yields after each piece, and returns a T at its end.
Pieces: TypeAlias = Generator[None, None, T]

#: Objects that are copied in one piece, 10 to 15 µs each.
_BATCH: Final = 40


def batches(items: Iterable[T]) -> Iterator[Sequence[T]]:
    """Yield the items, at most 40 at a time."""
    left = iter(items)
    while batch := list(islice(left, _BATCH)):
        yield batch


def finished(pieces: Pieces[T]) -> T:
    """Do all pieces that are left, and return the value at their end."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            value: T = end.value
            return value

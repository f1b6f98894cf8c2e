"""Cuts long work into pieces between which an event loop can turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T")

#: Objects that are copied in one piece, 10 to 15 µs each.
_BATCH: Final = 40


def batches(items: Iterable[T]) -> Iterator[Sequence[T]]:
    """Yield the items, at most 40 at a time."""
    left = iter(items)
    while batch := list(islice(left, _BATCH)):
        yield batch

"""Cuts long work into pieces between which an event loop can turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")

#: Long work that yields after each piece, and returns a T at its end.
Pieces: TypeAlias = Generator[None, None, T]

#: Objects that are copied in one piece, 10 to 15 µs each.
_BATCH: Final = 40
#: A unit of incremental work is one question to hints or one move of a pod; a step takes about 1 ms.
UNITS_PER_STEP: Final = 100


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


class IncrementalWork:
    """Tasks in the order in which they were added; each is a generator that yields after every unit of work."""

    def __init__(self, units_per_step: int = UNITS_PER_STEP) -> None:
        self._units_per_step = units_per_step
        self._tasks: deque[Iterator[None]] = deque()

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def add(self, task: Iterator[None]) -> None:
        """Append `task`; do its first step at once if nothing is before it."""
        self._tasks.append(task)
        if len(self._tasks) == 1:
            self.step()

    def step(self) -> None:
        """Do at most `units_per_step` units."""
        left = self._units_per_step
        while self._tasks:
            for _ in self._tasks[0]:
                left -= 1
                if not left:
                    return
            self._tasks.popleft()

    def finish(self) -> None:
        """Do all that is left."""
        while self._tasks:
            self.step()

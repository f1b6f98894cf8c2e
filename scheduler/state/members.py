"""
Sets of things that have a number: a dict while they are few, one bit for each number beyond.

Who matches whom is pairs. A few hundred pods whose labels and terms are all different make tens of millions of them,
some gigabytes as dicts; as bits they take three bytes for a hundred.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

#: Members beyond which bits are kept, and below which a dict is again.
_MANY: Final = 64
_FEW: Final = 16


class _Numbered(Protocol):
    number: int


T = TypeVar("T", bound=_Numbered)


class Roll(Generic[T]):
    """Gives numbers to things, those of what has left again, so that they stay small."""

    def __init__(self) -> None:
        """Nobody has a number."""
        self.by_number: list[T | None] = []
        self._free: list[int] = []

    def enter(self, one: T) -> None:
        """It has a number that nothing else has."""
        if self._free:
            one.number = self._free.pop()
            self.by_number[one.number] = one
        else:
            one.number = len(self.by_number)
            self.by_number.append(one)

    def leave(self, one: T) -> None:
        """Its number is free. It must not be a member of anything any more."""
        self.by_number[one.number] = None
        self._free.append(one.number)


class Members(Generic[T]):
    """A set of things on one roll. Iterated in the order of their coming while they are few, else of their numbers."""

    __slots__ = ("_bits", "_few", "_n", "_roll")

    def __init__(self, roll: Roll[T], of: Iterable[T] = ()) -> None:
        """It has those given."""
        self._roll = roll
        self._few: dict[T, None] | None = dict.fromkeys(of)
        self._bits = bytearray()
        self._n = 0
        if len(self._few) > _MANY:
            self._to_bits(self._few)

    def __len__(self) -> int:
        return self._n if self._few is None else len(self._few)

    def __contains__(self, one: object) -> bool:
        if self._few is not None:
            return one in self._few
        number: int | None = getattr(one, "number", None)
        if number is None or number >= 8 * len(self._bits) or self._roll.by_number[number] is not one:
            return False
        return bool(self._bits[number >> 3] & (1 << (number & 7)))

    def __iter__(self) -> Iterator[T]:
        """All members, 30 ns each; they may come and go meanwhile where they are many."""
        if self._few is not None:
            return iter(self._few)
        return iter(self._listed())

    def add(self, one: T) -> None:
        """It is a member. O(1)."""
        if self._few is not None:
            self._few[one] = None
            if len(self._few) > _MANY:
                self._to_bits(self._few)
        elif one not in self:
            self._n += 1
            self._set(one.number)

    def discard(self, one: T) -> None:
        """It is no member. O(1)."""
        if self._few is not None:
            self._few.pop(one, None)
        elif one in self:
            self._n -= 1
            self._bits[one.number >> 3] &= ~(1 << (one.number & 7))
            if self._n < _FEW:
                self._few = dict.fromkeys(self._listed())
                self._bits = bytearray()

    def clear(self) -> None:
        """Nobody is a member."""
        self._few = {}
        self._bits = bytearray()

    def without(self, others: Members[T]) -> list[T]:
        """Those that are not among the others. O(members), 30 ns each where both are many."""
        if self._few is not None or others._few is not None:
            return [one for one in self if one not in others]
        flags = self._flags()
        theirs = others._flags()[: len(flags)]
        flags[: len(theirs)] &= ~theirs
        return self._flagged(flags)

    def _set(self, number: int) -> None:
        index = number >> 3
        if index >= len(self._bits):
            self._bits.extend(bytes(index + 1 - len(self._bits)))
        self._bits[index] |= 1 << (number & 7)

    def _to_bits(self, members: Iterable[T]) -> None:
        numbers = [one.number for one in members]
        flags = np.zeros(max(numbers) + 1, dtype=np.bool_)
        flags[numbers] = True
        self._bits = bytearray(np.packbits(flags, bitorder="little").tobytes())
        self._n, self._few = len(numbers), None

    def _listed(self) -> list[T]:
        return self._flagged(self._flags())

    def _flags(self) -> npt.NDArray[np.bool_]:
        """By number, a fresh array."""
        return np.unpackbits(np.frombuffer(self._bits, dtype=np.uint8), bitorder="little").astype(np.bool_)

    def _flagged(self, flags: npt.NDArray[np.bool_]) -> list[T]:
        by_number = self._roll.by_number
        members = [by_number[number] for number in np.flatnonzero(flags).tolist()]
        return [one for one in members if one is not None]

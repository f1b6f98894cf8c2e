"""Array types of the columnar state, and arithmetic for one row or many. Arrays are views of `n_rows` entries."""

from __future__ import annotations

import math
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

#: bool per node row.
Mask = npt.NDArray[np.bool_]
#: int32 per node row: numbers of pods.
Counts = npt.NDArray[np.int32]
#: int64 per node row: amounts of a resource, scores, sums over a domain.
Amounts = npt.NDArray[np.int64]
#: Scores per node row: int64 while raw, int16 once normalised to 0..100, which is a quarter of the memory.
Scores = npt.NDArray[np.signedinteger[Any]]
#: Per node row the number of the status that refuses it, 0 if the node fits.
Codes = npt.NDArray[np.integer[Any]]
#: Indices of node rows, or of domains.
Rows = npt.NDArray[np.intp]

#: The largest number below 0.5.
_BELOW_HALF: Final = math.nextafter(0.5, 0.0)

_Scalar = TypeVar("_Scalar", bound=np.generic)


def read_only(array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    """Return a view of the array that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


class Column(Generic[_Scalar]):
    """An array of the state: its owner writes to `own`, everybody else reads `seen`, which cannot be written to."""

    __slots__ = ("own", "seen")

    def __init__(self, array: npt.NDArray[_Scalar]) -> None:
        self.own, self.seen = array, read_only(array)

    def grow(self, capacity: int) -> None:
        """Let the last axis have `capacity` entries, the new ones 0."""
        self.own = grown(self.own, capacity)
        self.seen = read_only(self.own)


def grown(array: npt.NDArray[_Scalar], capacity: int) -> npt.NDArray[_Scalar]:
    """Return a copy whose last axis has `capacity` entries, the new ones 0."""
    # The system clears the pages of zeros when they are first used.
    wider = np.zeros((*array.shape[:-1], capacity), array.dtype)
    wider[..., : array.shape[-1]] = array
    return wider


#: float64 per node row, or per domain.
Fractions = npt.NDArray[np.floating[Any]]

# The same formula computes one row (Python numbers) and many rows (arrays): an operation costs 0.05 µs on a number and
# 0.7 to 1.3 µs on the shortest array, and most decisions recompute one row only.

#: The rows that a formula is computed for: one row, an array of rows, or a slice.
RowIndex = int | Rows | slice
#: An amount of one row, or of several.
Amount = int | Amounts
Fraction = float | Fractions
Truth = bool | Mask


def amount_at(column: Amounts | Counts, rows: RowIndex) -> Amount:
    """Return the column's amount at one row, or at several."""
    if isinstance(rows, int):
        return column.item(rows)
    some: Amounts = column[rows]  # type: ignore[assignment]  # int32 is promoted to int64
    return some


def maximum(amount: Amount, bound: int) -> Amount:
    """Return the larger of the amount and the bound, row by row."""
    return np.maximum(amount, bound) if isinstance(amount, np.ndarray) else max(amount, bound)


def minimum(amount: Amount, other: Amount) -> Amount:
    """Return the smaller of two amounts, row by row; `other` is an array only if `amount` is an array."""
    return np.minimum(amount, other) if isinstance(amount, np.ndarray) else min(amount, other)


def truncated(number: Fraction) -> Amount:
    """Return the number without its fraction, as Go's int64() truncates it."""
    return number.astype(np.int64) if isinstance(number, np.ndarray) else int(number)


def rounded(numbers: Fractions) -> Amounts:
    """Return the nearest integers, halves up; equals Go's math.Round for numbers that are not negative."""
    # Adding 0.5 itself would round the largest number below 0.5 up.
    return (numbers + _BELOW_HALF).astype(np.int64)

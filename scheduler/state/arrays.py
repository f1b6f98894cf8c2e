"""Array types of the columnar state, and growing them. A row is a node; arrays are views of the first `n_rows` rows."""

from __future__ import annotations

import math
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

#: bool per node row.
Mask = npt.NDArray[np.bool_]
#: int32 per node row: numbers of pods.
Counts = npt.NDArray[np.int32]
#: int64 per node row: amounts of a resource, scores, sums over a domain.
Amounts = npt.NDArray[np.int64]
#: Scores per node row: int16 once they are from 0 to 100, a quarter of the memory of words, and int64 before.
Scores = npt.NDArray[np.signedinteger[Any]]
#: A small number per node row, of whatever integers hold it; bytes take an eighth of the memory of words.
Codes = npt.NDArray[np.integer[Any]]
#: Indices of node rows, or of domains.
Rows = npt.NDArray[np.intp]

#: The largest number below 0.5.
_BELOW_HALF: Final = math.nextafter(0.5, 0.0)

_Scalar = TypeVar("_Scalar", bound=np.generic)


def grown(array: npt.NDArray[_Scalar], capacity: int, fill: Any = 0) -> npt.NDArray[_Scalar]:  # noqa: ANN401  (a fill value of any dtype)
    """A copy whose last axis has `capacity` places, new ones holding `fill`."""
    wider = np.full((*array.shape[:-1], capacity), fill, dtype=array.dtype)
    wider[..., : array.shape[-1]] = array
    return wider


# One formula serves one row and all: on Python numbers an operation costs 0.05 µs, on an array of length 1 0.7 µs.

#: What a formula is computed for: one row, some rows, or all.
Where = int | Rows | slice
#: An amount of one row, or of several.
Amount = int | Amounts
#: The same for fractions: float64.
Fractions = npt.NDArray[np.floating[Any]]
Fraction = float | Fractions
#: The same for what is so or is not.
Truth = bool | Mask


def at(column: Amounts | Counts, rows: Where) -> Amount:
    """The column's amount at one row, its amounts at some, a view of it for a slice."""
    if isinstance(rows, int):
        return column.item(rows)
    some: Amounts = column[rows]  # type: ignore[assignment]  # 32 bits mix with 64 as 64 do
    return some


def at_least(lowest: int, amount: Amount) -> Amount:
    """The amount, raised to `lowest` where it is less."""
    return np.maximum(amount, lowest) if isinstance(amount, np.ndarray) else max(amount, lowest)


def lesser(one: Amount, other: Amount) -> Amount:
    """The smaller of two amounts, row by row."""
    return np.minimum(one, other) if isinstance(one, np.ndarray) else min(one, other)


def whole(number: Fraction) -> Amount:
    """The number without what stands behind its point, as Go's int64() cuts it."""
    return number.astype(np.int64) if isinstance(number, np.ndarray) else int(number)


def nearest(number: float) -> int:
    """What `rounded` gives for one number. Half the cost of asking which of both it is."""
    return int(number + _BELOW_HALF)


def rounded(numbers: Fractions) -> Amounts:
    """
    The nearest integers, halves up; for numbers that are not negative the same as Go's math.Round.

    Adding 0.5 itself would round the largest number below 0.5 up.
    """
    return (numbers + _BELOW_HALF).astype(np.int64)

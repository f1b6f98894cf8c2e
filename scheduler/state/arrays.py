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
#: Per node row 0, or the number of the status that refuses it.
Codes = npt.NDArray[np.integer[Any]]
#: Indices of node rows, or of domains.
Rows = npt.NDArray[np.intp]

#: The largest number below 0.5.
_BELOW_HALF: Final = math.nextafter(0.5, 0.0)

_Scalar = TypeVar("_Scalar", bound=np.generic)


def grown(array: npt.NDArray[_Scalar], capacity: int, fill: Any = 0) -> npt.NDArray[_Scalar]:  # noqa: ANN401  (a fill value of any dtype)
    """Return a copy whose last axis has `capacity` places, new ones holding `fill`."""
    wider = np.full((*array.shape[:-1], capacity), fill, dtype=array.dtype)
    wider[..., : array.shape[-1]] = array
    return wider


#: float64 per node row, or per domain.
Fractions = npt.NDArray[np.floating[Any]]

# One formula serves one row and many: an operation costs 0.05 µs on a Python number and 0.7 to 1.3 µs on the shortest
# array, and most decisions compute the scores of one row again. 80 µs less for each decision at 5,000 nodes.

#: What a formula is computed for: one row, some rows, or a slice of them.
Where = int | Rows | slice
#: An amount of one row, or of several.
Amount = int | Amounts
Fraction = float | Fractions
Truth = bool | Mask


def amount_at(column: Amounts | Counts, where: Where) -> Amount:
    """Return the column's amount at one row, or at several."""
    if isinstance(where, int):
        return column.item(where)
    some: Amounts = column[where]  # type: ignore[assignment]  # 32 bits mix with 64 as 64 do
    return some


def at_least(lowest: int, amount: Amount) -> Amount:
    """Return the amount, raised to `lowest` where it is less."""
    return np.maximum(amount, lowest) if isinstance(amount, np.ndarray) else max(amount, lowest)


def lesser(one: Amount, other: Amount) -> Amount:
    """Return the smaller of two amounts, row by row."""
    return np.minimum(one, other) if isinstance(one, np.ndarray) else min(one, other)


def truncated(number: Fraction) -> Amount:
    """Return the number without what stands behind its point, as Go's int64() cuts it."""
    return number.astype(np.int64) if isinstance(number, np.ndarray) else int(number)


def rounded(numbers: Fractions) -> Amounts:
    """
    Return the nearest integers, halves up; for numbers that are not negative the same as Go's math.Round.

    Adding 0.5 itself would round the largest number below 0.5 up.
    """
    return (numbers + _BELOW_HALF).astype(np.int64)

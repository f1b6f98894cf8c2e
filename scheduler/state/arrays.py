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
    """A copy whose last axis has `capacity` places, new ones holding `fill`."""
    wider = np.full((*array.shape[:-1], capacity), fill, dtype=array.dtype)
    wider[..., : array.shape[-1]] = array
    return wider


#: float64 per node row, or per domain.
Fractions = npt.NDArray[np.floating[Any]]
#: Some rows, or all.
Where = Rows | slice


def rounded(numbers: Fractions) -> Amounts:
    """
    The nearest integers, halves up; for numbers that are not negative the same as Go's math.Round.

    Adding 0.5 itself would round the largest number below 0.5 up.
    """
    return (numbers + _BELOW_HALF).astype(np.int64)

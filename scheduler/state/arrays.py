"""Array types of the columnar state, and growing them. A row is a node; arrays are views of the first `n_rows` rows."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

#: bool per node row.
Mask = npt.NDArray[np.bool_]
#: int32 per node row: numbers of pods.
Counts = npt.NDArray[np.int32]
#: int64 per node row: amounts of a resource, scores, sums over a domain.
Amounts = npt.NDArray[np.int64]
#: Indices of node rows, or of domains.
Rows = npt.NDArray[np.intp]

_Scalar = TypeVar("_Scalar", bound=np.generic)


def grown(array: npt.NDArray[_Scalar], capacity: int, fill: Any = 0) -> npt.NDArray[_Scalar]:  # noqa: ANN401  (a fill value of any dtype)
    """A copy whose last axis has `capacity` places, new ones holding `fill`."""
    wider = np.full((*array.shape[:-1], capacity), fill, dtype=array.dtype)
    wider[..., : array.shape[-1]] = array
    return wider

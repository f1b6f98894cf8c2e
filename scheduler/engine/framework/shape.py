"""The piecewise linear functions of the configuration that turn a share in use into a score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduler.engine.model.wire import Int32, Wire
from scheduler.engine.state.arrays import Amount, Amounts, maximum, truncated

#: Factor from the configured scores of a shape, 0 to 10, to 0 to 100.
_SHAPE_FACTOR: Final = 10


class ShapePoint(Wire, frozen=True):
    """One point of a piecewise linear function: `score` (0 to 10) at `utilization` (0 to 100 percent)."""

    utilization: Int32 = 0
    score: Int32 = 0


def shape_table(shape: Sequence[ShapePoint]) -> Amounts:
    """
    Return the piecewise linear function through the points, scaled to 0..100, at each percent: int64, shape (101,).

    Go's division truncates towards zero, so a falling line is rounded up, unlike with `//`.
    Source: plugins/helper/shape_score.go, BuildBrokenLinearFunction (kubernetes 1.36).
    """
    return np.array([_height(shape, utilization) for utilization in range(101)], dtype=np.int64)


def _height(shape: Sequence[ShapePoint], utilization: int) -> int:
    for before, after in zip((None, *shape), shape, strict=False):
        if utilization <= after.utilization:
            if before is None:
                return _SHAPE_FACTOR * after.score
            rise = _SHAPE_FACTOR * (after.score - before.score) * (utilization - before.utilization)
            run = after.utilization - before.utilization
            climbed = rise // run if rise >= 0 else -(-rise // run)
            return _SHAPE_FACTOR * before.score + climbed
    return _SHAPE_FACTOR * shape[-1].score


def rounded_quotient(total: Amount, weights: Amount) -> Amount:
    """Return total / weights rounded, halves up; 0 if the weights are 0."""
    quotient = total / maximum(weights, 1)
    below = truncated(quotient)
    return below + (quotient - below >= 0.5)

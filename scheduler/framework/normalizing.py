"""
Normalising raw scores to 0..100.

Source: plugins/helper/normalize_score.go, plugins/interpodaffinity/scoring.go (kubernetes 1.36).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from scheduler.framework.interface import Feasible
from scheduler.state.arrays import Amounts, Scores

#: Upstream's MaxNodeScore.
MAX_NODE_SCORE: Final = 100
#: Sums that a table of scores has at most: 8 KB.
_TABLE_SIZE: Final = 4096


def default_normalized(raw: Scores, feasible: Feasible, *, reverse: bool) -> Scores:
    """
    Return scores scaled so that the best feasible node has 100, turned around if `reverse`.

    The minimum is not subtracted; raw scores are not negative. int16 array of shape (n_rows,). O(n_rows).
    """
    highest = max(0, feasible.highest(raw))
    if highest == 0:
        return np.full(len(raw), MAX_NODE_SCORE if reverse else 0, dtype=np.int16)
    scaled = (MAX_NODE_SCORE * raw // highest).astype(np.int16)
    return MAX_NODE_SCORE - scaled if reverse else scaled


def min_max_normalized(raw: Amounts, feasible: Feasible) -> Scores:
    """
    Return scores scaled so that the lowest raw score of a feasible node gives 0 and the highest 100; 0 if all are one.

        int64(100.0 * (float64(raw - lowest) / float64(highest - lowest)))

    Division first, truncated: 29 of 100 gives 28, not 29. int16 array of shape (n_rows,). 15 µs at 5,000 rows.
    Source: interpodaffinity/scoring.go, NormalizeScore (kubernetes 1.36).
    """
    lowest = feasible.lowest(raw)
    span = feasible.highest(raw) - lowest
    if not span:
        return np.zeros(len(raw), dtype=np.int16)
    # An infeasible row may lie outside the span: "clip" keeps it within.
    if span < _TABLE_SIZE:
        return _scores_up_to(span).take(raw - lowest, mode="clip")
    return (MAX_NODE_SCORE * (np.clip(raw - lowest, 0, span) / span)).astype(np.int16)


@lru_cache(maxsize=64)
def _scores_up_to(span: int) -> Scores:
    """Return the scores of sums from 0 to `span` above the lowest. A look-up costs a third of the division."""
    return (MAX_NODE_SCORE * (np.arange(span + 1) / span)).astype(np.int16)

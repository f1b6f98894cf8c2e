"""
Normalising raw scores to 0..100.

Source: plugins/helper/normalize_score.go (kubernetes 1.36).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from scheduler.framework.interface import FeasibleNodes
from scheduler.state.arrays import Scores

#: Upstream's MaxNodeScore.
MAX_NODE_SCORE: Final = 100


def default_normalized(raw: Scores, feasible: FeasibleNodes, *, reverse: bool) -> Scores:
    """
    Return scores scaled so that the highest raw score of a feasible node gives 100; with `reverse`, it gives 0.

    Raw scores must not be negative; the lowest is not subtracted. int16 array of shape (n_rows,). O(n_rows).
    """
    highest = max(0, feasible.highest(raw))
    if highest == 0:
        return np.full(len(raw), MAX_NODE_SCORE if reverse else 0, dtype=np.int16)
    scaled = (MAX_NODE_SCORE * raw // highest).astype(np.int16)
    return MAX_NODE_SCORE - scaled if reverse else scaled

"""
Normalising raw scores to 0..100.

Source: plugins/helper/normalize_score.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from scheduler.engine.framework.interface import FeasibleNodes
from scheduler.engine.state.arrays import Scores

#: Upstream's MaxNodeScore.
MAX_NODE_SCORE: Final = 100


class RawScores:
    """A scorer of known raw scores, and the function that brings them to 0..100."""

    __slots__ = ("_normalize", "_raw")

    def __init__(self, raw: Scores, normalize: Callable[[Scores], Scores]) -> None:
        self._raw = raw
        self._normalize = normalize

    def raw(self) -> Scores:
        """Return the raw scores."""
        return self._raw

    def normalized(self, raw: Scores) -> Scores:
        """Return the scores from 0 to 100."""
        return self._normalize(raw)


def default_normalized(raw: Scores, feasible: FeasibleNodes, *, reverse: bool) -> Scores:
    """
    Return scores scaled so that the highest raw score of a feasible node gives 100; with `reverse`, it gives 0.

    Raw scores must not be negative; the lowest is not subtracted.
    """
    highest = max(0, feasible.highest(raw))
    if highest == 0:
        return np.full(len(raw), MAX_NODE_SCORE if reverse else 0, dtype=np.int16)
    scaled = (MAX_NODE_SCORE * raw // highest).astype(np.int16)
    return MAX_NODE_SCORE - scaled if reverse else scaled

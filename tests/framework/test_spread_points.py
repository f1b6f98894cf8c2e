"""Scores of soft spread that come again, and nodes that are of another kind by then."""

import numpy as np

from scheduler.framework.interface import Feasible
from scheduler.framework.recalling import Recalled
from scheduler.framework.spread_points import Kinds, emptiest_first
from scheduler.state.arrays import Scores
from scheduler.state.row_log import RowLog


def test_the_array_that_comes_again_is_of_now() -> None:
    moved = RowLog()
    before: Recalled[Scores] = Recalled(moved)
    scored = Feasible(np.ones(4, dtype=np.bool_))
    which = np.array([0, 0, 1, 1])
    first = emptiest_first(Kinds([10, 20], which, [0, 1], before), scored)
    assert first.tolist() == [100, 100, 50, 50]
    assert emptiest_first(Kinds([20, 10], which, [0, 1], before), scored).tolist() == [50, 50, 100, 100]
    which[1] = 1
    moved.note(1)
    again = emptiest_first(Kinds([10, 20], which, [0, 1], before), scored)
    assert again is first
    assert again.tolist() == [100, 50, 50, 50]


def test_kinds_of_nodes_that_are_not_scored_have_scores_too() -> None:
    """Of however few or many kinds, from 0 to 100: sums of them fit where sums of scores do."""
    scored = Feasible(np.array([True, True, False, False]))
    for n_more in (0, 60):
        points = [10, 20, 0, 90_000, *[20] * n_more]
        asked = points if n_more == 0 else np.array(points)
        scores = emptiest_first(Kinds(asked, np.array([0, 1, 2, 3]), [0, 1], None), scored)
        assert scores[:2].tolist() == [100, 50]
        assert scores.min() >= 0
        assert scores.max() <= 100

"""Scores of soft spread that come again, and nodes that are of another kind by then."""

import numpy as np

from scheduler.framework.interface import Feasible
from scheduler.framework.recalling import Recalled
from scheduler.framework.spread_points import Kinds, emptiest_first, emptiest_kinds_first
from scheduler.state.arrays import Rows, Scores
from scheduler.state.row_log import RowLog


def _kinds(points: list[int], which: Rows, occurring: tuple[int, ...], before: Recalled[Scores]) -> Kinds:
    return Kinds(np.array(points), which, occurring, before)


def test_the_array_that_comes_again_is_of_now() -> None:
    moved = RowLog()
    before: Recalled[Scores] = Recalled(moved)
    scored = Feasible(np.ones(4, dtype=np.bool_))
    which = np.array([0, 0, 1, 1])
    one, other = (_kinds(points, which, (0, 1), before) for points in ([10, 20], [20, 10]))
    first = emptiest_first(one, scored)
    assert first.tolist() == [100, 100, 50, 50]
    assert emptiest_first(other, scored).tolist() == [50, 50, 100, 100]
    which[1] = 1
    moved.note(1)
    again = emptiest_first(one, scored)
    assert again is first
    assert again.tolist() == [100, 50, 50, 50]


def test_the_same_scores_of_other_kinds_are_others() -> None:
    """A node that is scored by now may be of a kind that nobody was of."""
    before: Recalled[Scores] = Recalled(RowLog())
    scored = Feasible(np.array([True, True, False]))
    points, which = [10, 20, 10], np.array([0, 1, 2])
    emptiest_first(_kinds(points, which, (0, 1), before), scored)
    scored.set(0, fits=False)
    scored.set(2, fits=True)
    scores = emptiest_first(_kinds(points, which, (2, 1), before), scored)
    assert scores[1:].tolist() == [50, 100]


def test_kinds_of_nodes_that_are_not_scored_have_scores_too() -> None:
    """From 0 to 100: sums of them fit where sums of scores do."""
    scored = Feasible(np.array([True, True, False, False]))
    asked = _kinds([10, 20, 0, 90_000], np.array([0, 1, 2, 3]), (0, 1), Recalled(RowLog()))
    scores = emptiest_first(asked, scored)
    assert scores[:2].tolist() == [100, 50]
    assert scores.min() >= 0
    assert scores.max() <= 100


def test_kinds_one_by_one_get_what_all_get_together():
    """Where all have no points too, and where the highest are no multiple of the lowest."""
    for points in ([10, 20, 17], [0, 0, 0], [0, 3, 7], [90_000, 89_999, 1]):
        which = np.array([0, 1, 2, 1])
        scores = emptiest_first(_kinds(points, which, (0, 1, 2), Recalled(RowLog())), Feasible(which >= 0))
        one_by_one = emptiest_kinds_first(points, (0, 1, 2))
        assert [one_by_one[kind] for kind in which.tolist()] == scores.tolist()

"""Feasible nodes as scoring sees them, and upstream's formula of normalisation."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler.engine.framework.interface import FeasibleNodes
from scheduler.engine.framework.normalizing import default_normalized


@pytest.mark.parametrize(
    ("mask", "lowest", "highest"),
    [
        pytest.param([True, True, True], -4, 9, id="all"),
        pytest.param([True, False, True], -4, 3, id="the largest is of a node that is not feasible"),
        pytest.param([True, True, False], 3, 9, id="the smallest is"),
        pytest.param([True, False, False], 3, 3, id="both are"),
    ],
)
def test_amounts_of_nodes_that_are_not_feasible_do_not_count(
    mask: list[bool], lowest: int, highest: int
) -> None:
    feasible, amounts = FeasibleNodes(np.array(mask)), np.array([3, 9, -4])
    assert feasible.n == sum(mask)
    assert (feasible.lowest(amounts), feasible.highest(amounts)) == (lowest, highest)


@pytest.mark.parametrize(
    ("mask", "counts"),
    [
        pytest.param([True, True, True], [1, 0, 2, 0], id="all"),
        pytest.param([True, False, True], [1, 0, 1, 0], id="some"),
    ],
)
def test_feasible_nodes_are_counted_by_domain(mask: list[bool], counts: list[int]) -> None:
    assert FeasibleNodes(np.array(mask)).n_per_domain(np.array([0, 2, 2]), 4).tolist() == counts


@pytest.mark.parametrize(
    ("raw", "reverse", "scores"),
    [
        pytest.param([2, 1, 4], False, [50, 25, 100], id="the highest gives 100"),
        pytest.param([2, 1, 3], False, [66, 33, 100], id="cut, not rounded"),
        pytest.param([2, 1, 4], True, [50, 75, 0], id="turned around"),
        pytest.param([2, 1, 3], True, [34, 67, 0], id="turned around after it was cut"),
        pytest.param([0, 0, 0], False, [0, 0, 0], id="nothing"),
        pytest.param([0, 0, 0], True, [100, 100, 100], id="nothing, turned around"),
    ],
)
def test_scores_are_shares_of_the_highest(raw: list[int], reverse: bool, scores: list[int]) -> None:
    everywhere = FeasibleNodes(np.ones(3, dtype=np.bool_))
    assert default_normalized(np.array(raw), everywhere, reverse=reverse).tolist() == scores


def test_a_higher_share_of_a_node_that_is_not_feasible_is_not_looked_at() -> None:
    feasible = FeasibleNodes(np.array([True, True, False]))
    assert default_normalized(np.array([2, 1, 1000]), feasible, reverse=False).tolist()[:2] == [100, 50]

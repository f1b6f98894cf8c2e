"""Feasible nodes as scoring sees them, and upstream's formula of normalisation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.framework.interface import FeasibleNodes, default_normalized
from tests.reference import arithmetic


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


_NODES = st.lists(st.tuples(st.integers(0, 1000), st.booleans())).filter(
    lambda some: any(fits for _, fits in some)
)


@given(nodes=_NODES, reverse=st.booleans())
def test_scores_are_shares_of_the_highest_of_a_feasible_node(
    nodes: list[tuple[int, bool]], *, reverse: bool
) -> None:
    raw, mask = (np.array(column) for column in zip(*nodes, strict=True))
    found = default_normalized(raw, FeasibleNodes(mask), reverse=reverse)
    feasible = {f"n{row}": score for row, (score, fits) in enumerate(nodes) if fits}
    assert found[mask].tolist() == list(arithmetic.normalised(feasible, reverse=reverse).values())

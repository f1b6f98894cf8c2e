"""Domains of feasible nodes, while these come and go one by one and all over."""

from random import Random

import numpy as np
import pytest

from scheduler.framework.feasible_domains import FeasibleDomains
from scheduler.framework.interface import Feasible
from scheduler.state.arrays import Mask
from scheduler.state.columns import ABSENT, LabelColumn

N_ROWS = 60


def _looked_up(column: LabelColumn, mask: Mask) -> list[int]:
    return sorted({int(column.ids[row]) for row in range(N_ROWS) if mask[row]})


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("n_values", [2, 7, 40])
def test_they_are_those_of_a_look_at_every_node(seed: int, n_values: int) -> None:
    """More nodes turn than are remembered, and some of them between two looks."""
    chance = Random(seed)
    values = [None if chance.random() < 0.1 else f"v{chance.randrange(n_values)}" for _ in range(N_ROWS)]
    column = LabelColumn.of("zone", values, N_ROWS)
    feasible = Feasible(np.array([chance.random() < 0.3 for _ in range(N_ROWS)]))
    domains = FeasibleDomains(column, feasible)
    for _ in range(1200):
        if chance.random() < 0.01:
            mask = np.array([chance.random() < chance.random() for _ in range(N_ROWS)])
            feasible.become(mask, int(mask.sum()))
        else:
            row = chance.randrange(N_ROWS)
            feasible.set(row, fits=not feasible.mask[row])
        if chance.random() < 0.4:
            assert domains.ids().tolist() == _looked_up(column, feasible.mask)


def test_the_array_is_the_same_while_the_domains_are() -> None:
    """Whoever has derived something from them looks at nothing else."""
    column = LabelColumn.of("zone", ["a", "a", "b", None], 4)
    feasible = Feasible(np.array([True, True, True, False]))
    domains = FeasibleDomains(column, feasible)
    before = domains.ids()
    feasible.set(0, fits=False)
    assert domains.ids() is before
    feasible.become(np.array([True, False, True, False]), 2)
    assert domains.ids() is before
    feasible.set(2, fits=False)
    feasible.set(2, fits=True)
    assert domains.ids() is before
    feasible.set(3, fits=True)
    assert domains.ids().tolist() == [ABSENT, 1, 2]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_values_are_counted_on_feasible_nodes_alone(share: float) -> None:
    chance = Random(1)
    for _ in range(50):
        values = np.array([chance.randrange(5) for _ in range(N_ROWS)])
        feasible = Feasible(np.array([chance.random() < share for _ in range(N_ROWS)]))
        found = feasible.count(values, 7)
        assert found.tolist() == [np.count_nonzero(values[feasible.mask] == value) for value in range(7)]

"""Sums stretched again and again, beside upstream's formula for every node."""

from random import Random

import numpy as np
import pytest

from scheduler.framework.interface import Feasible
from scheduler.framework.normalizing import Stretched
from scheduler.state.arrays import Amounts, Mask, Scores
from scheduler.state.columns import LabelColumn
from scheduler.state.sums import InDomains

N_ROWS = 40


def _wanted(raw: Amounts, mask: Mask) -> dict[int, int]:
    """Source: interpodaffinity/scoring.go, NormalizeScore (kubernetes 1.36)."""
    sums = {row: int(raw[row]) for row in range(N_ROWS) if mask[row]}
    lowest, highest = min(sums.values()), max(sums.values())
    span = float(highest - lowest)
    return {row: int(100.0 * (float(one - lowest) / span)) if span else 0 for row, one in sums.items()}


def _found(scores: Scores, mask: Mask) -> dict[int, int]:
    return {row: int(scores[row]) for row in range(N_ROWS) if mask[row]}


def _turned(chance: Random, feasible: Feasible) -> list[int]:
    """A node fills up or has room again, or others are feasible all over; rows to which pods came or that they left."""
    row = chance.randrange(N_ROWS)
    if chance.random() < 0.02:
        mask = np.array([chance.random() < 0.8 for _ in range(N_ROWS)])
        mask[:2] = True
        feasible.become(mask, int(mask.sum()))
    elif chance.random() < 0.2 and row > 1:
        feasible.set(row, fits=not feasible.mask[row])
        return [row]
    return []


@pytest.mark.parametrize("seed", range(10))
def test_nodes_one_by_one(seed: int) -> None:
    """Pods pile up on few nodes, as with preferred affinity, or shun those that have some, and sometimes leave."""
    chance = Random(seed)
    weight = chance.choice([-3, 2, 50])
    raw = np.full(N_ROWS, chance.choice([0, 7]), dtype=np.int64)
    feasible = Feasible(np.ones(N_ROWS, dtype=np.bool_))
    stretched = Stretched(feasible)
    scores = stretched.of(raw)
    for _ in range(400):
        rows = _turned(chance, feasible)
        for _ in range(chance.choice([0, 1, 1, 1, 2])):
            row = chance.randrange(chance.choice([3, N_ROWS]))
            raw[row] += weight if chance.random() < 0.7 else -weight
            rows.append(row)
        before, at_most = scores, scores.copy()
        scores, changed = stretched.again(raw, list(dict.fromkeys(rows)))
        assert _found(scores, feasible.mask) == _wanted(raw, feasible.mask)
        if scores is before:
            others = [row for row in range(N_ROWS) if row not in changed]
            assert scores[others].tolist() == at_most[others].tolist()


def test_nodes_that_are_not_above_any_more_are_not_counted_among_those_that_are() -> None:
    """Preferred nodes fill up one after the other: there are never many, and no array is made."""
    raw = np.zeros(N_ROWS, dtype=np.int64)
    raw[0] = 5
    stretched = Stretched(Feasible(np.ones(N_ROWS, dtype=np.bool_)))
    scores = stretched.of(raw)
    for row in range(1, N_ROWS):
        for amount in (7, 0):
            raw[row] = amount
            assert stretched.again(raw, [row])[0] is scores


@pytest.mark.parametrize("seed", range(6))
def test_domains(seed: int) -> None:
    """Infeasible domains may have less than the lowest sum, and more than the highest."""
    chance = Random(seed)
    values = [None if chance.random() < 0.2 else chance.choice("abcd") for _ in range(N_ROWS)]
    column = LabelColumn.of("zone", values, N_ROWS)
    amounts = np.zeros(column.n_ids, dtype=np.int64)
    feasible = Feasible(np.array([value in (None, "a", "b") for value in values]))
    stretched = Stretched(feasible)
    for _ in range(300):
        if chance.random() < 0.3:
            row = chance.randrange(N_ROWS)
            if feasible.n > 2 or not feasible.mask[row]:
                feasible.set(row, fits=not feasible.mask[row])
        amounts[chance.randrange(1, column.n_ids)] += chance.choice([-5, 1, 1, 2])
        scores = stretched.in_domains(InDomains(amounts, column))
        raw = amounts.take(column.ids[:N_ROWS])
        assert _found(scores, feasible.mask) == _wanted(raw, feasible.mask)


def test_another_topology_key() -> None:
    """The last pods that were counted by zone are gone, those by rack are left: other nodes share a sum."""
    zones = LabelColumn.of("zone", ["a", "a", "b", "b"], 4)
    racks = LabelColumn.of("rack", ["r", "s", "t", "s"], 4)
    stretched = Stretched(Feasible(np.ones(4, dtype=np.bool_)))
    by_zone, by_rack = np.array([0, 5, 9]), np.array([0, 5, 9, 7])
    assert stretched.in_domains(InDomains(by_zone, zones)).tolist() == [0, 0, 100, 100]
    assert stretched.in_domains(InDomains(by_rack, racks)).tolist() == [0, 100, 50, 100]
    by_rack[3] = 13
    assert stretched.in_domains(InDomains(by_rack, racks)).tolist() == [0, 50, 100, 50]
    assert stretched.in_domains(InDomains(by_zone, zones)).tolist() == [0, 0, 100, 100]

"""Who leads by kinds of nodes, followed row by row, against every node's total worked out anew."""

from collections.abc import Collection, Mapping
from random import Random

import numpy as np
import pytest

from scheduler.core.kind_totals import KindTotals
from scheduler.framework.by_kind import MAX_KINDS, ByKind
from scheduler.state.arrays import Rows

_N_ROWS = 40


class _Drawn:
    """Scores drawn for just the kinds that are asked for, as a scorer has none of others."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.of: dict[int, int] = {}

    def scores(self, kinds: Collection[int]) -> Mapping[int, int]:
        self.of = {kind: self._chance.choice([0, 50, 99, 100]) for kind in kinds}
        return self.of


def _check(kept: KindTotals, sums: list[int], which: Rows, passed: list[bool], chance: Random) -> None:
    weight, drawn = chance.choice([1, 2, 7]), _Drawn(chance)
    scores = ByKind(which, drawn.scores)
    leaders = kept.leaders(scores, weight)
    assert set(drawn.of) == {which.item(row) for row in range(_N_ROWS) if passed[row]}
    totals = {row: sums[row] + weight * drawn.of[which.item(row)] for row in range(_N_ROWS) if passed[row]}
    assert leaders.total == max(totals.values())
    rows = [row for row, total in totals.items() if total == leaders.total]
    assert [leaders.at(index) for index in range(leaders.n)] == rows
    assert leaders.first(3) == rows[:3]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64])
def test_leaders_are_those_of_a_recount(dtype: type[np.signedinteger], seed: int) -> None:
    """Sums may be negative, kinds die out and come back, and who does not pass is of any kind whatever."""
    chance = Random(seed)
    sums = np.array([chance.randrange(-3, 3) for _ in range(_N_ROWS)], dtype=dtype)
    which = np.array([chance.randrange(4) for _ in range(_N_ROWS)])
    mask = np.array([chance.random() < 0.8 for _ in range(_N_ROWS)])
    kept = KindTotals(sums, which, mask)
    few = chance.choice([1, 3, MAX_KINDS])
    for _ in range(300):
        rows = [chance.randrange(_N_ROWS) for _ in range(chance.randrange(4))]
        for row in rows:
            mask[row] = chance.random() < 0.7
            which[row] = chance.randrange(few) if mask[row] else chance.randrange(5 * MAX_KINDS)
            sums[row] = chance.choice([-300, -1, 0, 1, 1, 2, 300])
        kept.follow(sums, rows)
        if mask.any():
            _check(kept, sums.tolist(), which, mask.tolist(), chance)

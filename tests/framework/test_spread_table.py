"""The table of soft spread, followed pod by pod and node by node, against every node's points worked out anew."""

import math
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from scheduler.framework.by_kind import ByKind
from scheduler.framework.feasible_domains import FeasibleDomains
from scheduler.framework.interface import Feasible
from scheduler.framework.spread_constraints import Constraint
from scheduler.framework.spread_counts import Counted
from scheduler.framework.spread_points import emptiest_first
from scheduler.framework.spread_table import SpreadTable
from scheduler.model.labels import EVERYTHING
from scheduler.model.terms import HOSTNAME_KEY
from scheduler.state.columns import LabelColumn
from scheduler.state.row_counts import RowCounts
from scheduler.state.row_log import RowLog

_N_ROWS = 60
_N_ZONES = 3
_SKEW_OF_NODES, _SKEW_OF_DOMAINS = 3, 5


def _counted(column: LabelColumn, counts: RowCounts, max_skew: int) -> Counted:
    constraint = Constraint(max_skew, column.key, EVERYTHING, None, 1, True, True)
    return Counted(constraint, column, counts, np.ones(_N_ROWS, dtype=np.bool_), selects=True)


def _expected(pods: list[int], zones: list[int], mask: list[bool], *, by_node: bool) -> dict[int, int]:
    """The score of every scored node, by scoring.go to the letter."""
    scored = [row for row in range(_N_ROWS) if mask[row]]
    n_domains = len({zones[row] for row in scored})
    points = {}
    for row in scored:
        in_domain = sum(pods[other] for other in range(_N_ROWS) if zones[other] == zones[row])
        total = pods[row] * math.log(len(scored) + 2) + float(_SKEW_OF_NODES - 1) if by_node else 0.0
        total += in_domain * math.log(n_domains + 2) + float(_SKEW_OF_DOMAINS - 1)
        points[row] = math.floor(Fraction(total) + Fraction(1, 2))
    lowest, highest = min(points.values()), max(points.values())
    return {row: 100 * (highest + lowest - one) // highest if highest else 100 for row, one in points.items()}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("by_node", [False, True])
def test_the_scores_are_those_of_a_recount(*, by_node: bool, seed: int) -> None:
    """Also where nodes have so many pods that the points are an array, or more than there is a table for."""
    chance = Random(seed)
    pods, zones = [0] * _N_ROWS, [row % _N_ZONES for row in range(_N_ROWS)]
    counts, moved = RowCounts(), RowLog()
    column = LabelColumn.of("zone", [str(zone) for zone in zones], _N_ROWS)
    hostnames = LabelColumn.of(HOSTNAME_KEY, [str(row) for row in range(_N_ROWS)], _N_ROWS)
    nodes = _counted(hostnames, counts, _SKEW_OF_NODES).constraint if by_node else None
    table = SpreadTable(_counted(column, counts, _SKEW_OF_DOMAINS), nodes, moved)
    feasible = Feasible(np.ones(_N_ROWS, dtype=np.bool_))
    domains = FeasibleDomains(column, feasible)
    n_tables, most = 0, 2
    for _ in range(400):
        rows = [chance.randrange(_N_ROWS) for _ in range(chance.randrange(4))]
        if chance.random() < 0.03:
            rows, most = list(range(_N_ROWS)), chance.choice([1, 2, 5, 12, 16])
        for row in rows:
            after = chance.randrange(most + 1)
            for _ in range(abs(after - pods[row])):
                counts.add(row, 1 if after > pods[row] else -1)
                moved.note(row)
            pods[row] = after
        if chance.random() < 0.3:
            row = chance.randrange(_N_ROWS)
            if feasible.n > 1 or not feasible.mask[row]:
                feasible.set(row, fits=not feasible.mask[row])
        elif chance.random() < 0.1:
            share, closed = chance.random(), chance.randrange(2 * _N_ZONES)
            mask = np.array([zone != closed and chance.random() < share for zone in zones])
            mask[chance.randrange(_N_ROWS)] = True
            feasible.become(mask, int(mask.sum()))
        if chance.random() < 0.03:
            kinds = table.kinds(feasible, domains.ids())
        else:
            kinds = table.again(feasible, domains.ids(), list(dict.fromkeys(rows)))
        if kinds is not None:
            n_tables += 1
            if isinstance(kinds, ByKind):
                kinds.among(feasible.kinds(kinds.which))
                scores = kinds.on_nodes()
            else:
                scores = emptiest_first(kinds, feasible)
            expected = _expected(pods, zones, feasible.mask.tolist(), by_node=by_node)
            assert {row: scores.item(row) for row in expected} == expected
            assert scores.min() >= 0
            assert scores.max() <= 100
    assert n_tables > 100

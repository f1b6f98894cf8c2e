"""The arithmetic of the plugins on arrays small enough to check by hand."""

import math

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.engine.framework.interface import FeasibleNodes
from scheduler.engine.framework.shape import ShapePoint, shape_table
from scheduler.engine.framework.status import NodeStatuses
from scheduler.engine.plugins.inter_pod_affinity.scoring import min_max_normalized
from scheduler.engine.plugins.node_resources.balanced_allocation import balance, deviation, used_fraction
from scheduler.engine.state.arrays import Amounts, Mask, rounded
from tests.reference import arithmetic
from tests.reference.balanced_allocation import balance as reference_balance


def _mask(bits: str) -> Mask:
    return np.array([bit == "x" for bit in bits], dtype=np.bool_)


def _amounts(*values: int) -> Amounts:
    return np.array(values, dtype=np.int64)


def test_a_node_may_be_short_of_more_resources_than_a_machine_word_has_bits():
    reasons = [f"Insufficient r{index}" for index in range(100)]
    statuses = NodeStatuses.combined([_mask("x-")] * 99 + [_mask("-x")], _mask("--"), reasons)
    first, second = statuses.at(0), statuses.at(1)
    assert first is not None
    assert second is not None
    assert (list(first.reasons), list(second.reasons)) == (reasons[:99], reasons[99:])


SHAPES = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 10)), min_size=1, unique_by=lambda point: point[0]
)


@given(shape=SHAPES)
def test_a_shape_is_the_broken_line_cut_towards_zero(shape: list[tuple[int, int]]):
    points = sorted(shape)
    stretched = [(utilization, 10 * score) for utilization, score in points]
    table = shape_table([ShapePoint(*point) for point in points])
    assert table.tolist() == [arithmetic.broken_linear(stretched, at) for at in range(101)]


SHARES = st.lists(
    st.lists(st.tuples(st.integers(0, 5000), st.sampled_from((0, 1, 3, 1000, 4096))), min_size=3, max_size=3),
    max_size=5,
)


#: Equal shares, whose sum is rounded.
@example(shares=[[(4, 5)] * 3, [(4, 5)] * 3, [(8, 10)] * 3])
@given(shares=SHARES)
def test_balance_is_the_reference_s_to_the_last_bit(shares: list[list[tuple[int, int]]]):
    """`shares`: per resource (used, allocatable) on three nodes; an allocatable of 0 leaves the resource out."""
    columns = [(_amounts(*(u for u, _ in row)), _amounts(*(a for _, a in row))) for row in shares]
    fractions = [used_fraction(used, allocatable) for used, allocatable in columns]
    has = [allocatable > 0 for _, allocatable in columns]
    found = np.broadcast_to(balance(deviation(fractions, has)), 3)
    for node in range(3):
        kept = [min(1.0, row[node][0] / row[node][1]) for row in shares if row[node][1]]
        assert found[node] == reference_balance(kept)
        alone = [used_fraction(*row[node]) for row in shares]
        assert balance(deviation(alone, [row[node][1] > 0 for row in shares])) == found[node]


HALVES = st.integers(0, 2**40).map(lambda number: number + 0.5)
NEAR_HALVES = st.builds(math.nextafter, HALVES, st.sampled_from((-math.inf, math.inf)))


@given(points=st.lists(st.one_of(st.floats(0, 2**40), HALVES, NEAR_HALVES), min_size=1))
@example(points=[math.nextafter(0.5, 0.0)])
def test_points_of_spread_are_rounded_as_the_reference_rounds_them(points: list[float]):
    assert rounded(np.array(points)).tolist() == [arithmetic.rounded(one) for one in points]


SUMS = st.one_of(
    st.integers(-50, 50), st.integers(-10_000, 10_000), st.integers(4000, 4200), st.integers(-(2**40), 2**40)
)


@given(
    nodes=st.lists(st.tuples(SUMS, st.booleans()), min_size=1).filter(lambda some: any(f for _, f in some))
)
def test_min_max_is_upstreams_formula_on_every_feasible_node(nodes: list[tuple[int, bool]]) -> None:
    """Source: interpodaffinity/scoring.go, NormalizeScore (kubernetes 1.36). Others may have any sum."""
    raw, mask = (np.array(column) for column in zip(*nodes, strict=True))
    found = min_max_normalized(raw, FeasibleNodes(mask))
    sums = [amount for amount, fits in nodes if fits]
    lowest, span = min(sums), float(max(sums) - min(sums))
    wanted = [int(100.0 * (float(one - lowest) / span)) if span else 0 for one in sums]
    assert found[mask].tolist() == wanted
    assert found.min() >= 0
    assert found.max() <= 100

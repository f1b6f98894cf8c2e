"""The arithmetic of the plugins on arrays small enough to check by hand."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.engine.framework.interface import FeasibleNodes
from scheduler.engine.framework.shape import ShapePoint, rounded_quotient, shape_table
from scheduler.engine.framework.status import Code, NodeStatuses
from scheduler.engine.plugins.image_locality import with_tag
from scheduler.engine.plugins.inter_pod_affinity.scoring import min_max_normalized
from scheduler.engine.plugins.node_resources.balanced_allocation import balance, deviation, used_fraction
from scheduler.engine.plugins.node_resources.fit import (
    checked_amounts,
    least_allocated_scores,
    most_allocated_scores,
    ratio_scores,
)
from scheduler.engine.plugins.node_resources.resource_allocation import DeviceUses, NodeResourcesFitArgs
from scheduler.engine.state.arrays import Amounts, Mask, rounded
from tests.reference import arithmetic
from tests.reference.balanced_allocation import balance as reference_balance
from tests.reference.image_locality import with_tag as reference_with_tag
from tests.support.build import container
from tests.support.driving import Driver

GPU = "example.com/gpu"


def _mask(bits: str) -> Mask:
    return np.array([bit == "x" for bit in bits], dtype=np.bool_)


def _amounts(*values: int) -> Amounts:
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize(
    ("short", "hopeless", "expected"),
    [
        pytest.param(["---", "---"], "---", [None, None, None], id="every node fits"),
        pytest.param(
            ["x-x", "-xx"],
            "-x-",
            [
                (Code.UNSCHEDULABLE, "P"),
                (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "Q"),
                (Code.UNSCHEDULABLE, "P", "Q"),
            ],
            id="no node fits",
        ),
        pytest.param(
            ["xx-", "---"],
            "-x-",
            [(Code.UNSCHEDULABLE, "P"), (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "P"), None],
            id="the same reasons, with and without hope",
        ),
        pytest.param(
            ["xxx", "-x-"],
            "---",
            [(Code.UNSCHEDULABLE, "P"), (Code.UNSCHEDULABLE, "P", "Q"), (Code.UNSCHEDULABLE, "P")],
            id="one reason applies to every node",
        ),
    ],
)
def test_each_combination_of_shortages_is_one_status(
    short: list[str], hopeless: str, expected: list[tuple[Code, ...] | None]
):
    statuses = NodeStatuses.combined([_mask(bits) for bits in short], _mask(hopeless), ["P", "Q"])
    found = [statuses.at(row) for row in range(3)]
    assert [None if one is None else (one.code, *one.reasons) for one in found] == expected


def test_a_node_may_be_short_of_more_resources_than_a_machine_word_has_bits():
    reasons = [f"Insufficient r{index}" for index in range(100)]
    statuses = NodeStatuses.combined([_mask("x-")] * 99 + [_mask("-x")], _mask("--"), reasons)
    first, second = statuses.at(0), statuses.at(1)
    assert first is not None
    assert second is not None
    assert (list(first.reasons), list(second.reasons)) == (reasons[:99], reasons[99:])


def test_requests_are_checked_in_order_and_only_where_there_is_one():
    request = {"z.io/b": 1, "memory": 2, "a.io/x": 0, "cpu": 0, "hugepages-2Mi": 3, "ephemeral-storage": 4}
    asked = checked_amounts(request, NodeResourcesFitArgs())
    assert asked == (("memory", 2), ("ephemeral-storage", 4), ("hugepages-2Mi", 3), ("z.io/b", 1))


@pytest.mark.parametrize(
    ("name", "is_checked"),
    [
        pytest.param("example.com/gpu", False, id="ignored by name"),
        pytest.param("vendor.io/x", False, id="ignored by group"),
        pytest.param("vendor.io.example.com/x", True, id="a group is the whole part before the slash"),
        pytest.param("kubernetes.io/x", True, id="not an extended resource, though its group is listed"),
        pytest.param("hugepages-2Mi", True, id="not an extended resource, though listed"),
    ],
)
def test_only_extended_resources_can_be_ignored(name: str, is_checked: bool):
    args = NodeResourcesFitArgs(
        ignored_resources=("example.com/gpu", "hugepages-2Mi"),
        ignored_resource_groups=("vendor.io", "kubernetes.io"),
    )
    assert (checked_amounts({name: 1}, args) == ((name, 1),)) is is_checked


def test_the_scores_of_one_resource():
    requested, allocatable = _amounts(3000, 6000, 0, 1, 0), _amounts(4000, 4000, 4000, 0, 1)
    shape = shape_table((ShapePoint(0, 10), ShapePoint(100, 0)))
    assert np.asarray(least_allocated_scores(requested, allocatable)).tolist() == [25, 0, 100, 0, 100]
    assert np.asarray(most_allocated_scores(requested, allocatable)).tolist() == [75, 100, 0, 0, 0]
    assert np.asarray(ratio_scores(requested, allocatable, shape)).tolist() == [25, 0, 100, 0, 100]


SHAPES = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 10)), min_size=1, unique_by=lambda point: point[0]
)


@given(shape=SHAPES)
def test_a_shape_is_the_broken_line_cut_towards_zero(shape: list[tuple[int, int]]):
    points = sorted(shape)
    stretched = [(utilization, 10 * score) for utilization, score in points]
    table = shape_table([ShapePoint(*point) for point in points])
    assert table.tolist() == [arithmetic.broken_linear(stretched, at) for at in range(101)]


def test_halves_are_rounded_away_from_zero():
    assert np.asarray(rounded_quotient(_amounts(75, 5, 149, 7), _amounts(2, 2, 100, 0))).tolist() == [
        38,
        3,
        1,
        7,
    ]


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


@pytest.mark.parametrize(
    ("image", "named"),
    [
        ("x", "x:latest"),
        ("x:1", "x:1"),
        ("repo:5000/x", "repo:5000/x:latest"),
        ("repo:5000/x:1", "repo:5000/x:1"),
        ("x@sha256:0f", "x@sha256:0f"),
        ("", ":latest"),
    ],
)
def test_latest_is_added_to_images_without_tag_or_digest(image: str, named: str):
    assert with_tag(image) == named == reference_with_tag(image)


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


def test_devices_are_used_where_the_node_does_not_offer_the_resource_itself():
    driver = Driver()
    driver.node("offers", allocatable={GPU: "4"})
    driver.node("reaches devices")
    driver.node("has neither")
    for name, n in (("offers", 1), ("reaches devices", 2), ("has neither", 3)):
        driver.pod(name.replace(" ", "-"), node=name, containers=[container(requests={GPU: str(n)})])
    devices = (_amounts(3, 1, 0), _amounts(2, 1, 0))
    uses = DeviceUses(driver.state.nodes, {GPU: devices, "example.com/nic": devices})
    for row, expected in enumerate([(1, 4), (1, 1), (3, 0)]):
        assert uses.use(GPU, row) == expected
        # No node offers it.
        assert uses.use("example.com/nic", row) == (devices[1][row], devices[0][row])
        assert uses.use("cpu", row) == driver.state.nodes.use("cpu", row)

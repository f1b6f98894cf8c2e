"""Node labels as columns, and amounts per domain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.state.columns import ABSENT, LabelColumn, PerDomain

N_ROWS = 6
VALUES = st.sampled_from((None, "", "a", "b"))


def test_equal_values_share_a_domain_and_vanished_ones_are_forgotten() -> None:
    """Ids of values that no node has any more are given out again: relabelling for ever costs nothing."""
    column = LabelColumn("zone", 4)
    for number in range(1000):
        column.set(0, f"v{number}")
    assert (column.n_ids, column.n_domains) == (3, 1)
    column.set(1, "v999")
    assert column.ids[0] == column.ids[1] != ABSENT
    assert [column.is_unique] == [False]
    column.set(1, None)
    assert [column.is_unique] == [True]
    assert column.ids.tolist()[:2] == [column.id_by_value["v999"], ABSENT]


@given(values=st.lists(VALUES, max_size=N_ROWS), later=st.lists(st.tuples(st.integers(0, N_ROWS), VALUES)))
def test_a_column_of_values_is_the_one_that_was_set_row_by_row(
    values: list[str | None], later: list[tuple[int, str | None]]
) -> None:
    """And stays so, whatever labels change later."""
    made, told = LabelColumn.of("zone", values, N_ROWS), LabelColumn("zone", N_ROWS)
    for row, value in enumerate(values):
        told.set(row, value)
    for row, value in [(0, None), *later]:
        for column in (made, told):
            column.set(row, value)
        assert made.ids.tolist() == told.ids.tolist()
        assert made.id_by_value == told.id_by_value
        assert {made.value_of(domain): domain for domain in made.id_by_value.values()} == made.id_by_value
        assert (made.n_ids, made.n_labelled, made.is_unique) == (told.n_ids, told.n_labelled, told.is_unique)


def _per_domain() -> PerDomain:
    """Return the counts of three nodes, of which the last has no zone."""
    return LabelColumn.of("zone", ["a", "b", None], 3).per_domain(np.array([1, 2, 4], dtype=np.int32))


@pytest.mark.parametrize(
    ("least", "rows"),
    [
        pytest.param(0, [True, True, False], id="a node without the label is in no domain"),
        pytest.param(1, [True, True, False], id="some"),
        pytest.param(2, [False, True, False], id="as many"),
        pytest.param(3, [False, False, False], id="more than any has"),
    ],
)
def test_rows_whose_domain_has_at_least_so_many(least: int, rows: list[bool]) -> None:
    assert _per_domain().at_least(least).tolist() == rows


def test_amounts_go_to_the_domains_of_their_rows_and_back() -> None:
    per_domain = _per_domain()
    assert per_domain.amounts.tolist() == [0, 1, 2]
    assert per_domain.on_nodes().tolist() == [1, 2, 0]
    for row, amount in ((0, 5), (1, -1), (2, 7)):
        per_domain.add(row, amount)
    assert per_domain.on_nodes().tolist() == [6, 1, 0]


def test_amounts_of_nodes_that_share_a_domain_add_up() -> None:
    column = LabelColumn.of("zone", ["a", "b", "a"], 3)
    assert column.per_domain(np.array([True, True, True])).on_nodes().tolist() == [2, 1, 2]
    assert column.per_domain(np.array([5, -7, 2**40])).on_nodes().tolist() == [2**40 + 5, -7, 2**40 + 5]

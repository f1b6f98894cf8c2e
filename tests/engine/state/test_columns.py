"""Node labels as columns, and amounts per domain."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.state.columns import ABSENT, LabelColumn

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

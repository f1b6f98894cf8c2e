"""The window of the last quarter of an hour."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.tools.page.throughput import N_STEPS, STEP_S, Window


@given(
    events=st.lists(
        st.tuples(st.floats(0, 300), st.floats(1e-5, 100), st.booleans()), min_size=1, max_size=60
    )
)
def test_counts_and_percentiles_equal_those_of_the_events_in_the_window(
    events: list[tuple[float, float, bool]],
) -> None:
    """Steps that pass without an event are empty; percentiles are exact to a fifth."""
    window, now_s = Window(), 5000.0
    bound: deque[tuple[int, float]] = deque()
    failed: list[int] = []
    for pause_s, seconds, is_bound in events:
        now_s += pause_s
        step = int(now_s // STEP_S)
        if is_bound:
            window.add_bound(seconds, now_s)
            bound.append((step, seconds))
        else:
            window.add_failed(now_s)
            failed.append(step)
    found = window.summary(now_s)
    newest = int(now_s // STEP_S)
    steps = range(newest - N_STEPS + 1, newest + 1)
    assert found.bound == tuple(sum(at == step for at, _ in bound) for step in steps)
    assert found.failed == tuple(failed.count(step) for step in steps)
    durations = sorted(seconds for at, seconds in bound if at in steps)
    assert found.to_bound.n_measured == len(durations)
    columns = found.to_bound.over_time.columns
    # Of six steps each, the newest last.
    expected = [sum(at in steps[start : start + 6] for at, _ in bound) for start in range(0, N_STEPS, 6)]
    assert [sum(column) for column in columns] == expected
    upper = found.to_bound.over_time.bounds
    assert all(
        max(b / 2 - 1e-9, 0) < s <= b * 1.0001 for s in durations[:1] for b in upper[:1] if b > 1e-5 * 2
    )
    assert not durations or durations[-1] <= upper[-1] * 1.0001
    if durations:
        exact = durations[-(-len(durations) // 2) - 1]
        assert found.to_bound.p50 is not None
        assert exact <= found.to_bound.p50 * 1.0001
        assert found.to_bound.p50 <= max(exact, 1e-5) * 1.2


def test_the_rate_is_that_of_the_last_steps() -> None:
    """Ten pods per second for ten seconds, then none."""
    window = Window()
    for tenth in range(100):
        window.add_bound(0.01, 1000.0 + tenth / 10)
    assert window.summary(1009.9).pods_per_second == pytest.approx(10, rel=0.05)
    assert window.summary(1100.0).pods_per_second == 0
    assert window.summary(1100.0).decision.p50 is None

"""Every situation comes about in a small cluster, and a hold that is too long is named."""

import pytest

from tests.bench.hold_clusters import HoldSize
from tests.bench.hold_situations import SITUATIONS
from tests.bench.holds import HoldResult, measure_holds, too_long


def test_every_situation_comes_about_and_is_measured(monkeypatch):
    """Every callback is noted, or few of so small a cluster would be."""
    monkeypatch.setattr("tests.bench.holds._NOTED_FROM_S", 0.0)
    monkeypatch.setattr("tests.bench.hold_situations._HEARTBEAT_S", 0.5)
    results = measure_holds(SITUATIONS, HoldSize(10))
    assert [result.situation for result in results] == [situation.name for situation in SITUATIONS]
    assert [result.situation for result in results if not result.longest_ms > 0] == []


@pytest.mark.parametrize(("longest_ms", "n_too_long"), [(10.0, 0), (10.1, 1)])
def test_more_than_10_ms_are_too_long(longest_ms, n_too_long):
    result = HoldResult("group", 10, 300, longest_ms, 0.0, 0, "scheduler")
    assert len(too_long([result])) == n_too_long

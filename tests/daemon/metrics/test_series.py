"""Series as plain numbers: their values, their text format, and their limit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.daemon.metrics import series
from scheduler.daemon.metrics.series import (
    Counter,
    Family,
    Histogram,
    exponential_bounds,
    go_number,
)
from tests.daemon.metrics.scheduling import samples

#: As kube-scheduler 1.36 prints them.
PRINTED = {
    "rounded at each step": (
        exponential_bounds(0.00001, 1.5, 20)[:7],
        "1e-05 1.5000000000000002e-05 2.2500000000000005e-05 3.375000000000001e-05 5.062500000000001e-05 "
        "7.593750000000002e-05 0.00011390625000000003",
    ),
    "fixed down to 1e-4": (exponential_bounds(0.0001, 2, 3), "0.0001 0.0002 0.0004"),
    "doubled": (exponential_bounds(0.001, 2, 15)[-2:], "8.192 16.384"),
    "whole numbers without a point": (exponential_bounds(1, 2, 5), "1 2 4 8 16"),
    "hours": (exponential_bounds(0.01, 2, 20)[-1:], "5242.88"),
}


@pytest.mark.parametrize(("bounds", "printed"), PRINTED.values(), ids=PRINTED)
def test_bounds_are_printed_as_go_prints_them(bounds: tuple[float, ...], printed: str) -> None:
    """Prometheus before version 3 takes `1` and `1.0` for different buckets."""
    assert " ".join(map(go_number, bounds)) == printed


@pytest.mark.parametrize(
    ("amount", "bucket"),
    [(0.0, 0), (1.0, 0), (1.0000001, 1), (2.0, 1), (4.0, 2), (4.1, 3), (float("inf"), 3)],
)
def test_an_observation_counts_in_the_first_bucket_that_is_not_below_it(amount: float, bucket: int) -> None:
    observed = Histogram(Family("h", "help", bounds=(1.0, 2.0, 4.0))).labels()
    observed.observe(amount)
    assert [index for index, n in enumerate(observed.n_by_bucket) if n] == [bucket]


_TEXT = st.text(max_size=8)


@settings(deadline=None)
@given(st.lists(st.tuples(_TEXT, _TEXT, st.floats(0, 1e6)), max_size=12))
def test_a_scrape_of_a_histogram_has_what_was_observed(observed: list[tuple[str, str, float]]) -> None:
    """For any label values and amounts, as the library's parser reads it."""
    histogram = Histogram(Family("h_seconds", "help", ("plugin", "status"), (0.1, 1.0, 10.0)))
    expected: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for plugin, status, amount in observed:
        histogram.labels(plugin, status).observe(amount)
        labels = {"plugin": plugin, "status": status}
        for bound in ("0.1", "1", "10", "+Inf"):
            key = ("h_seconds_bucket", tuple(sorted({**labels, "le": bound}.items())))
            expected[key] = expected.get(key, 0) + (amount <= float(bound))
        for suffix, more in (("count", 1), ("sum", amount)):
            key = (f"h_seconds_{suffix}", tuple(sorted(labels.items())))
            expected[key] = expected.get(key, 0) + more
    assert samples(histogram.text().encode()) == expected


def test_a_full_histogram_observes_the_rest_under_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """No input can create more series than the limit and one."""
    monkeypatch.setattr(series, "MAX_SERIES", 2)
    histogram = Histogram(Family("h", "help", ("event",), (1.0,)))
    for event in ("a", "b", "c", "d", "a"):
        histogram.labels(event).observe(0.5)
    counts = {
        labels: n for (name, labels), n in samples(histogram.text().encode()).items() if name == "h_count"
    }
    assert counts == {(("event", "a"),): 2, (("event", "b"),): 1, (("event", "other"),): 2}


def test_a_full_counter_counts_the_rest_under_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MAX_SERIES", 1)
    counts = Counter(Family("c_total", "help", ("code", "host")))
    for code in ("200", "404", "200", "500"):
        counts.add(code, "h")
    found = samples(counts.text().encode())
    assert sorted(found.values()) == [2.0, 2.0]
    assert ("c_total", (("code", "other"), ("host", "other"))) in found


def test_series_without_labels_exist_from_the_start() -> None:
    """A rate over a series that appears at 1 would miss the first event."""
    histogram, counts = Histogram(Family("h", "help", bounds=(1.0,))), Counter(Family("c_total", "help"))
    found = samples((histogram.text() + counts.text()).encode())
    assert (found["h_count", ()], found["c_total", ()]) == (0.0, 0.0)


def test_numbers_are_written_with_their_labels() -> None:
    depth, incoming = Family("depth", "help", ("queue",)), Family("in_total", "help", ("queue", "event"))
    assert samples(depth.text_of({}).encode()) == {}
    by_queue = {("depth", (("queue", "active"),)): 3.0, ("depth", (("queue", "gated"),)): 0.0}
    assert samples(depth.text_of({"active": 3, "gated": 0}).encode()) == by_queue
    by_both = {("in_total", (("event", "NodeAdd"), ("queue", "active"))): 2.0}
    assert samples(incoming.text_of({("active", "NodeAdd"): 2}).encode()) == by_both

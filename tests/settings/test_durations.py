"""Go's duration syntax, both ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.settings.durations import format_duration, parse_duration_ns


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        pytest.param("15s", 15_000_000_000, id="seconds"),
        pytest.param("1m30s", 90_000_000_000, id="two units"),
        pytest.param("1.5h", 5_400_000_000_000, id="fraction of an hour"),
        pytest.param("300ms", 300_000_000, id="milliseconds"),
        pytest.param("5us", 5_000, id="microseconds in ASCII"),
        pytest.param("5µs", 5_000, id="microseconds with the micro sign"),
        pytest.param("5μs", 5_000, id="microseconds with the Greek letter"),
        pytest.param("1.9ns", 1, id="parts of a nanosecond are cut off"),
        pytest.param(".5s", 500_000_000, id="no digit before the point"),
        pytest.param("1.s", 1_000_000_000, id="no digit after the point"),
        pytest.param("-1s", -1_000_000_000, id="negative"),
        pytest.param("+1s", 1_000_000_000, id="explicitly positive"),
        pytest.param("0", 0, id="zero needs no unit"),
        pytest.param("1s1s", 2_000_000_000, id="a unit twice"),
    ],
)
def test_a_duration_reads_as_go_reads_it(text, expected_ns):
    assert parse_duration_ns(text) == expected_ns


@pytest.mark.parametrize(
    "text",
    ["", "5", "s", "-", "1 s", "1d", "1s2", ".s", "1e3s", "s1", "9999999999h", "1" * 70 + "s", "١s", "1S"],
)
def test_text_that_go_refuses_is_no_duration(text):
    assert parse_duration_ns(text) is None


@pytest.mark.parametrize(
    ("duration_s", "expected"),
    [
        pytest.param(15.0, "15s", id="seconds"),
        pytest.param(90.0, "1m30s", id="minutes and seconds"),
        pytest.param(3600.0, "1h0m0s", id="zeros below the largest unit stay"),
        pytest.param(1.5, "1.5s", id="fraction"),
        pytest.param(0.1, "100ms", id="below a second"),
        pytest.param(0.0000015, "1.5µs", id="below a millisecond"),
        pytest.param(5e-9, "5ns", id="nanoseconds"),
        pytest.param(0.0, "0s", id="zero"),
        pytest.param(-90.5, "-1m30.5s", id="negative"),
    ],
)
def test_a_duration_is_written_as_go_writes_it(duration_s, expected):
    assert format_duration(duration_s) == expected


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_a_written_duration_reads_back_as_the_same_float(duration_ns):
    duration_s = duration_ns / 1_000_000_000
    read_ns = parse_duration_ns(format_duration(duration_s))
    assert read_ns is not None
    assert read_ns / 1_000_000_000 == duration_s

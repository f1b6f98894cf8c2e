"""Go's duration syntax, both ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.syntax.durations import format_duration, parse_duration_ns

READ = {
    "seconds": ("15s", 15_000_000_000),
    "two units": ("1m30s", 90_000_000_000),
    "fraction of an hour": ("1.5h", 5_400_000_000_000),
    "milliseconds": ("300ms", 300_000_000),
    "microseconds in ASCII": ("5us", 5_000),
    "microseconds with the micro sign": ("5µs", 5_000),
    "microseconds with the Greek letter": ("5μs", 5_000),
    "parts of a nanosecond are cut off": ("1.9ns", 1),
    "no digit before the point": (".5s", 500_000_000),
    "no digit after the point": ("1.s", 1_000_000_000),
    "negative": ("-1s", -1_000_000_000),
    "the least of 64 bits": ("-2562047h47m16.854775808s", -(2**63)),
    "explicitly positive": ("+1s", 1_000_000_000),
    "zero needs no unit": ("0", 0),
    "a unit twice": ("1s1s", 2_000_000_000),
}


@pytest.mark.parametrize(("text", "expected_ns"), READ.values(), ids=READ)
def test_a_duration_reads_as_go_reads_it(text, expected_ns):
    assert parse_duration_ns(text) == expected_ns


@pytest.mark.parametrize(
    "text",
    ["", "5", "s", "-", "1 s", "1d", "1s2", ".s", "1e3s", "s1", "9999999999h", "1" * 70 + "s", "١s", "1S"],
)
def test_text_that_go_refuses_is_no_duration(text):
    assert parse_duration_ns(text) is None


WRITTEN = {
    "seconds": (15.0, "15s"),
    "minutes and seconds": (90.0, "1m30s"),
    "zeros below the largest unit stay": (3600.0, "1h0m0s"),
    "fraction": (1.5, "1.5s"),
    "below a second": (0.1, "100ms"),
    "below a millisecond": (0.0000015, "1.5µs"),
    "nanoseconds": (5e-9, "5ns"),
    "zero": (0.0, "0s"),
    "negative": (-90.5, "-1m30.5s"),
}


@pytest.mark.parametrize(("duration_s", "expected"), WRITTEN.values(), ids=WRITTEN)
def test_a_duration_is_written_as_go_writes_it(duration_s, expected):
    assert format_duration(duration_s) == expected


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_a_written_duration_reads_back_as_the_same_float(duration_ns):
    duration_s = duration_ns / 1_000_000_000
    read_ns = parse_duration_ns(format_duration(duration_s))
    assert read_ns is not None
    assert read_ns / 1_000_000_000 == duration_s

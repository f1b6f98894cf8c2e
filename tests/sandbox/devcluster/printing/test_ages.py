"""Ages as kubectl's tables word them."""

import pytest

from scheduler.sandbox.devcluster.printing.ages import age, human_duration
from scheduler.sandbox.devcluster.timestamps import epoch_s, rfc3339

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        (-5, "<invalid>"), (-1.5, "0s"), (0, "0s"), (119, "119s"),
        (2 * MINUTE, "2m"), (9 * MINUTE + 59, "9m59s"), (10 * MINUTE + 59, "10m"), (179 * MINUTE, "179m"),
        (3 * HOUR, "3h"), (7 * HOUR + 59 * MINUTE, "7h59m"), (47 * HOUR, "47h"),
        (2 * DAY, "2d"), (7 * DAY + 23 * HOUR, "7d23h"), (729 * DAY, "729d"),
        (2 * YEAR, "2y"), (2 * YEAR + 5 * DAY, "2y5d"), (8 * YEAR + 5 * DAY, "8y"),
    ],
)  # fmt: skip
def test_durations_have_two_or_three_figures(duration_s, text):
    assert human_duration(duration_s) == text


def test_an_age_counts_from_the_timestamp():
    assert age("2026-01-01T00:00:00Z", 1767225600.0 + 303) == "5m3s"


@pytest.mark.parametrize("timestamp", [None, "", "yesterday", 12])
def test_the_age_of_no_timestamp_is_unknown(timestamp):
    assert age(timestamp, 0.0) == "<unknown>"


def test_times_are_written_as_they_are_read():
    at_s = epoch_s("2026-02-03T04:05:06Z")
    assert at_s is not None
    assert rfc3339(at_s) == "2026-02-03T04:05:06Z"

"""Ages as kubectl's tables word them."""

import pytest

from scheduler.devcluster.printing.ages import age, human_duration
from scheduler.devcluster.timestamps import epoch_s, rfc3339

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [
        pytest.param(-5, "<invalid>", id="the future is invalid"),
        pytest.param(-1.5, "0s", id="clocks may differ by almost two seconds"),
        pytest.param(0, "0s", id="now"),
        pytest.param(119, "119s", id="below two minutes only seconds"),
        pytest.param(2 * MINUTE, "2m", id="whole minutes"),
        pytest.param(9 * MINUTE + 59, "9m59s", id="below ten minutes with seconds"),
        pytest.param(10 * MINUTE + 59, "10m", id="from ten minutes on without"),
        pytest.param(179 * MINUTE, "179m", id="below three hours only minutes"),
        pytest.param(3 * HOUR, "3h", id="whole hours"),
        pytest.param(7 * HOUR + 59 * MINUTE, "7h59m", id="below eight hours with minutes"),
        pytest.param(47 * HOUR, "47h", id="below two days only hours"),
        pytest.param(2 * DAY, "2d", id="whole days"),
        pytest.param(7 * DAY + 23 * HOUR, "7d23h", id="below eight days with hours"),
        pytest.param(729 * DAY, "729d", id="below two years only days"),
        pytest.param(2 * YEAR, "2y", id="whole years"),
        pytest.param(2 * YEAR + 5 * DAY, "2y5d", id="below eight years with days"),
        pytest.param(8 * YEAR + 5 * DAY, "8y", id="from eight years on without"),
    ],
)
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

"""Quantiles and counts from the scheduler's /metrics."""

from __future__ import annotations

import math

import pytest

from scheduler.sandbox.demo.latency import Sample, parse_sample

TEXT = """\
# TYPE scheduler_scheduling_algorithm_duration_seconds histogram
scheduler_scheduling_algorithm_duration_seconds_bucket{le="0.001"} 80.0
scheduler_scheduling_algorithm_duration_seconds_bucket{le="0.002"} 100.0
scheduler_scheduling_algorithm_duration_seconds_bucket{le="+Inf"} 100.0
scheduler_scheduling_algorithm_duration_seconds_sum 0.07
scheduler_scheduling_algorithm_duration_seconds_count 100.0
# TYPE scheduler_schedule_attempts_total counter
scheduler_schedule_attempts_total{profile="affinity-scheduler",result="scheduled"} 90.0
scheduler_schedule_attempts_total{profile="other",result="scheduled"} 5.0
scheduler_schedule_attempts_total{profile="affinity-scheduler",result="unschedulable"} 5.0
"""


def test_a_scrape_has_buckets_sum_and_pods_of_all_profiles() -> None:
    sample = parse_sample(TEXT)
    assert sample.at_most == {0.001: 80.0, 0.002: 100.0, math.inf: 100.0}
    assert (sample.decisions, sample.scheduled) == (100.0, 95.0)


@pytest.mark.parametrize(
    ("at_most", "share", "seconds"),
    [
        pytest.param({0.001: 80.0, 0.002: 100.0, math.inf: 100.0}, 0.99, 0.00195, id="within a bucket"),
        pytest.param({0.001: 80.0, 0.002: 90.0, math.inf: 100.0}, 0.99, 0.002, id="beyond the last bound"),
        pytest.param(
            {0.001: 0.0, 0.002: 0.0, 0.004: 10.0, math.inf: 10.0}, 0.5, 0.003, id="empty ones first"
        ),
        pytest.param({}, 0.5, 0.0, id="no histogram"),
    ],
)
def test_quantiles_are_those_of_histogram_quantile(
    at_most: dict[float, float], share: float, seconds: float
) -> None:
    assert Sample(at_most, 0.0).quantile_s(share) == pytest.approx(seconds)


def test_the_difference_of_two_samples_is_what_happened_between() -> None:
    earlier = Sample({0.001: 10.0, math.inf: 12.0}, 11.0)
    later = Sample({0.001: 30.0, math.inf: 40.0}, 39.0)
    assert later - earlier == Sample({0.001: 20.0, math.inf: 28.0}, 28.0)

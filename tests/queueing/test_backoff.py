"""How long a pod that failed waits."""

from math import inf

import pytest

from scheduler.queueing.backoff import Backoff
from scheduler.queueing.queued_pod import QueuedPod
from tests.queueing.build import pod

DEFAULT = Backoff(1.0, 10.0)


def failed(*, unschedulable: int = 0, errors: int = 0, at_s: float = 100.0):
    queued = QueuedPod(pod("p"), at_s, 1, unschedulable_count=unschedulable, error_count=errors)
    queued.backoff_window_s = DEFAULT.window_s(queued)
    return queued


def test_the_wait_doubles_up_to_its_maximum():
    assert [DEFAULT.duration_s(n) for n in range(8)] == [0, 1, 2, 4, 8, 10, 10, 10]


def test_ten_thousand_failures_still_wait_the_maximum():
    assert DEFAULT.duration_s(10_000) == 10.0


@pytest.mark.parametrize(
    ("queued", "window_s"),
    [
        pytest.param(failed(), -inf, id="never failed"),
        pytest.param(failed(unschedulable=3), 104, id="rejections"),
        pytest.param(failed(errors=1), 101, id="errors"),
        pytest.param(failed(unschedulable=4, errors=1), 101, id="errors in a row outrank rejections"),
        pytest.param(failed(unschedulable=1, at_s=100.9), 101, id="floored to the second"),
    ],
)
def test_backoff_ends_by_failures_and_the_last_attempt(queued, window_s):
    assert queued.backoff_window_s == window_s


@pytest.mark.parametrize(
    ("now_s", "backs_off"), [(100.0, True), (101.0, True), (101.999, True), (102.0, False)], ids=str
)
def test_a_pod_backs_off_through_its_last_whole_second(now_s, backs_off):
    assert DEFAULT.is_backing_off(failed(unschedulable=1, at_s=100.2), now_s) is backs_off

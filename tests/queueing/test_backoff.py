"""How long a failed pod waits."""

from math import inf

import pytest

from scheduler.queueing.backoff import Backoff
from scheduler.queueing.queued_pod import QueuedPod
from tests.queueing.build import pod

DEFAULT = Backoff(1.0, 10.0, whole_seconds=True)
EXACT = Backoff(1.0, 10.0, whole_seconds=False)


def failed(*, unschedulable: int = 0, errors: int = 0, at_s: float = 100.0, backoff: Backoff = DEFAULT):
    queued = QueuedPod(pod("p"), at_s, 1, unschedulable_count=unschedulable, error_count=errors)
    queued.backoff_until_s = backoff.expiry_s(queued)
    return queued


def test_the_wait_doubles_up_to_its_maximum():
    assert [DEFAULT.duration_s(n) for n in range(8)] == [0, 1, 2, 4, 8, 10, 10, 10]


def test_ten_thousand_failures_still_wait_the_maximum():
    assert DEFAULT.duration_s(10_000) == 10.0


@pytest.mark.parametrize(
    ("queued", "expiry_s"),
    [
        pytest.param(failed(), -inf, id="never failed"),
        pytest.param(failed(unschedulable=3), 104, id="rejections"),
        pytest.param(failed(errors=1), 101, id="errors"),
        pytest.param(failed(unschedulable=4, errors=1), 101, id="errors in a row outrank rejections"),
        pytest.param(failed(unschedulable=1, at_s=100.9), 101, id="floored to the second"),
        pytest.param(failed(unschedulable=1, at_s=100.9, backoff=EXACT), 101.9, id="exact without windows"),
    ],
)
def test_backoff_ends_by_failures_and_the_last_attempt(queued, expiry_s):
    assert queued.backoff_until_s == expiry_s


@pytest.mark.parametrize(
    ("now_s", "backs_off"), [(100.0, True), (101.0, True), (101.999, True), (102.0, False)], ids=str
)
def test_a_pod_backs_off_through_its_last_whole_second(now_s, backs_off):
    assert DEFAULT.is_backing_off(failed(unschedulable=1, at_s=100.2), now_s) is backs_off


@pytest.mark.parametrize(("now_s", "backs_off"), [(101.1, True), (101.2, False)], ids=str)
def test_without_early_pops_backoff_ends_on_time(now_s, backs_off):
    queued = failed(unschedulable=1, at_s=100.2, backoff=EXACT)
    assert EXACT.is_backing_off(queued, now_s) is backs_off

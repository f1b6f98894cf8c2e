"""How long a pod that failed waits."""

from scheduler.engine.queueing.backoff import Backoff
from scheduler.engine.queueing.queued_pod import QueuedPod
from tests.engine.queueing.build import pod

DEFAULT = Backoff(1.0, 10.0)


def test_the_longest_wait_grows_with_the_root_of_the_pods_that_are_tried_together():
    assert [DEFAULT.duration_s(n, 9) for n in range(8)] == [0, 1, 2, 4, 8, 16, 30, 30]


def test_ten_thousand_failures_still_wait_the_maximum():
    assert DEFAULT.duration_s(10_000) == 10.0


def test_the_backoff_is_over_at_its_end():
    queued = QueuedPod(pod("p"), 0.0, 1)
    queued.backoff_window_s = 7.0
    end_s = DEFAULT.end_s(queued)
    assert (DEFAULT.is_backing_off(queued, end_s - 0.001), DEFAULT.is_backing_off(queued, end_s)) == (
        True,
        False,
    )

"""How long a pod that failed waits."""

from scheduler.queueing.backoff import Backoff

DEFAULT = Backoff(1.0, 10.0)


def test_the_wait_doubles_up_to_its_maximum():
    assert [DEFAULT.duration_s(n) for n in range(8)] == [0, 1, 2, 4, 8, 10, 10, 10]


def test_ten_thousand_failures_still_wait_the_maximum():
    assert DEFAULT.duration_s(10_000) == 10.0

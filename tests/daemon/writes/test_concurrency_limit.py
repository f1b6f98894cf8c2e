"""The limit on binds in flight."""

from __future__ import annotations

from scheduler.daemon.writes.concurrency_limit import MAX_LIMIT, MIN_LIMIT, SLOW_S, BindLimit


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_halves_on_overload_down_to_the_minimum() -> None:
    clock = Clock()
    limit = BindLimit(now_s=clock)
    seen = []
    for _ in range(6):
        seen.append(limit())
        limit.on_overload()
        clock.now += 1.0
    assert seen == [MAX_LIMIT, 32, 16, 8, MIN_LIMIT, MIN_LIMIT]


def test_overloads_within_a_second_count_once() -> None:
    limit = BindLimit(now_s=Clock())
    for _ in range(50):
        limit.on_overload()
    assert limit() == MAX_LIMIT // 2


def test_each_round_of_fast_answers_adds_one() -> None:
    limit = BindLimit(now_s=Clock())
    limit.on_overload()
    for _ in range(33):
        limit.on_answer(0.01)
    assert limit() == 33
    for _ in range(100_000):
        limit.on_answer(0.01)
    assert limit() == MAX_LIMIT


def test_a_slow_answer_is_an_overload() -> None:
    limit = BindLimit(now_s=Clock())
    limit.on_answer(SLOW_S)
    assert limit() == MAX_LIMIT
    limit.on_answer(SLOW_S * 1.01)
    assert limit() == MAX_LIMIT // 2

"""A sweep goes on piece by piece, and the next begins a minute after its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scheduler.daemon.loop.upkeep import SWEEP_PAUSE_S, SWEEP_PERIOD_S, Sweeper


def test_a_piece_at_each_call_that_is_due() -> None:
    now_s, done = 100.0, []

    def sweeping() -> Iterator[None]:
        for piece in ("first", "second"):
            done.append(piece)
            yield
        done.append("end")

    sweeper = Sweeper(sweeping, now_s=lambda: now_s)
    sweeper.sweep()
    assert done == []
    for expected in (["first"], ["first", "second"], ["first", "second", "end"]):
        now_s = sweeper.next_s
        sweeper.sweep()
        sweeper.sweep()
        assert done == expected
    assert sweeper.next_s == now_s + SWEEP_PERIOD_S
    assert now_s == pytest.approx(100.0 + SWEEP_PERIOD_S + 2 * SWEEP_PAUSE_S)

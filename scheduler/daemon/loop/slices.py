"""
Runs work that comes in pieces between the iterations of the scheduling loop, for a bounded share of its time.

No piece reads a state that `is_provisional`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Final, TypeVar

from scheduler.engine.state.cluster import ClusterState

_T = TypeVar("_T")

#: Time after which other tasks run, while a loop waits for the end of its own pieces.
_PIECES_S: Final = 0.005
#: Time of one slice: no longer than a burst of cycles.
_SLICE_S: Final = 0.002
#: A slice that was preempted looks long, and would be followed by a long pause.
_MAX_PAUSE_S: Final = 0.5


async def until_settled(state: ClusterState) -> None:
    """Return between two cycles: within 0.3 s, which a group of 1,000 members takes, mostly at once."""
    while state.is_provisional:  # noqa: ASYNC110 - the scheduling loop, which ends the cycle, never waits meanwhile
        await asyncio.sleep(0)


async def in_slices(
    pieces: Generator[None, None, _T],
    state: ClusterState,
    *,
    pause_factor: Callable[[], float],
    now_s: Callable[[], float],
) -> _T:
    """
    Run the pieces, which read the state, and return the generator's value.

    After each slice of `_SLICE_S` other tasks run for at least `pause_factor()` times as long, up to `_MAX_PAUSE_S`.
    """
    while True:
        await until_settled(state)
        began_s = now_s()
        try:
            while now_s() - began_s < _SLICE_S:
                next(pieces)
        except StopIteration as done:
            result: _T = done.value
            return result
        await asyncio.sleep(min(_MAX_PAUSE_S, pause_factor() * (now_s() - began_s)))


async def in_pieces(pieces: Generator[None, None, _T], *, now_s: Callable[[], float]) -> _T:
    """
    Run the pieces, and other tasks after every `_PIECES_S`; return the generator's value.

    The caller applies no event before the end, so that all pieces read the same state.
    """
    pause_at_s = now_s() + _PIECES_S
    while True:
        try:
            next(pieces)
        except StopIteration as done:
            result: _T = done.value
            return result
        if now_s() >= pause_at_s:
            await asyncio.sleep(0)
            pause_at_s = now_s() + _PIECES_S

"""Runs work that comes in pieces between the iterations of the scheduling loop, for a bounded share of its time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Final, TypeVar

_T = TypeVar("_T")

#: Time of one slice: no longer than a burst of cycles.
_SLICE_S: Final = 0.002
#: On a machine that has other work too, a slice may seem long.
_MAX_PAUSE_S: Final = 0.5


async def in_slices(
    pieces: Generator[None, None, _T], *, pause_factor: Callable[[], float], now_s: Callable[[], float]
) -> _T:
    """
    Run the pieces and return the generator's value.

    After each slice of `_SLICE_S` other tasks run for at least `pause_factor()` times as long, up to `_MAX_PAUSE_S`.
    """
    while True:
        began_s = now_s()
        try:
            while now_s() - began_s < _SLICE_S:
                next(pieces)
        except StopIteration as done:
            result: _T = done.value
            return result
        await asyncio.sleep(min(_MAX_PAUSE_S, pause_factor() * (now_s() - began_s)))

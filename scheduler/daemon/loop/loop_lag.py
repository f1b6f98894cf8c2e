"""Measures the lag of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

#: At least twice per scrape at Prometheus' usual intervals.
_PERIOD_S: Final = 5.0


async def measure_loop_lag(
    on_lag: Callable[[float], None], now_s: Callable[[], float], period_s: float = _PERIOD_S
) -> None:
    """Pass the seconds by which a sleep of `period_s` ended late to `on_lag`, again and again, until cancelled."""
    while True:
        due_s = now_s() + period_s
        await asyncio.sleep(period_s)
        on_lag(max(0.0, now_s() - due_s))

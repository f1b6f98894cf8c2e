"""Measures the lag of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

#: At least twice per scrape at Prometheus' usual intervals.
_PERIOD_S: Final = 5.0


async def measure_loop_lag(on_lag: Callable[[float], None], now_s: Callable[[], float]) -> None:
    """Pass the seconds by which a sleep ended late to `on_lag`, every `_PERIOD_S`, until cancelled."""
    while True:
        due_s = now_s() + _PERIOD_S
        await asyncio.sleep(_PERIOD_S)
        on_lag(max(0.0, now_s() - due_s))

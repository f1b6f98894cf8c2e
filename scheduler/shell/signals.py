"""Stops a command on SIGTERM and SIGINT."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable


def on_termination(stop: Callable[[], None]) -> None:
    """Call `stop` at the first SIGTERM or SIGINT; the second one ends the process at once, with exit code 1."""
    is_stopping = False

    def handle() -> None:
        nonlocal is_stopping
        if is_stopping:
            os._exit(1)
        is_stopping = True
        stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle)

"""
`python -m tests.bench.held FILE ARGUMENT...`: `affinity-scheduler ARGUMENT...`, every callback of its event loop timed.

When it ends, FILE has a JSON list of [monotonic second, seconds, what] of all that held the loop for 1 ms or more.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio import events
from pathlib import Path
from typing import Any, Final

from scheduler.cli.main import main

_NOTED_FROM_S: Final = 0.001
_MAX_NOTED: Final = 100_000


def _time_callbacks(noted: list[tuple[float, float, str]]) -> None:
    """From now on every callback is timed: 0.3 µs each. asyncio's own debug mode would slow all of them."""
    handle_class: Any = events.Handle  # its internals have no types
    original = handle_class._run

    def run(handle: Any) -> None:
        started_s = time.monotonic()
        original(handle)
        elapsed_s = time.monotonic() - started_s
        if elapsed_s >= _NOTED_FROM_S and len(noted) < _MAX_NOTED:
            noted.append((started_s, elapsed_s, _name_of(handle)))

    handle_class._run = run  # the one place that all callbacks go through


def _name_of(handle: Any) -> str:
    callback = handle._callback
    owner = getattr(callback, "__self__", None)
    # Not its repr: aiohttp's responses cache their headers when they are first looked at, be there any or not.
    name = getattr(callback, "__qualname__", type(callback).__name__)
    return owner.get_name() if isinstance(owner, asyncio.Task) else str(name)


if __name__ == "__main__":
    found: list[tuple[float, float, str]] = []
    _time_callbacks(found)
    try:
        code = main(sys.argv[2:])
    finally:
        Path(sys.argv[1]).write_text(json.dumps(found))
    sys.exit(code)

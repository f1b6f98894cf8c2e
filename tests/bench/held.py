"""
`python -m tests.bench.held FILE ARGUMENT...`: `affinity-scheduler ARGUMENT...`, every callback of its event loop timed.

When it ends, FILE has a JSON list of `Hold`: all that held the loop for 1 ms of CPU or 5 ms of wall time or more.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from asyncio import events
from pathlib import Path
from typing import Any, Final

import msgspec

from scheduler.cli.main import main

_NOTED_FROM_CPU_S: Final = 0.001
_NOTED_FROM_S: Final = 0.005
_MAX_NOTED: Final = 200_000


class Hold(msgspec.Struct, array_like=True):
    """
    One callback: when it began, on the monotonic clock; wall time; the thread's CPU time, of which `gc_s` went to the
    garbage collector; which task it was a step of.
    """

    at_s: float
    wall_s: float
    cpu_s: float
    gc_s: float
    what: str


class _Collections:
    """CPU seconds that the garbage collector has used."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self._began_s = 0.0

    def note(self, phase: str, _: object) -> None:
        if phase == "start":
            self._began_s = time.thread_time()
        else:
            self.total_s += time.thread_time() - self._began_s


def _time_callbacks(noted: list[Hold]) -> None:
    """From now on every callback is timed: 1 µs each. asyncio's own debug mode would slow all of them."""
    handle_class: Any = events.Handle  # its internals have no types
    original = handle_class._run
    collections = _Collections()
    gc.callbacks.append(collections.note)

    def run(handle: Any) -> None:
        at_s, began_s, gc_s = time.monotonic(), time.thread_time(), collections.total_s
        original(handle)
        cpu_s, wall_s = time.thread_time() - began_s, time.monotonic() - at_s
        if (cpu_s >= _NOTED_FROM_CPU_S or wall_s >= _NOTED_FROM_S) and len(noted) < _MAX_NOTED:
            noted.append(Hold(at_s, wall_s, cpu_s, collections.total_s - gc_s, _name_of(handle)))

    handle_class._run = run  # the one place that all callbacks go through


def _name_of(handle: Any) -> str:
    callback = handle._callback
    owner = getattr(callback, "__self__", None)
    # Not its repr: aiohttp's responses cache their headers when they are first looked at, be there any or not.
    name = getattr(callback, "__qualname__", type(callback).__name__)
    return owner.get_name() if isinstance(owner, asyncio.Task) else str(name)


if __name__ == "__main__":
    found: list[Hold] = []
    _time_callbacks(found)
    try:
        code = main(sys.argv[2:])
    finally:
        Path(sys.argv[1]).write_bytes(msgspec.json.encode(found))
    sys.exit(code)

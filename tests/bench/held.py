"""
`python -m tests.bench.held FILE ARGUMENT...`: run `affinity-scheduler ARGUMENT...` and time each event loop callback.

At its end FILE has a JSON list of `Hold`: callbacks that took 1 ms of CPU or 5 ms of wall time or more.
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
    One callback: its start by the monotonic clock, wall time, the thread's CPU time, the part of that in the garbage
    collector (`gc_s`), and its task.
    """

    at_s: float
    wall_s: float
    cpu_s: float
    gc_s: float
    what: str


class _Collections:
    """Measures the CPU seconds that the garbage collector uses."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self._began_s = 0.0

    def note(self, phase: str, _: object) -> None:
        if phase == "start":
            self._began_s = time.thread_time()
        else:
            self.total_s += time.thread_time() - self._began_s


def _time_callbacks(noted: list[Hold]) -> None:
    """Time every callback from now on, at 1 µs each; asyncio's debug mode would slow all of them."""
    handle_class: Any = events.Handle  # asyncio's internals have no types
    original = handle_class._run
    collections = _Collections()
    gc.callbacks.append(collections.note)

    def run(handle: Any) -> None:
        at_s, began_s, gc_s = time.monotonic(), time.thread_time(), collections.total_s
        original(handle)
        cpu_s, wall_s = time.thread_time() - began_s, time.monotonic() - at_s
        if (cpu_s >= _NOTED_FROM_CPU_S or wall_s >= _NOTED_FROM_S) and len(noted) < _MAX_NOTED:
            noted.append(Hold(at_s, wall_s, cpu_s, collections.total_s - gc_s, _name_of(handle)))

    handle_class._run = run  # every callback goes through here


def _name_of(handle: Any) -> str:
    callback = handle._callback
    owner = getattr(callback, "__self__", None)
    # Not repr: aiohttp's responses cache their headers on first access, even if there are none yet.
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

"""Times every callback of the event loop of this thread, and has another thread measure how late the loop answers."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from asyncio import events
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

_NOTED_FROM_CPU_S: Final = 0.001
_NOTED_FROM_S: Final = 0.005
_MAX_NOTED: Final = 200_000
#: Between two questions of the other thread.
_ASKED_EVERY_S: Final = 0.002


class Hold(NamedTuple):
    """
    One callback: its wall time, the thread's CPU time, the part of that in the garbage collector (`gc_s`), its task.
    """

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


@contextmanager
def timed_callbacks() -> Iterator[list[Hold]]:
    """
    Yield a list that gets the callbacks of 1 ms of CPU or 5 ms of wall time or more.

    Every callback is timed, at 1 µs each; asyncio's debug mode would slow all of them.
    """
    noted: list[Hold] = []
    handle_class: Any = events.Handle  # asyncio's internals have no types
    original = handle_class._run
    collections = _Collections()

    def run(handle: Any) -> None:
        at_s, began_s, gc_s = time.monotonic(), time.thread_time(), collections.total_s
        original(handle)
        cpu_s, wall_s = time.thread_time() - began_s, time.monotonic() - at_s
        if (cpu_s >= _NOTED_FROM_CPU_S or wall_s >= _NOTED_FROM_S) and len(noted) < _MAX_NOTED:
            noted.append(Hold(wall_s, cpu_s, collections.total_s - gc_s, _name_of(handle)))

    gc.callbacks.append(collections.note)
    handle_class._run = run  # every callback goes through here
    try:
        yield noted
    finally:
        handle_class._run = original
        gc.callbacks.remove(collections.note)


def _name_of(handle: Any) -> str:
    callback = handle._callback
    owner = getattr(callback, "__self__", None)
    # Not repr: aiohttp's responses cache their headers on first access, even if there are none yet.
    name = getattr(callback, "__qualname__", type(callback).__name__)
    return owner.get_name() if isinstance(owner, asyncio.Task) else str(name)


class Sampler:
    """A thread that asks the loop for an answer again and again. `longest_s`: the longest wait since `reset`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="sampler", daemon=True)
        self.longest_s = 0.0

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def reset(self) -> None:
        """Forget what was measured."""
        self.longest_s = 0.0

    def _ask(self) -> None:
        answered = threading.Event()
        while not self._ended.is_set():
            # Due before this thread runs again: a loop in Python code keeps it from that, too.
            due_s = time.monotonic() + _ASKED_EVERY_S
            self._ended.wait(_ASKED_EVERY_S)
            answered.clear()
            try:
                self._loop.call_soon_threadsafe(self._answer, due_s, answered)
            except RuntimeError:  # the loop is closed
                return
            while not answered.wait(1.0) and not self._ended.is_set():
                pass

    def _answer(self, due_s: float, answered: threading.Event) -> None:
        self.longest_s = max(self.longest_s, time.monotonic() - due_s)
        answered.set()

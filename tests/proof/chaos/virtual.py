"""
An event loop with a virtual clock: when nothing is left to do, it leaps to the next timer.

Client, proxy and server run in the same loop and loopback sockets deliver at once, so the loop never waits: minutes of
backoffs and leases pass in a second, and one seed gives one run, as far as sockets allow.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import itertools
import selectors
import socket
import time
from asyncio.trsock import TransportSocket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: Real seconds after which a socket is silent for good: the kernel delivers on loopback while it sends.
#: Slept, since epoll waits whole milliseconds.
_REAL_WAIT_S = 0.00005
_START_S = 10_000.0
_BUFFER_BYTES = 1 << 20
#: Turns of the loop at one moment, many times those of the busiest moment of a run (184), and the time of each further
#: turn. Without this a client that repeats its request at every answer would stop the clock, and with it the
#: timeouts that end such a loop in real time.
_TURNS_IN_A_MOMENT = 5_000
_TURN_S = 0.01


class _Selector(selectors.DefaultSelector):
    """A selector that never waits: if nothing is ready, it calls `leap` with the time to sleep."""

    leap: Callable[[float], None]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if (ready := super().select(0)) or timeout == 0:
            return list(ready)
        time.sleep(_REAL_WAIT_S)
        if (ready := super().select(0 if timeout is not None else _REAL_WAIT_S)) or timeout is None:
            return list(ready)
        self.leap(timeout)
        return []


class _Timer(asyncio.TimerHandle):
    """A timer handle that orders timers of the same moment by age."""

    __slots__ = ("number",)
    number: int

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, _Timer):
            return NotImplemented
        return (self.when(), self.number) < (other.when(), other.number)


def _widen(sock: socket.socket | TransportSocket) -> None:
    """Let the buffers hold any message: the kernel grows small ones by its own clock, and each piece is a turn."""
    for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, buffer, _BUFFER_BYTES)


class _Task(asyncio.Task[T]):
    """A task with its number as hash, so that the sets in which task groups keep their tasks have one order."""

    def __init__(self, number: int, *args: Any, **settings: Any) -> None:
        self._number = number
        super().__init__(*args, **settings)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with a virtual clock for every sleep and timeout."""

    def __init__(self) -> None:
        self._virtual_s = _START_S
        self._n_turns = 0
        self._scheduled: list[_Timer]
        self._numbers = itertools.count()
        #: Called between any two turns of the loop, if set.
        self.between_turns: Callable[[], None] | None = None
        selector = _Selector()
        selector.leap = self._leap
        super().__init__(selector)
        self.set_task_factory(
            lambda loop, work, **settings: _Task(next(self._numbers), work, loop=loop, **settings)
        )

    def time(self) -> float:
        return self._virtual_s

    async def create_server(self, *args: Any, **settings: Any) -> asyncio.Server:
        """Listen; accepted sockets get the buffers of the listening one."""
        server = await super().create_server(*args, **settings)
        for listener in server.sockets:
            _widen(listener)
        return server

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        _widen(sock)
        await super().sock_connect(sock, address)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        timer.number = next(self._numbers)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]  # as asyncio's own does, so that it is cancelled with care
        return timer

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]  # asyncio's own, unchanged since 3.4
        self._n_turns += 1
        if self._n_turns > _TURNS_IN_A_MOMENT:
            self._virtual_s += _TURN_S
        if self.between_turns is not None:
            self.between_turns()

    def _leap(self, seconds: float) -> None:
        self._virtual_s += max(seconds, 1e-9)
        self._n_turns = 0


@contextlib.contextmanager
def after_turns(n_turns: int, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` once the loop has turned so often since the begin of the block, at once for 0."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    left = n_turns

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            act()

    if n_turns == 0:
        act()
    loop.between_turns = count
    yield
    loop.between_turns = None


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on a loop of its own and return its result."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)

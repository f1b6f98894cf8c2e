"""
Writes Events without ever holding up a decision or a bind: a bounded queue, a few workers, and the first to give way.

Events wait while binds are under way, since a pod can start once it is bound, and tells of it as well a second later.
They are what a busy API server can do without: they are dropped when the queue is full, when the server says 429, and
when it refuses them; only a server that cannot be reached is tried again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Literal

from scheduler.errors import ApiError, NotFound, Throttled, Unreachable
from scheduler.kube.client import KubeClient
from scheduler.kube.event_series import FINISH_S, REFRESH_S, EventKey, EventSeries, EventWrite
from scheduler.kube.requests import Request

#: Events waiting, 1.5 KB each; more are dropped. Four times client-go's maxQueuedEvents, since they wait behind binds.
QUEUE_LIMIT: Final = 4096
#: Where more events wait they are written beside the binds.
BEHIND_LIMIT: Final = QUEUE_LIMIT // 2
#: How long an event waits behind binds, and after the last that was sent: its answer may never come.
BEHIND_S: Final = 2.0
BEHIND_ONE_S: Final = 0.25
#: Writes at a time. Events of one object always go through the same worker, hence in order.
WORKERS: Final = 8
#: A server that cannot be reached is tried so often, so far apart, with up to a quarter of jitter.
MAX_TRIES: Final = 12
RETRY_S: Final = 10.0
TIMEOUT_S: Final = 10.0
#: Events of the table, which has up to 10,000, that are finished before others get their turn: 20 µs each.
_AT_ONCE: Final = 50
#: Quiet time after a 429 without Retry-After, and the longest that is kept.
QUIET_S: Final = 1.0
QUIET_CAP_S: Final = 120.0


@dataclass(slots=True)
class RecorderCounts:
    """What became of the events; series of which only a count was kept are in none."""

    written: int = 0
    #: Dropped because the queue was full.
    overflowed: int = 0
    #: Dropped because the server asked for quiet.
    shed: int = 0
    #: Refused by the server, or given up after `MAX_TRIES`.
    failed: int = 0
    #: Text of the last failure, for the log.
    last_error: str = field(default="")


class EventRecorder:
    """
    A queue of events and the tasks that write them.

    Args:
        client: sends the requests.
        clock_s: seconds since the epoch, for the Events themselves.
        now_s: a monotonic clock, for quiet times and for how long binds are waited for.
        sleep: waits between attempts.
        chance: draws from [0, 1) for jitter.
        on_dropped: told of every event that will not be written.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        clock_s: Callable[[], float] = time.time,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
        on_dropped: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._on_dropped = on_dropped
        self._series = EventSeries()
        self._clock_s, self._now_s, self._sleep, self._chance = clock_s, now_s, sleep, chance
        #: Events, and when each has waited behind binds for long enough.
        self._queues: list[asyncio.Queue[tuple[EventWrite, float]]] = [
            asyncio.Queue() for _ in range(WORKERS)
        ]
        #: Writes accepted and not finished; the bound of all queues together.
        self._pending = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._quiet_until_s = 0.0
        #: Set while events are written, not while they wait behind binds; when that ends, whatever becomes of these.
        self._has_way = asyncio.Event()
        self._has_way.set()
        self._has_way_at_s = 0.0
        self.counts = RecorderCounts()

    def record(self, key: EventKey, note: str) -> None:
        """The event is queued, folded into its series, or dropped and counted. Never waits, never raises."""
        if self._pending >= QUEUE_LIMIT:
            self._drop("overflowed")
        elif self._is_quiet():
            self._drop("shed")
        elif write := self._series.observe(key, note, self._clock_s()):
            self._enqueue(write)

    def be_quiet(self, seconds: float) -> None:
        """Drop events for so long: whoever meets a 429 says so here, since events go first."""
        until_s = self._now_s() + min(seconds, QUIET_CAP_S)
        self._quiet_until_s = max(self._quiet_until_s, until_s)

    def give_way(self) -> None:
        """
        A bind is sent: events wait for `go_on`, but no more than `BEHIND_LIMIT` of them.

        For `BEHIND_ONE_S` after the last call, and each for `BEHIND_S`: between two binds there may be time for a few
        events alone, however often that is.
        """
        self._has_way_at_s = self._now_s() + BEHIND_ONE_S
        if self._pending <= BEHIND_LIMIT:
            self._has_way.clear()

    def go_on(self) -> None:
        """No bind is under way: events are written."""
        self._has_way.set()

    async def run(self) -> None:
        """Write events until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number, queue in enumerate(self._queues):
                group.create_task(self._work(queue), name=f"event writer {number}")
            group.create_task(self._keep_series(), name="event series")

    async def drain(self, timeout_s: float) -> None:
        """Wait until all that was recorded is written or dropped, but not longer than `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            self.counts.last_error = f"{self._pending} events were not written in time"

    def _enqueue(self, write: EventWrite) -> None:
        self._pending += 1
        self._idle.clear()
        if self._pending > BEHIND_LIMIT:
            self._has_way.set()
        queue = self._queues[hash(write.key.regarding.uid) % WORKERS]
        queue.put_nowait((write, self._now_s() + BEHIND_S))

    async def _work(self, queue: asyncio.Queue[tuple[EventWrite, float]]) -> None:
        while True:
            write, at_latest_s = await queue.get()
            try:
                await self._turn(at_latest_s)
                await self._write(write)
            finally:
                self._pending -= 1
                if self._pending == 0:
                    self._idle.set()

    async def _turn(self, at_latest_s: float) -> None:
        while not self._has_way.is_set():
            left_s = min(self._has_way_at_s, at_latest_s) - self._now_s()
            if left_s <= 0.0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._has_way.wait()

    async def _keep_series(self) -> None:
        refreshed_s = self._clock_s()
        while True:
            await self._sleep(FINISH_S)
            now_s = self._clock_s()
            writes: Iterable[EventWrite | None] = self._series.finish_idle(now_s)
            if now_s - refreshed_s >= REFRESH_S:
                refreshed_s = now_s
                writes = chain(writes, self._series.refresh())
            for number, write in enumerate(writes):
                if number % _AT_ONCE == 0:
                    await asyncio.sleep(0)
                if write is None:
                    continue
                if self._pending < QUEUE_LIMIT:
                    self._enqueue(write)
                else:
                    self._drop("overflowed")

    async def _write(self, write: EventWrite) -> None:
        for tried in range(1, MAX_TRIES + 1):
            if self._is_quiet():
                self._drop("shed")
                return
            try:
                await self._send(write.request, write.on_missing)
            except Unreachable as error:
                if tried == MAX_TRIES:
                    self._drop("failed", error)
                    return
                await self._sleep(RETRY_S * (1.0 + 0.25 * self._chance()))
            except Throttled as error:
                self.be_quiet(error.retry_after_s or QUIET_S)
                self._drop("shed", error)
                return
            except ApiError as error:
                self._drop("failed", error)
                return
            else:
                self.counts.written += 1
                return

    def _is_quiet(self) -> bool:
        return self._now_s() < self._quiet_until_s

    def _drop(self, how: Literal["overflowed", "shed", "failed"], error: ApiError | None = None) -> None:
        match how:
            case "overflowed":
                self.counts.overflowed += 1
            case "shed":
                self.counts.shed += 1
            case "failed":
                self.counts.failed += 1
        if error is not None:
            self.counts.last_error = str(error)
        self._on_dropped()

    async def _send(self, request: Request, on_missing: Request | None) -> None:
        try:
            await self._client.request(request, timeout_s=TIMEOUT_S)
        except NotFound:
            if on_missing is None:
                raise
            await self._client.request(on_missing, timeout_s=TIMEOUT_S)

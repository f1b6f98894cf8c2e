"""
Writes Events without delaying decisions or binds: a bounded queue and a few workers.

Events wait while binds are in flight, since a pod can start once it is bound and its event may come a second later. A
busy API server can do without them: they are dropped when the queue is full, after a 429, and when the server refuses
them. They are sent again only if the server was unreachable.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext, suppress
from itertools import chain
from typing import Final

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.event_series import (
    FINISH_S,
    REFRESH_S,
    EventKey,
    EventSeries,
    EventWrite,
    ObjectReference,
)
from scheduler.daemon.writes.sending import EVENT, Sender
from scheduler.engine.model.pods import Pod
from scheduler.errors import NotFound, Throttled

#: Limit on queued events, 1.5 KB each; further ones are dropped. Four times client-go's maxQueuedEvents, since events
#: wait for binds.
QUEUE_LIMIT: Final = 4096
#: With more events queued, events no longer wait for binds.
DEFER_LIMIT: Final = QUEUE_LIMIT // 2
#: Longest wait of an event for binds, and after the last bind was sent, whose answer may never come.
DEFER_S: Final = 2.0
DEFER_AFTER_BIND_S: Final = 0.25
#: Workers. All events of one object go through the same one, hence in order.
WORKERS: Final = 8
#: Writes at a time, unless more than `DEFER_LIMIT` are queued: each that is in flight on a busy server delays binds.
_WRITES: Final = 2
#: Series that are finished or refreshed before other tasks run, 20 µs each; there are up to 10,000.
_SERIES_PER_STEP: Final = 50
#: Time for which events are dropped after a 429 without Retry-After, and its upper limit.
DROP_S: Final = 1.0
DROP_CAP_S: Final = 120.0


def pod_reference(pod: Pod) -> ObjectReference:
    """Return the reference that an Event about the pod contains."""
    return ObjectReference("Pod", pod.namespace, pod.name, pod.uid, resource_version=pod.resource_version)


class EventRecorder:
    """
    A queue of events and the tasks that write them.

    `clock_s` is the time since the epoch, for the Events themselves; `now_s` a monotonic clock. `on_dropped` is called
    for every event that will not be written. `leads` returns whether this instance reports: the timers of a standby
    are due too, and what they report is the leader's to say.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        clock_s: Callable[[], float] = time.time,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
        on_dropped: Callable[[], None] = lambda: None,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self._sender, self._leads = Sender(client, sleep=sleep, jitter=jitter), leads
        self._on_dropped = on_dropped
        self._series = EventSeries()
        self._clock_s, self._now_s, self._sleep = clock_s, now_s, sleep
        #: Events, and until when each waits for binds.
        self._queues: list[asyncio.Queue[tuple[EventWrite, float]]] = [
            asyncio.Queue() for _ in range(WORKERS)
        ]
        #: Unfinished writes of all queues.
        self._pending = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._drop_until_s = 0.0
        #: Clear while events wait for binds, at most until `_may_write_from_s`.
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._may_write_from_s = 0.0
        self._few = asyncio.Semaphore(_WRITES)

    def record(self, key: EventKey, note: str) -> None:
        """Queue the event, count it in its series, or drop it. Never waits, never raises."""
        if not self._leads():
            return
        if self._pending >= QUEUE_LIMIT or self._is_dropping():
            self._on_dropped()
        elif write := self._series.observe(key, note, self._clock_s(), self._now_s()):
            self._enqueue(write)

    def drop_for(self, seconds: float) -> None:
        """Drop events for `seconds`. Called after a 429 of any request, since events matter least."""
        until_s = self._now_s() + min(seconds, DROP_CAP_S)
        self._drop_until_s = max(self._drop_until_s, until_s)

    def defer_to_binds(self) -> None:
        """
        Let events wait because a bind was sent, unless more than `DEFER_LIMIT` are queued.

        They wait until `resume`, until `DEFER_AFTER_BIND_S` after the last call, or for `DEFER_S` each.
        """
        self._may_write_from_s = self._now_s() + DEFER_AFTER_BIND_S
        if self._pending <= DEFER_LIMIT:
            self._may_write.clear()

    def resume(self) -> None:
        """Write events: no bind is in flight."""
        self._may_write.set()

    async def run(self) -> None:
        """Write events until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number, queue in enumerate(self._queues):
                group.create_task(self._work(queue), name=f"event writer {number}")
            group.create_task(self._maintain_series(), name="event series")

    async def drain(self, timeout_s: float) -> None:
        """Wait until all recorded events are written or dropped, at most for `timeout_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()

    def _enqueue(self, write: EventWrite) -> None:
        if self._pending >= QUEUE_LIMIT:
            self._on_dropped()
            return
        self._pending += 1
        self._idle.clear()
        if self._pending > DEFER_LIMIT:
            self._may_write.set()
        queue = self._queues[hash(write.key.regarding.uid) % WORKERS]
        queue.put_nowait((write, self._now_s() + DEFER_S))

    async def _work(self, queue: asyncio.Queue[tuple[EventWrite, float]]) -> None:
        while True:
            write, deadline_s = await queue.get()
            try:
                await self._wait_for_binds(deadline_s)
                await self._write(write)
            finally:
                self._pending -= 1
                if self._pending == 0:
                    self._idle.set()

    async def _wait_for_binds(self, deadline_s: float) -> None:
        while not self._may_write.is_set():
            left_s = min(self._may_write_from_s, deadline_s) - self._now_s()
            if left_s <= 0.0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._may_write.wait()

    async def _maintain_series(self) -> None:
        refreshed_s = self._now_s()
        while True:
            await self._sleep(FINISH_S)
            now_s = self._now_s()
            writes: Iterable[EventWrite | None] = self._series.finish_idle(now_s)
            if now_s - refreshed_s >= REFRESH_S:
                refreshed_s = now_s
                writes = chain(writes, self._series.refresh())
            for number, write in enumerate(writes):
                if number % _SERIES_PER_STEP == 0:
                    await asyncio.sleep(0)
                if write is not None:
                    self._enqueue(write)

    async def _write(self, write: EventWrite) -> None:
        async def attempt(_number: int) -> bool:
            if self._is_dropping():
                return False
            # A pause between attempts takes no turn from other events.
            async with nullcontext() if self._pending > DEFER_LIMIT else self._few:
                try:
                    await self._sender.request(write.request)
                except NotFound:
                    if write.on_missing is None:
                        raise
                    await self._sender.request(write.on_missing)
            return True

        outcome = await self._sender.repeat(EVENT, attempt)
        if isinstance(outcome, Throttled):
            self.drop_for(outcome.retry_after_s or DROP_S)
        if outcome is not True:
            self._on_dropped()

    def _is_dropping(self) -> bool:
        return self._now_s() < self._drop_until_s

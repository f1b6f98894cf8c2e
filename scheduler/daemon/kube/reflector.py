"""Runs a `ListWatch` against a server: sends the requests that it asks for and reports the responses."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from itertools import chain
from typing import Generic

import msgspec

from scheduler.daemon.kube.changes import Change, T
from scheduler.daemon.kube.client import SILENT_S, KubeClient
from scheduler.daemon.kube.comparison import Comparison
from scheduler.daemon.kube.list_watch import (
    ITEMS_PER_STEP,
    Action,
    FetchPage,
    ListWatch,
    OpenStream,
    Pause,
    Publish,
    Step,
)
from scheduler.daemon.kube.pager import list_pages
from scheduler.daemon.kube.requests import Request, WatchPath
from scheduler.errors import ApiError, InvariantViolation

#: Pauses of a comparison: between two pages, and between its two lists.
PAGE_PAUSE_S = 0.1
SECOND_LIST_AFTER_S = 30.0
#: A healthy server returns a page of 500 pods within two seconds.
PAGE_TIMEOUT_S = 60.0
#: Other tasks run after this time or this many pieces of work, whichever is first.
_SLICE_S = 0.003
_MAX_PIECES = 10
#: Objects per piece of a comparison, 4 µs each.
_COMPARED_PER_PIECE = 50


class Reflector(Generic[T]):
    """
    Keeps one collection in sync while `batches` is being read; for `is_absence` see `ListWatch`.

    `list_watch` has its progress. A watch that brings nothing for `silent_s` is reopened.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: WatchPath,
        decode: Callable[[msgspec.Raw], T],
        *,
        is_absence: Callable[[ApiError], bool] = lambda _: False,
        silent_s: float = SILENT_S,
        jitter: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._resource = resource
        self.list_watch: ListWatch[T] = ListWatch(resource, decode, jitter=jitter, is_absence=is_absence)
        self._silent_s = silent_s
        self._sleep = sleep
        self._now_s = now_s
        #: Breaks the connection of the open watch.
        self._break_watch: Callable[[], None] = _nothing_to_break
        #: When other tasks last ran, and the number of pieces of work since then.
        self._yielded_at_s = now_s()
        self._n_pieces = 0
        #: When the server last sent anything about the collection, bookmarks included.
        self.last_heard_s = now_s()

    async def batches(self) -> AsyncGenerator[list[Change[T]], None]:
        """
        Yield changes in batches, without end. Apply each batch as a whole, in order; see `changes` and `list_watch`.

        Wrap in `contextlib.aclosing`, so that the connection is closed when the caller stops reading. Call it once.
        Failures of the server are published as Interrupted and retried.
        """
        step: Step = Pause(0.0)
        while True:
            next_step: Step | None = None
            outcomes = self._stream(step.request) if isinstance(step, OpenStream) else self._run_step(step)
            async with aclosing(outcomes):
                async for actions in outcomes:
                    published = deque(action.changes for action in actions if isinstance(action, Publish))
                    next_step = next((one for one in actions if not isinstance(one, Publish)), None)
                    del actions
                    # A suspended generator keeps no objects alive that are gone by now.
                    while published:
                        yield published.popleft()
                    if next_step is not None:
                        break
            if next_step is None:
                raise InvariantViolation("the list-watch protocol has no next step", (repr(step),))
            step = next_step

    def reopen(self) -> None:
        """Break the open watch, if there is one. It resumes at its last version on a new connection."""
        self._break_watch()

    async def compare(
        self, second_list_after_s: float = SECOND_LIST_AFTER_S, *, page_pause_s: float = PAGE_PAUSE_S
    ) -> AsyncGenerator[tuple[int, list[Change[T]]], None]:
        """
        Compare the store with the server's lists; yield the number of divergent objects and their repairs.

        Apply the changes of each step as one batch, at once; other tasks run between steps. The comparison ends early,
        maybe before its first step, if the reflector itself starts to list, which repairs every difference. The second
        list is read only if the first one finds differences. Raises ApiError if the server returns no list.
        """
        if not self.list_watch.is_settled():
            return
        comparison = Comparison(self.list_watch.store)
        for _ in comparison.note_stored():
            await self._yield_if_due()
        async for piece in self._list(page_pause_s):
            for raw in piece:
                comparison.compare_first(raw)
        comparison.end_first()
        if comparison.n_suspects:
            await self._sleep(second_list_after_s)
            async for piece in self._list(page_pause_s):
                for raw in piece:
                    comparison.compare_second(raw)
        if not self.list_watch.is_settled():
            return
        for repaired in chain(((0, []),), comparison.repair()):
            yield repaired
            await self._yield_if_due()
            if not self.list_watch.is_settled():
                return

    async def _list(self, page_pause_s: float) -> AsyncGenerator[list[msgspec.Raw], None]:
        """Yield the objects of the collection in pieces, with a pause after each page."""
        async with aclosing(list_pages(self._client, self._resource, timeout_s=PAGE_TIMEOUT_S)) as listing:
            async for items in listing:
                for start in range(0, len(items), _COMPARED_PER_PIECE):
                    await self._yield_if_due()
                    yield items[start : start + _COMPARED_PER_PIECE]
                await self._sleep(page_pause_s)

    async def _yield_if_due(self) -> None:
        """Let other tasks run if `_SLICE_S` or `_MAX_PIECES` is used up."""
        self._n_pieces += 1
        if self._n_pieces > _MAX_PIECES or self._now_s() - self._yielded_at_s > _SLICE_S:
            await asyncio.sleep(0)
            self._note_yield()

    def _note_yield(self) -> None:
        self._n_pieces, self._yielded_at_s = 0, self._now_s()

    async def _run_step(self, step: Pause | FetchPage) -> AsyncGenerator[list[Action[T]], None]:
        """Take the step, and yield the actions that follow, once."""
        if isinstance(step, Pause):
            await (self._sleep(step.seconds) if step.seconds > 0 else self._yield_if_due())
            yield self.list_watch.on_due()
            return
        try:
            body = await self._client.request(step.request, timeout_s=PAGE_TIMEOUT_S)
        except ApiError as error:
            yield self.list_watch.on_failure(error)
            return
        self.last_heard_s = self._now_s()
        yield self.list_watch.on_page(body)

    async def _stream(self, request: Request) -> AsyncGenerator[list[Action[T]], None]:
        """Yield the actions that follow each piece of the stream, and its end."""
        opened_s = self._now_s()
        try:
            stream = self._client.stream(request, silent_s=self._silent_s, on_open=self._set_break_watch)
            async with aclosing(stream) as batches:
                async for lines in batches:
                    self._note_yield()
                    self.last_heard_s = self._now_s()
                    for start in range(0, len(lines), ITEMS_PER_STEP):
                        if start:
                            await self._yield_if_due()
                        yield self.list_watch.on_lines(lines[start : start + ITEMS_PER_STEP])
        except ApiError as error:
            yield self.list_watch.on_failure(error)
            return
        finally:
            self._break_watch = _nothing_to_break
        self.last_heard_s = self._now_s()
        yield self.list_watch.on_stream_end(self.last_heard_s - opened_s)

    def _set_break_watch(self, break_watch: Callable[[], None]) -> None:
        self._break_watch = break_watch


def _nothing_to_break() -> None:
    """No watch is open."""

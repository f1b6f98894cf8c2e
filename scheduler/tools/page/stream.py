"""The page's streams: the newest state and decisions, as server-sent events."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from aiohttp import web

from scheduler.tools.page.answers import Asked, error_answer
from scheduler.tools.page.decisions import DecisionFeed
from scheduler.tools.page.files import SECURITY_HEADERS
from scheduler.tools.page.now import Now

#: Time between two messages of a stream.
TICK_S: Final = 0.5
#: How old a message about the state may be: viewers share it. It takes 2 ms.
_SHARED_S: Final = 0.4
#: Open streams. The port has 64 connections, and probes need some.
MAX_VIEWERS: Final = 32
#: A stream ends after this. The page opens another one.
_STREAM_S: Final = 300.0
#: A viewer that takes nothing for this long is let go.
_STALLED_S: Final = 30.0
_DECISIONS_PER_TICK: Final = 20


class PageStream:
    """The streams of all viewers, who share the state's messages. `may_view`: whether a request's user still may."""

    def __init__(
        self,
        now: Callable[[Asked], Awaitable[Now]],
        feed: DecisionFeed,
        may_view: Callable[[web.Request], Awaitable[bool]],
    ) -> None:
        self._now, self._feed, self._may_view = now, feed, may_view
        self._n_viewers = 0
        self._stopping = asyncio.Event()
        #: When the last message about the state was made, and the message.
        self._state_message: tuple[float, bytes] = (-math.inf, b"")

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Send the newest state until the viewer goes, the stream has been open for long, or all are ended."""
        if self._n_viewers >= MAX_VIEWERS:
            return error_answer(503, f"{MAX_VIEWERS} viewers are connected already", retry_after_s=10)
        headers = {**SECURITY_HEADERS, "Cache-Control": "no-store", "Content-Type": "text/event-stream"}
        response = web.StreamResponse(headers=headers)
        self._n_viewers += 1
        try:
            await response.prepare(request)
            async with asyncio.timeout(_STREAM_S):
                await self._send_until_stopped(request, response)
        except (TimeoutError, ConnectionError):
            pass  # the page connects again
        finally:
            self._n_viewers -= 1
        return response

    async def _send_until_stopped(self, request: web.Request, response: web.StreamResponse) -> None:
        """
        Send the newest state at every tick; a viewer that does not read gets fewer ticks, never a longer queue.

        At most the connection's buffer of 64 KB and one message wait for a viewer.
        """
        shown = self._feed.newest
        while not self._stopping.is_set():
            message = await self._message()
            if self._feed.newest > shown:
                if not await self._may_view(request):
                    return
                message += _event("decisions", self._feed.after(shown, _DECISIONS_PER_TICK))
                shown = self._feed.newest
            async with asyncio.timeout(_STALLED_S):
                await response.write(message)
            try:
                async with asyncio.timeout(TICK_S):
                    await self._stopping.wait()
            except TimeoutError:
                continue

    async def _message(self) -> bytes:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._state_message[0] > _SHARED_S:
            self._state_message = (now_s, _event("now", await self._now({})))
        return self._state_message[1]

    async def end_all(self, _: web.Application) -> None:
        """End every stream."""
        self._stopping.set()


def _event(name: str, data: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))

"""
Connections, bounded in number and in time: a port that strangers reach must not cost more for being asked more.

aiohttp waits for ever for the first request of a connection, and takes any number of them. Here a connection that has
not brought a whole request in time is ended, TLS handshake included, and where there are too many, the one that has
been without a request for longest gives way to the newcomer. Requests under way are left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from typing import Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

#: Connections at a time: a few probes and scrapers are what is expected, and with TLS each takes up to 0.7 MB.
MAX_CONNECTIONS: Final = 64
#: From the connection to its first whole request; Go's servers wait 32 s for a header.
FIRST_REQUEST_S: Final = 10.0
#: Connections kept open without a request: a scraper comes every 10 to 60 s.
KEEP_ALIVE_S: Final = 75.0
#: How long answers under way may take when the server stops, as upstream's.
DRAIN_S: Final = 5.0
_BACKLOG: Final = 128
#: Between two connections that are taken: a handshake costs about 1 ms, in which nothing is scheduled.
PACE_S: Final = 0.005
#: A pause where the process has no file descriptor left.
_EXHAUSTED_S: Final = 0.5
#: How long a peer may take to say goodbye; asyncio waits half a minute.
_GOODBYE_S: Final = 1.0


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a line tells of a fault of this program; what is no HTTP is the peer's, and it may send a lot of that."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_LOG: Final = logging.getLogger("aiohttp.server.bounded")
_LOG.addFilter(_is_ours)


class Listener:
    """
    Serves an aiohttp application on one address and port; nothing before `start` and after `stop`.

    Args:
        application: not yet frozen.
        tls: None for plain HTTP.
        max_connections: see `MAX_CONNECTIONS`.
        first_request_s: see `FIRST_REQUEST_S`.
        pace_s: between two connections that are taken; see `PACE_S`.
    """

    def __init__(
        self,
        application: web.Application,
        *,
        tls: ssl.SSLContext | None = None,
        max_connections: int = MAX_CONNECTIONS,
        first_request_s: float = FIRST_REQUEST_S,
        pace_s: float = PACE_S,
    ) -> None:
        self._tls = tls
        self._max_connections = max_connections
        self._first_request_s = first_request_s
        self._pace_s = pace_s
        application.middlewares.insert(0, self._marking())
        self._runner = web.AppRunner(
            application,
            access_log=None,
            logger=_LOG,
            keepalive_timeout=KEEP_ALIVE_S,
            shutdown_timeout=DRAIN_S,
        )
        #: By aiohttp's half; those without a request for longest come first.
        self._open: dict[object, _Connection] = {}
        self._acceptors: list[asyncio.Task[None]] = []
        self._serving: asyncio.Task[None] | None = None

    async def start(self, address: str, port: int) -> int:
        """It listens; the port, which is a free one where 0 was asked for. Raises: OSError."""
        sockets = await _bound(address, port)
        await self._runner.setup()
        self._serving = asyncio.create_task(self._serve(sockets), name="port")
        bound: int = sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Nothing is served; answers under way had their time. Harmless if nothing was served."""
        if self._serving is None:
            return
        for acceptor in self._acceptors:
            acceptor.cancel()
        # aiohttp would wait for the first request of a connection that it has only just been given.
        for connection in self._open.values():
            if connection.is_new and connection.task is not None:
                connection.task.cancel()
        await self._runner.cleanup()
        await asyncio.wait([self._serving], timeout=_GOODBYE_S)
        self._serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._serving
        self._serving = None

    async def _serve(self, sockets: list[socket.socket]) -> None:
        async with asyncio.TaskGroup() as group:
            for each in sockets:
                self._acceptors.append(group.create_task(self._accept(each, group), name="accepting"))

    async def _accept(self, listening: socket.socket, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                try:
                    taken, _ = await loop.sock_accept(listening)
                except OSError:  # no file descriptor left, or a peer that has gone meanwhile
                    await asyncio.sleep(_EXHAUSTED_S)
                    continue
                if self._has_room():
                    connection = _Connection(self._handler())
                    self._open[connection.handler] = connection
                    connection.task = group.create_task(self._hold(connection, taken), name="connection")
                else:
                    taken.close()
                await asyncio.sleep(self._pace_s)

    def _handler(self) -> asyncio.Protocol:
        if self._runner.server is None:
            raise AssertionError("started before it accepts")
        return self._runner.server()

    def _has_room(self) -> bool:
        """Whether a newcomer may come in; the longest without a request has to go where there are too many."""
        if len(self._open) < self._max_connections:
            return True
        idle = next((each for each in self._open.values() if not each.is_busy), None)
        if idle is None or idle.task is None:
            return False
        del self._open[idle.handler]
        idle.task.cancel()
        return True

    async def _hold(self, connection: _Connection, taken: socket.socket) -> None:
        """Until the connection is lost, has been silent for too long, or has to go."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._first_request_s) as connection.silence:
                if self._tls is None:
                    await loop.connect_accepted_socket(lambda: connection, taken)
                else:
                    await loop.connect_accepted_socket(
                        lambda: connection, taken, ssl=self._tls, ssl_shutdown_timeout=_GOODBYE_S
                    )
                await connection.lost.wait()
        except OSError:  # a failed handshake, or time is up: the peer's own fault, and it may have many
            pass
        finally:
            self._open.pop(connection.handler, None)
            connection.forget()

    def _marking(self) -> Middleware:
        @web.middleware
        async def mark(request: web.Request, handler: Handler) -> web.StreamResponse:
            connection = self._open.get(request.protocol)
            if connection is None:  # it has to go
                return await handler(request)
            connection.begin()
            try:
                return await handler(request)
            finally:
                connection.end()
                if self._open.pop(connection.handler, None) is not None:
                    self._open[connection.handler] = connection

        return mark


class _Connection(asyncio.Protocol):
    """One connection: aiohttp's half of it, and for how long it may be silent."""

    def __init__(self, handler: asyncio.Protocol) -> None:
        self.handler = handler
        self.task: asyncio.Task[None] | None = None
        self.silence: asyncio.Timeout | None = None
        self.lost = asyncio.Event()
        self.is_new = True
        self.is_busy = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is done."""
        self._transport = cast(asyncio.Transport, transport)  # streams have no other
        self.handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """As the protocol has it."""
        self.handler.data_received(data)

    def eof_received(self) -> bool | None:
        """As the protocol has it."""
        return self.handler.eof_received()

    def pause_writing(self) -> None:
        """As the protocol has it."""
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        """As the protocol has it."""
        self.handler.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """The end."""
        self.lost.set()
        self.handler.connection_lost(error)

    def begin(self) -> None:
        """A whole request has come: it may take its time."""
        self.is_new, self.is_busy = False, True
        self._may_be_silent_until(None)

    def end(self) -> None:
        """The request is answered; the next may come for a while."""
        self.is_busy = False
        self._may_be_silent_until(asyncio.get_running_loop().time() + KEEP_ALIVE_S + _GOODBYE_S)

    def forget(self) -> None:
        """
        Nothing is sent or received any more.

        A task that was cancelled keeps its last frame, where this connection is: with a way from here to there, its
        buffers of 0.3 MB would wait for the garbage collector, many at a time in a flood.
        """
        if self._transport is not None:
            self._transport.abort()
        self.task = self.silence = None

    def _may_be_silent_until(self, moment_s: float | None) -> None:
        if self.silence is not None and not self.silence.expired() and not self.lost.is_set():
            self.silence.reschedule(moment_s)


async def _bound(address: str, port: int) -> list[socket.socket]:
    """Sockets that listen on every address that a name has. Raises: OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, where in dict.fromkeys(found):
            sockets.append(socket.create_server(where[:2], family=family, backlog=_BACKLOG))
            sockets[-1].setblocking(False)
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets

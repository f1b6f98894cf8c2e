"""
An HTTP server with limits on the number of connections and on idle time.

aiohttp accepts any number of connections and waits for ever for the first request of each. Here a connection without a
complete request in time is closed, TLS handshake included. At the limit, the connection that has been idle for longest
is closed for the new one. Requests in progress are never cut off.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
from typing import Final, cast
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

#: Limit on connections. A few probes and scrapers are expected; with TLS a connection takes up to 0.7 MB.
MAX_CONNECTIONS: Final = 64
#: Time from the connection to its first complete request; Go's servers wait 32 s for a header.
FIRST_REQUEST_S: Final = 10.0
#: Time for which an idle connection stays open: scrapers come every 10 to 60 s.
KEEP_ALIVE_S: Final = 75.0
#: Time for responses in progress when the server stops, as upstream's.
DRAIN_S: Final = 5.0
_BACKLOG: Final = 128
#: Shortest time between two accepted connections: a TLS handshake blocks the event loop for about 1 ms.
ACCEPT_INTERVAL_S: Final = 0.005
#: Pause after accept failed, as it does without free file descriptors.
_ACCEPT_RETRY_S: Final = 0.5
#: Deadline of the TLS closing handshake; asyncio's default is 30 s.
_CLOSE_TIMEOUT_S: Final = 1.0


def _is_own_fault(record: logging.LogRecord) -> bool:
    """Return False for a record about malformed HTTP: a client could fill the log with it."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_LOG: Final = logging.getLogger("aiohttp.server.bounded")
_LOG.addFilter(_is_own_fault)


class Listener:
    """Serves an aiohttp application, not yet frozen, on one address and port, between `start` and `stop`."""

    def __init__(
        self,
        application: web.Application,
        *,
        tls: ssl.SSLContext | None = None,
        max_connections: int = MAX_CONNECTIONS,
        first_request_s: float = FIRST_REQUEST_S,
        accept_interval_s: float = ACCEPT_INTERVAL_S,
    ) -> None:
        self._tls = tls
        self._max_connections = max_connections
        self._first_request_s = first_request_s
        self._accept_interval_s = accept_interval_s
        application.middlewares.insert(0, self._track_requests())
        self._runner = web.AppRunner(
            application,
            access_log=None,
            logger=_LOG,
            keepalive_timeout=KEEP_ALIVE_S,
            shutdown_timeout=DRAIN_S,
        )
        #: By aiohttp's protocol object; the connection that has been idle for longest comes first.
        self._connections: dict[object, _Connection] = {}
        self._acceptors: list[asyncio.Task[None]] = []
        self._serving: asyncio.Task[None] | None = None

    async def start(self, address: str, port: int) -> int:
        """Start to listen and return the port, which the system chooses if `port` is 0. Raises: OSError."""
        sockets = await _listen(address, port)
        await self._runner.setup()
        self._serving = asyncio.create_task(self._serve(sockets), name="port")
        bound: int = sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Stop serving once responses in progress are sent, or after `DRAIN_S`. Harmless if not started."""
        if self._serving is None:
            return
        for acceptor in self._acceptors:
            acceptor.cancel()
        # aiohttp would wait for the first request of these connections.
        for connection in self._connections.values():
            if connection.is_new and connection.task is not None:
                connection.task.cancel()
        await self._runner.cleanup()
        await asyncio.wait([self._serving], timeout=_CLOSE_TIMEOUT_S)
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
                except OSError:  # no free file descriptor, or the client has closed the connection
                    await asyncio.sleep(_ACCEPT_RETRY_S)
                    continue
                if self._has_room():
                    connection = _Connection(self._handler())
                    self._connections[connection.handler] = connection
                    connection.task = group.create_task(
                        self._run_connection(connection, taken), name="connection"
                    )
                else:
                    taken.close()
                await asyncio.sleep(self._accept_interval_s)

    def _handler(self) -> asyncio.Protocol:
        if self._runner.server is None:
            raise AssertionError("started before it accepts")
        return self._runner.server()

    def _has_room(self) -> bool:
        """Return True if another connection fits; at the limit, close the one that has been idle for longest."""
        if len(self._connections) < self._max_connections:
            return True
        idle = next((each for each in self._connections.values() if not each.is_busy), None)
        if idle is None or idle.task is None:
            return False
        del self._connections[idle.handler]
        idle.task.cancel()
        return True

    async def _run_connection(self, connection: _Connection, taken: socket.socket) -> None:
        """Serve the connection until it is closed, idle for too long, or cancelled for another one."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._first_request_s) as connection.deadline:
                closing_s = None if self._tls is None else _CLOSE_TIMEOUT_S
                await loop.connect_accepted_socket(
                    lambda: connection, taken, ssl=self._tls, ssl_shutdown_timeout=closing_s
                )
                await connection.lost.wait()
        except OSError:  # a failed handshake or a timeout; not logged, since a client may cause any number
            pass
        finally:
            self._connections.pop(connection.handler, None)
            connection.abort()

    def _track_requests(self) -> Middleware:
        @web.middleware
        async def track(request: web.Request, handler: Handler) -> web.StreamResponse:
            connection = self._connections.get(request.protocol)
            if connection is None:  # it is being closed for another one
                return await handler(request)
            connection.begin()
            try:
                return await handler(request)
            finally:
                connection.end()
                if self._connections.pop(connection.handler, None) is not None:
                    self._connections[connection.handler] = connection

        return track


class _Connection(asyncio.Protocol):
    """One connection: passes everything on to aiohttp's protocol, and holds the deadline of its task."""

    def __init__(self, handler: asyncio.Protocol) -> None:
        self.handler = handler
        self.task: asyncio.Task[None] | None = None
        self.deadline: asyncio.Timeout | None = None
        self.lost = asyncio.Event()
        self.is_new = True
        self.is_busy = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # stream protocols get no other kind
        self.handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self.handler.eof_received()

    def pause_writing(self) -> None:
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        self.handler.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()
        self.handler.connection_lost(error)

    def begin(self) -> None:
        """Suspend the deadline: a complete request has arrived."""
        self.is_new, self.is_busy = False, True
        self._set_deadline(None)

    def end(self) -> None:
        """Set the deadline for the next request: the response is written."""
        self.is_busy = False
        self._set_deadline(asyncio.get_running_loop().time() + KEEP_ALIVE_S + _CLOSE_TIMEOUT_S)

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()
        # A cancelled task keeps its last frame, which refers to this connection. Without the reference back to the task
        # no cycle keeps the buffers of 0.3 MB until the next garbage collection.
        self.task = self.deadline = None

    def _set_deadline(self, at_s: float | None) -> None:
        if self.deadline is not None and not self.deadline.expired() and not self.lost.is_set():
            self.deadline.reschedule(at_s)


def is_loopback(address: str) -> bool:
    """Return True if only this machine's processes reach the address; False for every name but localhost."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def host_of(header: str) -> str:
    """Return the name or address of a Host header, without the port; empty if it is malformed."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


async def _listen(address: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on every address of the name. Raises: OSError."""
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

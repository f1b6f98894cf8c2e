"""
HTTP/1.1 requests to the API server over a pool of connections, each with one request at a time.

Written by hand because every pod takes two requests: one costs 77 µs of CPU with aiohttp's client and a third of that
here (CPython 3.11, a POST of 300 bytes to a server on the same machine). The parser is httptools'. Watches use
aiohttp, and so does every request through a proxy. Both send a GET or PUT again if the connection turns out to be
closed, and nothing else (`REPEATABLE`).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import httptools
from yarl import URL

from scheduler.daemon.kube.credentials import Endpoint
from scheduler.daemon.kube.requests import Request
from scheduler.errors import Invalid, Unauthorized, Unreachable

CONNECT_TIMEOUT_S: Final = 10.0
#: A page of 500 pods has some 3 MB; `page_size` requests fewer objects if a page exceeds the limit.
BODY_LIMIT_BYTES: Final = 64 << 20
#: Reason of the error for a longer body.
BODY_TOO_LONG: Final = "BodyTooLong"
#: Reason of a handshake that failed: the wrong certificate, or no TLS at all.
TLS_FAILURE: Final = "TLS"
#: After this idle time the server may be closing the connection, so a new one is opened.
IDLE_S: Final = 15.0
#: Methods that are sent again if the connection turns out to be closed. Not DELETE: the answer of a second one does not
#: tell whether the first one deleted the object.
REPEATABLE: Final = frozenset({"GET", "PUT"})


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response; `retry_after` is the header of that name."""

    status: int
    body: bytes
    retry_after: str | None


class DirectTransport:
    """
    Sends requests without a proxy. Create it inside a running event loop.

    With `max_connections` in use, further requests wait for one.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        user_agent: str,
        max_connections: int,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        url = URL(endpoint.server)
        self._host, self._port = url.host or "", url.port or 0
        self._prefix = url.raw_path.rstrip("/")
        self._tls: ssl.SSLContext | None = None
        if url.scheme == "https":
            self._tls = endpoint.tls or ssl.create_default_context()
        self._server_hostname = (endpoint.server_hostname or url.host) if self._tls else None
        self._headers = (
            f"Host: {url.host_port_subcomponent}\r\nAccept: application/json\r\nAccept-Encoding: identity\r\n"
            f"User-Agent: {user_agent}\r\n"
        )
        self._connection_slots = asyncio.Semaphore(max_connections)
        self._idle: list[_Connection] = []
        self._open_connections: set[_Connection] = set()
        self._now_s = now_s
        #: How often connections were retired.
        self._generation = 0

    async def send(self, request: Request, authorization: str | None, timeout_s: float) -> Response:
        """
        Return the server's response, whatever its status. A GET or PUT on a closed connection is sent once more.

        Raises Unreachable without one within `timeout_s`, and Invalid for a body longer than `BODY_LIMIT_BYTES`.
        """
        data = self._encode(request, authorization)
        is_write, sent = request.method != "GET", False
        try:
            async with asyncio.timeout(timeout_s), self._connection_slots:
                for is_last in (request.method not in REPEATABLE, True):
                    connection = self._pop_idle() or await self._connect()
                    sent = True
                    try:
                        return await self._exchange(connection, data)
                    except ConnectionError as error:
                        if is_last:
                            raise Unreachable(
                                0, "ConnectionLost", str(error), took_effect_unknown=is_write
                            ) from error
        except TimeoutError as error:
            raise Unreachable(
                0, "Timeout", f"no response within {timeout_s:g} s", took_effect_unknown=is_write and sent
            ) from error
        raise AssertionError("a request ends with a response or an error")

    def retire_connections(self) -> None:
        """Send nothing more over the connections that are open now."""
        self._generation += 1

    async def close(self) -> None:
        """Close all connections; requests in flight end with Unreachable."""
        self._idle.clear()
        for connection in self._open_connections:
            connection.abort("the client was closed")
        await asyncio.gather(*(connection.lost for connection in self._open_connections))

    def _encode(self, request: Request, authorization: str | None) -> bytes:
        lines = [f"{request.method} {self._prefix}{request.target} HTTP/1.1\r\n{self._headers}"]
        if authorization:
            if not (authorization.isascii() and authorization.isprintable()):
                raise Unauthorized(0, "InvalidToken", "the token has characters that no header can hold")
            lines.append(f"Authorization: {authorization}\r\n")
        if request.content_type:
            lines.append(f"Content-Type: {request.content_type}\r\n")
        if request.body or request.method != "GET":
            lines.append(f"Content-Length: {len(request.body)}\r\n")
        lines.append("\r\n")
        return "".join(lines).encode() + request.body

    def _pop_idle(self) -> _Connection | None:
        """Return the open connection that was used last, None if there is none. Servers close older ones first."""
        while self._idle:
            connection = self._idle.pop()
            is_fresh = self._now_s() - connection.idle_since_s < IDLE_S
            if connection.is_open and is_fresh and connection.generation == self._generation:
                return connection
            connection.abort("idle for too long, or retired")
        return None

    async def _connect(self) -> _Connection:
        """Open a connection. Raises Unreachable, in which case nothing was sent."""
        generation = self._generation
        # Addresses are tried one after the other: asyncio's happy eyeballs leaks sockets when it is cancelled.
        opening = asyncio.get_running_loop().create_connection(
            lambda: _Connection(self._open_connections),
            self._host,
            self._port,
            ssl=self._tls,
            server_hostname=self._server_hostname,
        )
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, connection = await opening
        except TimeoutError as error:
            raise Unreachable(0, "Timeout", f"cannot connect to {self._host}:{self._port} in time") from error
        except OSError as error:
            raise Unreachable(0, _error_reason(error), self._why(error)) from error
        connection.generation = generation
        return connection

    def _why(self, error: OSError) -> str:
        """Return in words why there is no connection."""
        match error:
            case ConnectionRefusedError():
                return f"nothing listens on {self._host}:{self._port}"
            case socket.gaierror():
                return f"no address is known of {self._host} ({error.strerror})"
            case ssl.SSLCertVerificationError():
                return f"the certificate of {self._host}:{self._port} is not trusted: {error.verify_message}"
        return f"cannot connect to {self._host}:{self._port}: {error.strerror or error}"

    async def _exchange(self, connection: _Connection, data: bytes) -> Response:
        """Return the response; the connection is idle or closed afterwards. Raises ConnectionError if it was lost."""
        try:
            response = await connection.send(data)
        except BaseException:
            # A late response to this request must not be taken for the response to the next one.
            connection.abort("the request was given up")
            raise
        if connection.is_open:
            connection.idle_since_s = self._now_s()
            self._idle.append(connection)
        return response


class _Connection(asyncio.Protocol):
    """One connection, idle or with one request in flight; in `open_connections` while its socket is open."""

    def __init__(self, open_connections: set[_Connection]) -> None:
        self._open_connections = open_connections
        #: Done when the socket is closed.
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[Response] | None = None
        self.is_open = True
        #: The number of retirements before it was opened.
        self.generation = 0
        self.idle_since_s = 0.0
        self._reset_response()

    def _reset_response(self) -> None:
        """Forget the response of the last request."""
        self._parts: list[bytes] = []
        self._size_bytes = 0
        self._retry_after: str | None = None
        #: True without a Content-Length or chunked encoding: the body ends when the connection is closed.
        self._ends_with_connection = True
        self._is_in_body = False

    def send(self, data: bytes) -> asyncio.Future[Response]:
        """Send the request and return the future response. It raises ConnectionError if the connection is lost."""
        self._waiting = asyncio.get_running_loop().create_future()
        if not self.is_open:
            self._waiting.set_exception(ConnectionResetError("the connection is closed"))
        else:
            self._transport.write(data)
        return self._waiting

    def abort(self, why: str) -> None:
        """Close the connection at once; a request in flight gets ConnectionError."""
        self._fail(ConnectionAbortedError(why))

    def _fail(self, error: Exception) -> None:
        self.is_open = False
        self._transport.abort()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
        self._waiting = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._open_connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._waiting is None:
            # No request is in flight: mostly a 408 before the server closes an idle connection.
            self.abort("the server sent an unsolicited response")
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(ConnectionResetError(f"not an HTTP response: {error}"))

    def eof_received(self) -> None:
        if self._is_in_body and self._ends_with_connection:
            self.is_open = False
            self.on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ConnectionResetError(str(exc) if exc else "the server closed the connection"))
        self._open_connections.discard(self)
        self.lost.set_result(None)

    # Callbacks of the parser, httptools.

    def on_message_begin(self) -> None:
        if self._waiting is None:
            self.abort("the server sent a second response")

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"retry-after":
                self._retry_after = value.decode("latin-1")
            case b"content-length" | b"transfer-encoding":
                self._ends_with_connection = False

    def on_headers_complete(self) -> None:
        self._is_in_body = True

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        self._size_bytes += len(body)
        if self._size_bytes > BODY_LIMIT_BYTES:
            self._fail(
                Invalid(self._parser.get_status_code(), BODY_TOO_LONG, f"more than {BODY_LIMIT_BYTES} bytes")
            )

    def on_message_complete(self) -> None:
        waiting, status = self._waiting, self._parser.get_status_code()
        if waiting is not None and status >= 200:
            self._waiting = None
            self.is_open = self.is_open and self._parser.should_keep_alive()
            if not waiting.done():
                waiting.set_result(Response(status, b"".join(self._parts), self._retry_after))
            if not self.is_open:
                self.abort("the server asked to close the connection")
        self._reset_response()


def _error_reason(error: OSError) -> str:
    match error:
        case ssl.SSLEOFError():  # closed during the handshake, as by a server that starts or stops
            return "ConnectionLost"
        case ssl.SSLError():
            return TLS_FAILURE
        case ConnectionRefusedError():
            return "ConnectionRefused"
    return "ConnectionLost"

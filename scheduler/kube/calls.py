"""
Calls to the API server over HTTP/1.1: a pool of connections, each with one request at a time.

By hand, because a call costs aiohttp's client 77 µs of CPU and this one a third of that (CPython 3.11, a POST of 300
bytes to a server on the same machine), and every pod takes two. The parser is httptools'. Watches are aiohttp's, and so
is everything that goes through a proxy.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, cast

import httptools
from yarl import URL

from scheduler.errors import Invalid, Unauthorized, Unreachable
from scheduler.kube.credentials import Endpoint
from scheduler.kube.requests import Request

CONNECT_TIMEOUT_S: Final = 10.0
#: A page of 500 pods has some 3 MB. Of what may be longer, `paging` asks for less at a time.
BODY_LIMIT_BYTES: Final = 64 << 20
#: The reason of an answer that is longer.
BODY_TOO_LONG: Final = "BodyTooLong"
#: A connection that was idle for longer may have been closed by the server just now: a new one is surer.
IDLE_S: Final = 15.0
#: May be sent again when the connection turns out to be closed.
_REPEATABLE: Final = frozenset({"GET", "PUT", "DELETE"})


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response."""

    status: int
    body: bytes
    retry_after: str | None


class Calls(Protocol):
    """Who carries calls: straight to the server, or through a proxy."""

    async def ask(self, request: Request, authorization: str | None, timeout_s: float) -> Answer:
        """
        The server's answer, whatever it is.

        Raises:
            Unreachable: there was none in time.
            Invalid: its body is longer than `BODY_LIMIT_BYTES`.
        """
        ...

    async def close(self) -> None:
        """All connections are closed; calls under way end with Unreachable."""
        ...


class DirectCalls:
    """
    Calls without a proxy; see `Calls`. Create it inside a running event loop.

    Args:
        endpoint: the server; its `proxy` is not looked at.
        user_agent: who asks.
        max_connections: open at a time; further calls wait for their turn.
        now_s: a monotonic clock.
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
        self._slots = asyncio.Semaphore(max_connections)
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._now_s = now_s

    async def ask(self, request: Request, authorization: str | None, timeout_s: float) -> Answer:
        """See `Calls`. A GET, PUT or DELETE is sent once more where its connection turns out to be closed."""
        data = self._encoded(request, authorization)
        is_write, sent = request.method != "GET", False
        try:
            async with asyncio.timeout(timeout_s), self._slots:
                for is_last in (request.method not in _REPEATABLE, True):
                    connection = self._taken() or await self._connected()
                    sent = True
                    try:
                        return await self._exchanged(connection, data)
                    except ConnectionError as error:
                        if is_last:
                            raise Unreachable(
                                0, "ConnectionLost", str(error), took_effect_unknown=is_write
                            ) from error
        except TimeoutError as error:
            raise Unreachable(
                0, "Timeout", f"no answer within {timeout_s:g} s", took_effect_unknown=is_write and sent
            ) from error
        raise AssertionError("a call ends with an answer or an error")

    async def close(self) -> None:
        """See `Calls`."""
        self._idle.clear()
        for connection in self._open:
            connection.abort("the client was closed")
        await asyncio.gather(*(connection.lost for connection in self._open))

    def _encoded(self, request: Request, authorization: str | None) -> bytes:
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

    def _taken(self) -> _Connection | None:
        """The connection that was used last, where it is still open; the server may be about to close older ones."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and self._now_s() - connection.idle_since_s < IDLE_S:
                return connection
            connection.abort("idle for too long")
        return None

    async def _connected(self) -> _Connection:
        """A new connection. Raises Unreachable: nothing was sent."""
        # The addresses of a name one after the other: asyncio's race of several loses sockets where it is cancelled.
        connecting = asyncio.get_running_loop().create_connection(
            lambda: _Connection(self._open),
            self._host,
            self._port,
            ssl=self._tls,
            server_hostname=self._server_hostname,
        )
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, connection = await connecting
        except TimeoutError as error:
            raise Unreachable(0, "Timeout", f"cannot connect to {self._host}:{self._port} in time") from error
        except OSError as error:
            text = f"Cannot connect to {self._host}:{self._port}: {error}"
            raise Unreachable(0, _reason(error), text) from error
        return connection

    async def _exchanged(self, connection: _Connection, data: bytes) -> Answer:
        """The answer; the connection is idle or closed afterwards. Raises ConnectionError where it ends before that."""
        try:
            answer = await connection.ask(data)
        except BaseException:
            # Given up in the middle: what comes back would be taken for the answer to the next question.
            connection.abort("nobody waits for the answer")
            raise
        if connection.is_open:
            connection.idle_since_s = self._now_s()
            self._idle.append(connection)
        return answer


class _Connection(asyncio.Protocol):
    """One connection, between calls or with one under way. Methods named on_ are the parser's callbacks."""

    def __init__(self, among: set[_Connection]) -> None:
        """It is among these for as long as its socket is open."""
        self._among = among
        self._transport: asyncio.Transport | None = None
        #: Done when the socket is closed.
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[Answer] | None = None
        self.is_open = True
        self.idle_since_s = 0.0
        self._start_answer()

    def _start_answer(self) -> None:
        self._parts: list[bytes] = []
        self._size_bytes = 0
        self._retry_after: str | None = None
        #: Whether the body ends where the connection does.
        self._ends_with_connection = True
        self._is_in_body = False

    def ask(self, data: bytes) -> asyncio.Future[Answer]:
        """The answer to come; ConnectionError where the connection is lost."""
        self._waiting = asyncio.get_running_loop().create_future()
        if self._transport is None or not self.is_open:
            self._waiting.set_exception(ConnectionResetError("the connection is closed"))
        else:
            self._transport.write(data)
        return self._waiting

    def abort(self, why: str) -> None:
        """Closed at once; whoever waits gets ConnectionError."""
        self._fail(ConnectionAbortedError(why))

    def _fail(self, error: Exception) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
        self._waiting = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._among.add(self)

    def data_received(self, data: bytes) -> None:
        if self._waiting is None:
            # Bytes that nobody asked for: a time-out that the server tells, or worse.
            self.abort("the server spoke unasked")
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(ConnectionResetError(f"not an answer: {error}"))

    def eof_received(self) -> None:
        if self._is_in_body and self._ends_with_connection:
            self.is_open = False
            self.on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ConnectionResetError(str(exc) if exc else "the server closed the connection"))
        self._among.discard(self)
        if not self.lost.done():
            self.lost.set_result(None)

    # httptools

    def on_message_begin(self) -> None:
        if self._waiting is None:
            self.abort("the server said more than it was asked")

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
                waiting.set_result(Answer(status, b"".join(self._parts), self._retry_after))
            if not self.is_open:
                self.abort("the server wants no further request on it")
        self._start_answer()


def _reason(error: OSError) -> str:
    match error:
        case ssl.SSLError():
            return "TLS"
        case ConnectionRefusedError():
            return "ConnectionRefused"
    return "ConnectionLost"

"""
The transport: sends requests, returns bytes or raises the ApiError that the answer means.

It retries nothing but a 401, and a GET, PUT or DELETE once if its connection turns out to be closed.

Watches and calls have separate connection pools: a hundred binds in flight never keep a watch from reconnecting.
Compression is off, as in kube-scheduler: unpacking costs more CPU than a local network saves.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Final, TypeAlias, TypeVar

import aiohttp
from yarl import URL

from scheduler.errors import ApiError, Invalid, SettingsError, Silent, Unauthorized, Unreachable
from scheduler.kube.calls import (
    BODY_LIMIT_BYTES,
    BODY_TOO_LONG,
    CONNECT_TIMEOUT_S,
    Answer,
    Calls,
    DirectCalls,
)
from scheduler.kube.credentials import Credentials, Endpoint
from scheduler.kube.pacing import TokenBucket
from scheduler.kube.requests import Request, Verb
from scheduler.kube.responses import error_of

_T = TypeVar("_T")

#: Receives (verb, HTTP method, status code or "<error>", host, seconds) of every answer; of a stream, its headers.
RequestHook: TypeAlias = Callable[[Verb, str, str, str, float], None]

#: A watch that says nothing for so long is taken for dead: servers send a bookmark once a minute (59 to 61 s on
#: Kubernetes 1.36, now and then none), and being wrong costs one request, since a watch is taken up where it was.
SILENT_S: Final = 75.0
#: After so many seconds of silence the kernel asks the other side's whether it is there, so often, so far apart, and a
#: connection that leads nowhere ends within half a minute (client-go asks after 30 s too, by HTTP/2 pings).
_PROBED_AFTER_S: Final = 15
_PROBES: Final = 3
_PROBES_APART_S: Final = 5
#: etcd stores no object above 1.5 MiB; aiohttp's own default of 64 KiB breaks watches of large ones.
READ_BUFFER_BYTES: Final = 2 << 20
#: The store takes objects of 1.5 MiB; as JSON they are up to six times as long, where every character is escaped.
LINE_LIMIT_BYTES: Final = 16 << 20
#: Lines handed over at a time, and bytes read at a time, so that other tasks get their turn: 2.5 ms of work.
LINES_AT_ONCE: Final = 100
BYTES_AT_ONCE: Final = 1 << 18

_WATCH_CONNECTIONS: Final = 64
_LOST: Final = (aiohttp.ClientError, OSError, TimeoutError, ssl.CertificateError)


class KubeClient:
    """
    One API server. Create it inside a running event loop and close it, or use `async with`.

    Args:
        credentials: the server and who we are to it.
        qps: requests a second in the long run, 0 or less for no limit.
        burst: requests at once above that.
        max_connections: open connections for everything but watches.
        on_request: see `RequestHook`.
        user_agent: who asks, for the server's audit log.
        now_s: a monotonic clock, for rates and durations.
        sleep: waits for the rate limit.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        qps: float = 0.0,
        burst: int = 0,
        max_connections: int = 100,
        on_request: RequestHook | None = None,
        user_agent: str | None = None,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._credentials = credentials
        self._endpoint = credentials.endpoint
        self._bucket = TokenBucket(qps=qps, burst=burst, now_s=now_s()) if qps > 0 else None
        self._on_request = on_request
        self._user_agent = user_agent or f"affinity-scheduler/{product_version()}"
        self._now_s = now_s
        self._sleep = sleep
        self._host = URL(self._endpoint.server).authority
        self._calls: Calls
        if self._endpoint.proxy is None:
            self._calls = DirectCalls(
                self._endpoint, user_agent=self._user_agent, max_connections=max_connections, now_s=now_s
            )
        else:
            self._calls = _ProxiedCalls(self._session(max_connections), self._endpoint)
        self._watches = self._session(_WATCH_CONNECTIONS)

    async def __aenter__(self) -> KubeClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """All connections are closed; streams still open end with Unreachable."""
        try:
            await self._calls.close()
        finally:
            await self._watches.close()

    async def request(
        self, request: Request, *, timeout_s: float, may_send: Callable[[], bool] = lambda: True
    ) -> bytes:
        """
        The body of the answer.

        `timeout_s` counts from when the request may leave: waiting for the rate limit does not count. `may_send` is
        asked after that wait, however long it was.

        Raises:
            ApiError: of the class that the status means; Unreachable if there was no answer in time, or if the request
                was not to be sent any more.
        """
        return await self._authorized(
            lambda authorization: self._called(request, authorization, timeout_s, may_send)
        )

    async def stream(
        self,
        request: Request,
        *,
        silent_s: float = SILENT_S,
        on_open: Callable[[Callable[[], None]], None] = lambda _: None,
    ) -> AsyncGenerator[list[bytes], None]:
        """
        The lines of the answer as they arrive, up to `LINES_AT_ONCE` together, never empty. Wrap in `aclosing`.

        Of what arrived together `BYTES_AT_ONCE` are looked at, and between two batches others have their turn.

        `on_open` gets what breaks the connection: the stream then ends with Unreachable. Harmless afterwards.
        Cost: 2 µs per 2.5 KB line; what becomes of it is measured in `reflecting`.

        Raises:
            ApiError: of the class that the status means; Unreachable if the connection is lost or the stream ends
                inside a line, Silent if nothing comes for `silent_s`; Invalid if a line exceeds `LINE_LIMIT_BYTES`.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=silent_s)
        response = await self._authorized(lambda authorization: self._opened(request, authorization, timeout))
        if response.connection is not None and (transport := response.connection.transport) is not None:
            _notice_death(transport)
            on_open(transport.abort)
        tail = _Tail()
        try:
            while data := await response.content.read(BYTES_AT_ONCE):
                lines = tail.lines(data)
                if tail.n_bytes > LINE_LIMIT_BYTES:
                    raise Invalid(200, "LineTooLong", f"a line of more than {LINE_LIMIT_BYTES} bytes")
                for start in range(0, len(lines), LINES_AT_ONCE):
                    if start:
                        await asyncio.sleep(0)
                    yield lines[start : start + LINES_AT_ONCE]
                if len(data) == BYTES_AT_ONCE or len(lines) > LINES_AT_ONCE:
                    await asyncio.sleep(0)  # more may have arrived, and is read without waiting
        except (
            *_LOST,
            RuntimeError,
        ) as error:  # aiohttp's answer to reading from a connection closed meanwhile
            raise _unreachable(error, request) from error
        finally:
            response.close()
        if tail.n_bytes:
            raise Unreachable(0, "ConnectionLost", "the stream ended inside a line")

    async def _authorized(self, send: Callable[[str | None], Awaitable[_T]]) -> _T:
        """What `send` returns. After a 401 it is called once more, with a renewed identity: a 401 had no effect."""
        authorization = await self._credentials.authorization()
        try:
            return await send(authorization)
        except Unauthorized as refusal:
            try:
                renewed = await self._credentials.renew(authorization)
            except SettingsError as error:
                raise Unauthorized(401, refusal.reason, f"{refusal.message} ({error})") from error
            if not renewed:
                raise
        return await send(await self._credentials.authorization())

    async def _called(
        self, request: Request, authorization: str | None, timeout_s: float, may_send: Callable[[], bool]
    ) -> bytes:
        await self._turn()
        if not may_send():
            raise Unreachable(0, "NotSent", "the request was not to be sent any more")
        code, started_s = "<error>", self._now_s()
        try:
            answer = await self._calls.ask(request, authorization, timeout_s)
            code = str(answer.status)
        finally:
            self._tell(request, code, started_s)
        if answer.status < 300:
            return answer.body
        raise error_of(answer.status, answer.body, retry_after=answer.retry_after)

    async def _opened(
        self, request: Request, authorization: str | None, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """An answer of 2xx, its body unread."""
        await self._turn()
        code, started_s = "<error>", self._now_s()
        try:
            response = await _sent(self._watches, self._endpoint, request, authorization, timeout)
            code = str(response.status)
            if response.status < 300:
                return response
            async with response:
                body = await _bounded_body(response)
            raise error_of(response.status, body, retry_after=response.headers.get("Retry-After"))
        except _LOST as error:
            raise _unreachable(error, request) from error
        finally:
            self._tell(request, code, started_s)

    async def _turn(self) -> None:
        if self._bucket is not None and (wait_s := self._bucket.reserve(self._now_s())) > 0:
            await self._sleep(wait_s)

    def _tell(self, request: Request, code: str, started_s: float) -> None:
        if self._on_request is not None:
            self._on_request(request.verb, request.method, code, self._host, self._now_s() - started_s)

    def _session(self, connections: int) -> aiohttp.ClientSession:
        tls = self._endpoint.tls
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, ssl=True if tls is None else tls),
            headers={
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": self._user_agent,
            },
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER_BYTES,
        )


class _ProxiedCalls:
    """Calls through a proxy; see `calls.Calls`."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        self._session = session
        self._endpoint = endpoint

    async def ask(self, request: Request, authorization: str | None, timeout_s: float) -> Answer:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(timeout_s, CONNECT_TIMEOUT_S))
        try:
            response = await _sent(self._session, self._endpoint, request, authorization, timeout)
            async with response:
                body = await _bounded_body(response)
        except _LOST as error:
            raise _unreachable(error, request) from error
        return Answer(response.status, body, response.headers.get("Retry-After"))

    async def close(self) -> None:
        await self._session.close()


async def _sent(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    request: Request,
    authorization: str | None,
    timeout: aiohttp.ClientTimeout,
) -> aiohttp.ClientResponse:
    headers = {"Authorization": authorization} if authorization else {}
    if request.content_type:
        headers["Content-Type"] = request.content_type
    return await session.request(
        request.method,
        URL(endpoint.server + request.target, encoded=True),
        data=request.body or None,
        headers=headers,
        timeout=timeout,
        allow_redirects=False,
        server_hostname=endpoint.server_hostname,
        proxy=endpoint.proxy,
    )


def product_version() -> str:
    """The installed version, `unknown` when run from a folder that was never installed."""
    try:
        return version("affinity-scheduler")
    except PackageNotFoundError:
        return "unknown"


def _notice_death(transport: asyncio.Transport) -> None:
    """The kernel ends the connection where the other side is gone without a word; a system that cannot does not."""
    connected = transport.get_extra_info("socket")
    if connected is None:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _PROBED_AFTER_S),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_KEEPINTVL", _PROBES_APART_S),
    ):
        if (option := getattr(socket, name, None)) is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


class _Tail:
    """What has come of a line that has not come to its end."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.n_bytes = 0

    def lines(self, data: bytes) -> list[bytes]:
        """The lines that have come to their end with this, empty ones left out. O(their bytes)."""
        if b"\n" not in data:
            self._parts.append(data)
            self.n_bytes += len(data)
            return []
        *lines, tail = b"".join((*self._parts, data)).split(b"\n")
        self._parts = [tail]
        self.n_bytes = len(tail)
        return [line for line in lines if line]


async def _bounded_body(response: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    size_bytes = 0
    while data := await response.content.readany():
        parts.append(data)
        size_bytes += len(data)
        if size_bytes > BODY_LIMIT_BYTES:
            raise Invalid(response.status, BODY_TOO_LONG, f"more than {BODY_LIMIT_BYTES} bytes")
    return b"".join(parts)


def _unreachable(error: Exception, request: Request) -> ApiError:
    """Whether a write took effect is unknown unless the connection was never made."""
    never_sent = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
    kind = Silent if isinstance(error, aiohttp.SocketTimeoutError) else Unreachable
    return kind(
        0,
        _reason(error),
        str(error) or type(error).__name__,
        took_effect_unknown=request.method != "GET" and not never_sent,
    )


def _reason(error: Exception) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
            return "TLS"
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            return "ConnectionRefused"
        case aiohttp.SocketTimeoutError():
            return "Silent"
        case TimeoutError():
            return "Timeout"
    return "ConnectionLost"

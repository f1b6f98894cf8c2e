"""
The API client: sends requests, returns response bodies, and raises other responses as an ApiError.

It retries only after a 401, and resends a GET or PUT once if its connection turns out to be closed.

Watches and other requests have separate connection pools, so that a hundred binds in flight never keep a watch from
reconnecting. Compression is off, as in kube-scheduler: it costs more CPU than it saves on a local network.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import TracebackType
from typing import Final, TypeAlias, TypeVar

import aiohttp
from yarl import URL

from scheduler.daemon.kube.credentials import Credentials, Endpoint
from scheduler.daemon.kube.rate_limit import TokenBucket
from scheduler.daemon.kube.requests import Request, Verb
from scheduler.daemon.kube.responses import api_error
from scheduler.daemon.kube.transport import (
    BODY_LIMIT_BYTES,
    BODY_TOO_LONG,
    CONNECT_TIMEOUT_S,
    REPEATABLE,
    DirectTransport,
    Response,
)
from scheduler.errors import (
    ApiError,
    Forbidden,
    Invalid,
    NotFound,
    ServerFault,
    SettingsError,
    Silent,
    Unauthorized,
    Unreachable,
)
from scheduler.version import product_version

_T = TypeVar("_T")

#: Called with (verb, HTTP method, status code or "<error>", host, seconds) for every response; for a watch, when its
#: headers have arrived.
RequestHook: TypeAlias = Callable[[Verb, str, str, str, float], None]

#: A watch that brings nothing for this time is treated as dead. Servers send a bookmark once a minute (59 to 61 s on
#: Kubernetes 1.36, sometimes none). A wrong guess costs one request, since a watch resumes at its last version.
SILENT_S: Final = 75.0
#: TCP keepalive: a connection to a dead host ends after 30 s (client-go sends HTTP/2 pings after 30 s).
_KEEPALIVE_IDLE_S: Final = 15
_KEEPALIVE_COUNT: Final = 3
_KEEPALIVE_INTERVAL_S: Final = 5
#: etcd stores no object above 1.5 MiB; aiohttp's default of 64 KiB breaks watches of large objects.
READ_BUFFER_BYTES: Final = 2 << 20
#: An object of 1.5 MiB is up to six times as long in JSON, if every character is escaped.
LINE_LIMIT_BYTES: Final = 16 << 20
#: Lines per batch and bytes per read: 2.5 ms of work, after which other tasks run.
MAX_LINES_PER_BATCH: Final = 100
READ_BYTES: Final = 1 << 18

_WATCH_CONNECTIONS: Final = 64
_CONNECTION_ERRORS: Final = (aiohttp.ClientError, OSError, TimeoutError, ssl.CertificateError)


class KubeClient:
    """
    A client of one API server. Create it inside a running event loop and close it, or use `async with`.

    Args:
        qps: requests per second in the long run; 0 or less for no limit.
        burst: requests that may be sent at once.
        max_connections: limit on open connections for everything but watches.
        user_agent: the User-Agent header, which the server's audit log shows.
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
        self._transport: DirectTransport | _ProxyTransport
        if self._endpoint.proxy is None:
            self._transport = DirectTransport(
                self._endpoint, user_agent=self._user_agent, max_connections=max_connections, now_s=now_s
            )
        else:
            self._transport = _ProxyTransport(self._new_session(max_connections), self._endpoint)
        self._watches = self._new_session(_WATCH_CONNECTIONS)
        #: The number of the certificate of new connections.
        self._n_certificates = credentials.n_certificates

    async def __aenter__(self) -> KubeClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; open streams end with Unreachable."""
        try:
            await self._transport.close()
        finally:
            await self._watches.close()

    async def request(
        self, request: Request, *, timeout_s: float, may_send: Callable[[], bool] = lambda: True
    ) -> bytes:
        """
        Return the body of the response. After the wait for the rate limit `may_send` is called, and `timeout_s` begins.

        Raises ApiError: the subclass that the status means; Unreachable if there was no response in time or `may_send`
        returned False.
        """
        return await self._with_authorization(
            lambda authorization: self._send(request, authorization, timeout_s, may_send)
        )

    async def stream(
        self,
        request: Request,
        *,
        silent_s: float = SILENT_S,
        on_open: Callable[[Callable[[], None]], None] = lambda _: None,
    ) -> AsyncGenerator[list[bytes], None]:
        """
        Yield the lines of the response as they arrive, in batches of 1 to `MAX_LINES_PER_BATCH`. Wrap in `aclosing`.

        Other tasks run between batches, and after every `READ_BYTES` read. `on_open` gets a function that breaks the
        connection.

        Raises ApiError: the subclass that the status means; Unreachable if the connection is lost, broken or ends
        inside a line, Silent if nothing arrives for `silent_s`; Invalid if a line exceeds `LINE_LIMIT_BYTES`.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=silent_s)
        response = await self._with_authorization(
            lambda authorization: self._open_stream(request, authorization, timeout)
        )
        if response.connection is not None and (transport := response.connection.transport) is not None:
            _enable_keepalive(transport)
            on_open(transport.abort)
        buffer = _LineBuffer()
        try:
            while data := await response.content.read(READ_BYTES):
                lines = buffer.add(data)
                if buffer.n_bytes > LINE_LIMIT_BYTES:
                    raise Invalid(200, "LineTooLong", f"a line of more than {LINE_LIMIT_BYTES} bytes")
                for start in range(0, len(lines), MAX_LINES_PER_BATCH):
                    if start:
                        await asyncio.sleep(0)
                    yield lines[start : start + MAX_LINES_PER_BATCH]
                if len(data) == READ_BYTES or len(lines) > MAX_LINES_PER_BATCH:
                    # The next read may return at once, without letting other tasks run.
                    await asyncio.sleep(0)
        # aiohttp raises RuntimeError when a closed connection is read.
        except (*_CONNECTION_ERRORS, RuntimeError) as error:
            raise _unreachable(error, request) from error
        finally:
            response.close()
        if buffer.n_bytes:
            raise Unreachable(0, "ConnectionLost", "the stream ended inside a line")

    async def _with_authorization(self, send: Callable[[str | None], Awaitable[_T]]) -> _T:
        """Return the result of `send`. After a 401 renew the credentials and call it again: a 401 had no effect."""
        authorization = await self._authorization()
        n_certificates = self._n_certificates
        try:
            return await send(authorization)
        except Unauthorized as unauthorized:
            try:
                renewed = await self._credentials.renew(authorization, n_certificates)
            except SettingsError as error:
                message = f"{unauthorized.message} ({error})"
                raise Unauthorized(401, unauthorized.reason, message) from error
            if not renewed:
                raise
        return await send(await self._authorization())

    async def _authorization(self) -> str | None:
        """Return the header. After a change of the certificate, what follows is sent over new connections."""
        authorization = await self._credentials.authorization()
        if self._n_certificates != self._credentials.n_certificates:
            self._n_certificates = self._credentials.n_certificates
            self._transport.retire_connections()
        return authorization

    async def _send(
        self, request: Request, authorization: str | None, timeout_s: float, may_send: Callable[[], bool]
    ) -> bytes:
        await self._wait_for_rate_limit()
        if not may_send():
            raise Unreachable(0, "NotSent", "the request was withdrawn before it was sent")
        code, started_s = "<error>", self._now_s()
        try:
            response = await self._transport.send(request, authorization, timeout_s)
            code = str(response.status)
        finally:
            self._report_response(request, code, started_s)
        if response.status < 300:
            return response.body
        raise api_error(response.status, response.body, retry_after=response.retry_after)

    async def _open_stream(
        self, request: Request, authorization: str | None, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """Return a response of status 2xx whose body is unread."""
        await self._wait_for_rate_limit()
        code, started_s = "<error>", self._now_s()
        try:
            response = await _request_with_session(
                self._watches, self._endpoint, request, authorization, timeout
            )
            code = str(response.status)
            if response.status < 300:
                return response
            async with response:
                body = await _bounded_body(response)
            raise api_error(response.status, body, retry_after=response.headers.get("Retry-After"))
        except _CONNECTION_ERRORS as error:
            raise _unreachable(error, request) from error
        finally:
            self._report_response(request, code, started_s)

    async def _wait_for_rate_limit(self) -> None:
        if self._bucket is not None and (wait_s := self._bucket.reserve(self._now_s())) > 0:
            await self._sleep(wait_s)

    def _report_response(self, request: Request, code: str, started_s: float) -> None:
        if self._on_request is not None:
            self._on_request(request.verb, request.method, code, self._host, self._now_s() - started_s)

    def _new_session(self, connections: int) -> aiohttp.ClientSession:
        tls = self._endpoint.tls
        return aiohttp.ClientSession(
            # With a certificate each request has a connection of its own, since a connection keeps its certificate.
            connector=aiohttp.TCPConnector(
                limit=connections,
                ssl=True if tls is None else tls,
                force_close=self._credentials.n_certificates > 0,
            ),
            headers={
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": self._user_agent,
            },
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER_BYTES,
        )


def unusable(server: str, error: ApiError) -> SettingsError:
    """Return the error of a command whose request failed: what failed, and what to look at."""
    match error:
        case Unauthorized():
            advice = "the kubeconfig's user is not accepted: log in again, or choose another --context"
        case Forbidden():
            advice = "a role with this right is missing"
        case Unreachable(reason="TLS"):
            advice = "is certificate-authority of the kubeconfig this server's?"
        case Unreachable(reason="Timeout") | Silent():
            advice = "is the way there open, past firewalls and through a VPN or a proxy (HTTPS_PROXY)?"
        case Unreachable():
            advice = "is the cluster running, and is this its address (--kubeconfig, --context)?"
        case NotFound() | ServerFault() if error.status < 500:  # no API server redirects
            advice = "is this the address of an API server?"
        case _:
            advice = "try again"
    return SettingsError("API server", server, f"{error if error.status else error.message}; {advice}", "")


class _ProxyTransport:
    """Sends requests through a proxy, as `DirectTransport` does without one."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        self._session = session
        self._endpoint = endpoint

    async def send(self, request: Request, authorization: str | None, timeout_s: float) -> Response:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(timeout_s, CONNECT_TIMEOUT_S))
        try:
            response = await _request_with_session(
                self._session, self._endpoint, request, authorization, timeout, middlewares=(_once,)
            )
            async with response:
                body = await _bounded_body(response)
        except _CONNECTION_ERRORS as error:
            raise _unreachable(error, request) from error
        return Response(response.status, body, response.headers.get("Retry-After"))

    def retire_connections(self) -> None:
        """Do nothing: with a certificate, no connection is used twice."""

    async def close(self) -> None:
        await self._session.close()


async def _request_with_session(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    request: Request,
    authorization: str | None,
    timeout: aiohttp.ClientTimeout,
    middlewares: tuple[aiohttp.ClientMiddlewareType, ...] = (),
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
        middlewares=middlewares,
    )


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send the request once unless it is repeatable: aiohttp itself sends a DELETE again after these errors."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        if request.method in REPEATABLE:
            raise
        raise aiohttp.ClientConnectionError(str(error)) from error


def _enable_keepalive(transport: asyncio.Transport) -> None:
    """Make the kernel end the connection if the other host is gone. Skips options that the system does not have."""
    connected = transport.get_extra_info("socket")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_S),
        ("TCP_KEEPCNT", _KEEPALIVE_COUNT),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_S),
    ):
        if (option := getattr(socket, name, None)) is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


class _LineBuffer:
    """Splits a byte stream into lines and keeps the unfinished one."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.n_bytes = 0

    def add(self, data: bytes) -> list[bytes]:
        """Return the lines that are now complete, without empty ones. O(their bytes)."""
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
    """Return the error of a lost connection. A write may have taken effect unless the connection was never made."""
    never_sent = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
    kind = Silent if isinstance(error, aiohttp.SocketTimeoutError) else Unreachable
    return kind(
        0,
        _error_reason(error),
        str(error) or type(error).__name__,
        took_effect_unknown=request.method != "GET" and not never_sent,
    )


def _error_reason(error: Exception) -> str:
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

"""Connections are bounded in number and time."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import time
from asyncio import sslproto
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
import pytest_asyncio
from aiohttp import web

from scheduler.daemon.port import listener
from scheduler.daemon.port.certificates import issue
from scheduler.daemon.port.listener import Listener
from scheduler.daemon.port.tls import load_pair, server_context
from tests.support.waiting import TIMEOUT_S, until

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Opening = Callable[..., Awaitable[Connection]]

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
GET = HEAD + b"\r\n"
LAST = HEAD + b"Connection: close\r\n\r\n"


@asynccontextmanager
async def listening(*, tls: bool = False, **bounds: float) -> AsyncIterator[int]:
    """Run a server of one path that answers `ok`, and yield its port."""
    app = web.Application()

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app.router.add_get("/", answer)
    context = None
    if tls:
        context = server_context()
        load_pair(context, issue(["localhost"], time.time()).pair)
    listener = Listener(app, tls=context, **bounds)  # type: ignore[arg-type]  # numbers of either kind
    port = await listener.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await listener.stop()


@pytest_asyncio.fixture
async def opened() -> AsyncIterator[Opening]:
    writers: list[asyncio.StreamWriter] = []

    async def connect(port: int, context: ssl.SSLContext | None = None) -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writers.append(writer)
        return reader, writer

    yield connect
    for writer in writers:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Wait until the server closes the connection; return whether it has sent nothing on it. Raises: TimeoutError."""
    async with asyncio.timeout(TIMEOUT_S):
        try:
            return await reader.read() == b""
        except ConnectionError:
            return True


async def asked(port: int, request: bytes = LAST, context: ssl.SSLContext | None = None) -> bytes:
    """Return the complete response to raw bytes, until the server closes the connection. Raises: TimeoutError."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    answer = b""
    with suppress(ConnectionError):
        writer.write(request)
        async with asyncio.timeout(TIMEOUT_S):
            while data := await reader.read(65536):
                answer += data
    writer.transport.abort()
    return answer


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize(
    "drip",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(HEAD, id="half a header"),
        pytest.param(b"GET /", id="half a line"),
    ],
)
async def test_a_connection_without_a_complete_request_is_closed(
    opened: Opening, tls: bool, drip: bytes
) -> None:
    async with listening(tls=tls, first_request_s=0.1) as port:
        reader, writer = await opened(port, trusting() if tls else None)
        writer.write(drip)

        async def dripping() -> None:
            while drip:
                writer.write(b"a")
                await asyncio.sleep(0.02)

        task = asyncio.create_task(dripping())
        assert await is_closed(reader)
        task.cancel()


async def test_a_connection_without_a_tls_handshake_is_closed(opened: Opening) -> None:
    async with listening(tls=True, first_request_s=0.1) as port:
        reader, _ = await opened(port)
        assert await is_closed(reader)


async def test_a_new_connection_is_served_at_the_limit(opened: Opening) -> None:
    async with listening(max_connections=8, first_request_s=30) as port:
        idle = [await opened(port) for _ in range(24)]
        assert b"200 OK" in await asked(port)
        for reader, _ in idle[:16]:
            assert await is_closed(reader)


async def test_a_connection_in_use_is_not_closed(opened: Opening) -> None:
    """A scraper's connection outlives those without requests."""
    async with listening(max_connections=4, first_request_s=30) as port:
        reader, writer = await opened(port)
        for _ in range(6):
            await opened(port)
            await asyncio.sleep(0.02)
            writer.write(GET)
            async with asyncio.timeout(5):
                assert b"200 OK" in await reader.readuntil(b"\r\n\r\nok")


async def test_a_flood_leaves_no_garbage_to_the_collector(
    opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The TLS buffers of one connection are 0.3 MB."""
    monkeypatch.setattr(listener, "_CLOSE_TIMEOUT_S", 0.1)
    gc.collect()
    gc.disable()
    n_of_others = await _n_handshakes()
    try:
        async with listening(tls=True, max_connections=8, first_request_s=0.2) as port:
            for _ in range(60):
                await opened(port)
            await until(
                _n_handshakes, lambda n: n <= n_of_others, period_s=0.1, what="no connection in memory"
            )
    finally:
        gc.enable()


async def _n_handshakes() -> int:
    return sum(isinstance(each, sslproto.SSLProtocol) for each in gc.get_objects())


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with listening() as port:
        assert (await asked(port, GET * 4 + LAST)).count(b"200 OK") == 5


CHUNKED = b"Transfer-Encoding: chunked\r\n"
MALFORMED = {
    "a huge header": HEAD + b"X: " + b"a" * 20_000 + b"\r\n\r\n",
    "many headers": HEAD + b"".join(b"X%d: y\r\n" % n for n in range(50_000)) + b"\r\n",
    "a huge path": b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 4\r\n" + CHUNKED + b"\r\n0\r\n\r\n" + GET,
    "two numbers": HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a negative length": HEAD + b"Content-Length: -1\r\n\r\n",
    "space before the colon": b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
    "a folded line": HEAD + b" folded: y\r\n\r\n",
    "an odd coding": HEAD + CHUNKED.replace(b"chunked", b"xchunked") + b"\r\n0\r\n\r\n",
    "not HTTP": b"\x16\x03\x01 rubbish\r\n\r\n",
}


@pytest.mark.parametrize("request_", MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_request_is_refused_and_the_connection_closed(request_: bytes) -> None:
    """Nothing that follows is taken for a second request."""
    async with listening() as port:
        answer = await asked(port, request_)
        assert answer.count(b"HTTP/1.") <= 1
        assert b"200 OK" not in answer
        assert b"200 OK" in await asked(port)


async def test_a_body_that_never_arrives_delays_no_other_request(
    opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "DRAIN_S", 0.1)
    async with listening() as port:
        reader, writer = await opened(port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n")
        async with asyncio.timeout(TIMEOUT_S):
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\nok")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tls_1_2_and_1_3_are_supported(version: ssl.TLSVersion) -> None:
    context = trusting()
    context.minimum_version = context.maximum_version = version
    async with listening(tls=True) as port:
        assert b"200 OK" in await asked(port, LAST, context)


def test_older_tls_is_refused() -> None:
    assert server_context().minimum_version is ssl.TLSVersion.TLSv1_2


async def test_plain_http_on_an_https_port_is_refused() -> None:
    async with listening(tls=True) as port:
        assert b"200" not in await asked(port)
        assert b"200 OK" in await asked(port, LAST, trusting())


async def test_it_stops_with_open_connections(opened: Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle ones are closed at once, however long responses in progress may take; the port is closed."""
    monkeypatch.setattr(listener, "DRAIN_S", 100 * TIMEOUT_S)
    async with asyncio.timeout(None) as limit:
        async with listening(tls=True) as port:
            readers = [(await opened(port, trusting()))[0] for _ in range(5)]
            limit.reschedule(asyncio.get_running_loop().time() + TIMEOUT_S)
        assert all([await is_closed(reader) for reader in readers])
    with pytest.raises(ConnectionRefusedError):
        await opened(port)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["IPv4", "IPv6"])
async def test_it_listens_on_ipv4_and_ipv6(family: socket.AddressFamily) -> None:
    app = web.Application()
    listener = Listener(app)
    address = "127.0.0.1" if family == socket.AF_INET else "::1"
    try:
        port = await listener.start(address, 0)
    except OSError:
        pytest.skip(f"no {address} here")
    reader, writer = await asyncio.open_connection(address, port)
    writer.write(GET)
    assert b"404" in await reader.readline()
    writer.transport.abort()
    await listener.stop()

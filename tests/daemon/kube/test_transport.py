"""The HTTP/1.1 transport against a server that writes every byte itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from scheduler.daemon.kube import transport as transport_module
from scheduler.daemon.kube.credentials import Endpoint
from scheduler.daemon.kube.requests import bind, get_pod
from scheduler.daemon.kube.transport import DirectTransport, Response
from scheduler.errors import ApiError, Invalid, Unauthorized, Unreachable
from tests.support.waiting import until

GET = get_pod("d", "p")
POST = bind(namespace="d", name="p", uid="u", node_name="n")

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

#: Writes the response to a request; returns False to close the connection.
Server = Callable[[int, bytes, asyncio.StreamWriter], Awaitable[bool]]


class Raw:
    """A server and the requests that it got; connections are numbered from 1."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.asked: list[tuple[int, bytes]] = []
        self.n_connections = 0
        self.port = 0
        self.was_asked = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.n_connections += 1
        number = self.n_connections
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")), 0
                )
                body = await reader.readexactly(length)
                self.asked.append((number, head + body))
                self.was_asked.set()
                if not await self._server(len(self.asked), head, writer):
                    break
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def ended(self) -> None:
        """Wait until no connection is open."""
        await asyncio.gather(*self._tasks)


@asynccontextmanager
async def serving(server: Server, n_most: int = 4) -> AsyncIterator[tuple[Raw, DirectTransport]]:
    raw = Raw(server)
    listening = await asyncio.start_server(raw.serve, "127.0.0.1", 0)
    raw.port = listening.sockets[0].getsockname()[1]
    transport = DirectTransport(
        Endpoint(f"http://127.0.0.1:{raw.port}/below/"), user_agent="tests", max_connections=n_most
    )
    try:
        yield raw, transport
    finally:
        await transport.close()
        listening.close()
        await raw.ended()


def saying(*answers: bytes, stays: bool = True, after: asyncio.Event | None = None) -> Server:
    """Return a server that gives these answers, the last again and again, once the event is set."""

    async def answer(number: int, _head: bytes, writer: asyncio.StreamWriter) -> bool:
        if after is not None:
            await after.wait()
        writer.write(answers[min(number, len(answers)) - 1])
        return stays

    return answer


async def failure(transport: DirectTransport, request=POST, timeout_s: float = 5.0) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await transport.send(request, None, timeout_s)
    return caught.value


async def test_a_request_is_one_write_with_every_header():
    async with serving(saying(OK)) as (raw, transport):
        assert await transport.send(POST, "Bearer t", 5.0) == Response(200, b"ok", None)
    head, _, body = raw.asked[0][1].partition(b"\r\n\r\n")
    assert body == POST.body
    assert head.decode().split("\r\n") == [
        f"POST /below{POST.path} HTTP/1.1",
        f"Host: 127.0.0.1:{raw.port}",
        "Accept: application/json",
        "Accept-Encoding: identity",
        "User-Agent: tests",
        "Authorization: Bearer t",
        "Content-Type: application/json",
        f"Content-Length: {len(POST.body)}",
    ]


FRAMES = {
    "with a length": (OK, Response(200, b"ok", None)),
    "in chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n1;x=y\r\n!\r\n0\r\nT: 1\r\n\r\n",
        Response(200, b"ok!", None),
    ),
    "without a body": (b"HTTP/1.1 204 No Content\r\n\r\n", Response(204, b"", None)),
    "429": (b"HTTP/1.1 429 Slow\r\nretry-AFTER: 7\r\nContent-Length: 0\r\n\r\n", Response(429, b"", "7")),
    "after an interim one": (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, Response(200, b"ok", None)),
}


@pytest.mark.parametrize(("answer", "expected"), FRAMES.values(), ids=FRAMES)
async def test_the_connection_is_reused(answer: bytes, expected: Response):
    async with serving(saying(answer)) as (raw, transport):
        for _ in range(3):
            assert await transport.send(POST, None, 5.0) == expected
        assert raw.n_connections == 1


CLOSING = {
    "Connection: close": (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", True),
    "old protocol": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", True),
    "the body ends with the connection": (b"HTTP/1.1 200 OK\r\n\r\nok", False),
    "a second response": (OK + b"HTTP/1.1 200 OK\r\n", True),
}


@pytest.mark.parametrize(("answer", "stays"), CLOSING.values(), ids=CLOSING)
async def test_a_closing_connection_is_not_reused(answer: bytes, stays: bool):
    """No byte left on it reaches the next request."""
    async with serving(saying(answer, stays=stays)) as (raw, transport):
        for number in (1, 2, 3):
            assert await transport.send(POST, None, 5.0) == Response(200, b"ok", None)
            assert raw.n_connections == number


INCOMPLETE = {
    "nothing": b"",
    "half a header": b"HTTP/1.1 200 OK\r\nContent-Len",
    "half a body": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
    "half a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok",
    "another protocol": b"SSH-2.0-OpenSSH\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
    "an upgrade": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
}


@pytest.mark.parametrize("answer", INCOMPLETE.values(), ids=INCOMPLETE)
async def test_a_write_without_a_complete_response_may_have_taken_effect(answer: bytes):
    """It is not sent again."""
    async with serving(saying(answer, stays=False)) as (raw, transport):
        error = await failure(transport)
        assert isinstance(error, Unreachable)
        assert (error.reason, error.took_effect_unknown, len(raw.asked)) == ("ConnectionLost", True, 1)


async def test_a_read_is_sent_once_more():
    async with serving(saying(b"", stays=False)) as (raw, transport):
        error = await failure(transport, GET)
        assert (type(error), error.took_effect_unknown, len(raw.asked)) == (Unreachable, False, 2)


async def test_a_late_response_reaches_no_other_request():
    """The connection is closed on timeout, and the next request gets a new one. A read had no effect."""
    late = asyncio.Event()
    first = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst"
    async with serving(saying(first, first, OK, after=late), n_most=1) as (raw, transport):
        for request, unknown in ((POST, True), (GET, False)):
            error = await failure(transport, request, timeout_s=0.05)
            assert (error.reason, error.took_effect_unknown) == ("Timeout", unknown)
        late.set()
        assert (await transport.send(POST, None, 5.0)).body == b"ok"
        assert [number for number, _ in raw.asked] == [1, 2, 3]


async def test_a_request_that_never_got_a_connection_took_no_effect():
    release = asyncio.Event()
    async with serving(saying(OK, after=release), n_most=1) as (raw, transport):
        first = asyncio.create_task(transport.send(POST, None, 5.0))
        await raw.was_asked.wait()
        error = await failure(transport, timeout_s=0.05)
        assert (error.reason, error.took_effect_unknown) == ("Timeout", False)
        release.set()
        assert (await first).body == b"ok"
        assert (await transport.send(POST, None, 5.0)).body == b"ok"


async def test_a_connection_closed_by_the_server_is_noticed():
    """A write then uses a new one; only a close that crosses the request can lose it."""
    async with serving(saying(OK, stays=False)) as (raw, transport):

        async def is_closed() -> bool:
            return not transport._open_connections

        for number in (1, 2):
            assert (await transport.send(POST, None, 5.0)).body == b"ok"
            await until(is_closed)
            assert raw.n_connections == number


async def test_an_old_idle_connection_is_replaced():
    clock = [0.0]
    async with serving(saying(OK)) as (raw, _):
        transport = DirectTransport(
            Endpoint(f"http://127.0.0.1:{raw.port}"),
            user_agent="t",
            max_connections=4,
            now_s=lambda: clock[0],
        )
        idle_s = transport_module.IDLE_S
        for now_s, n_connections in ((0.0, 1), (idle_s - 1, 1), (2 * idle_s, 2)):
            clock[0] = now_s
            await transport.send(POST, None, 5.0)
            assert raw.n_connections == n_connections
        await transport.close()


async def test_a_body_without_end_is_refused_and_its_connection_closed(monkeypatch):
    monkeypatch.setattr(transport_module, "BODY_LIMIT_BYTES", 1000)
    large = b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000
    async with serving(saying(large, OK)) as (raw, transport):
        assert isinstance(await failure(transport), Invalid)
        assert (await transport.send(POST, None, 5.0)).body == b"ok"
        assert raw.n_connections == 2


@pytest.mark.parametrize("token", ["Bearer a\r\nX: y", "Bearer a\n", "Bearer \x00", "Bearer ä"])
async def test_a_token_cannot_inject_headers(token: str):
    """It is refused before anything is sent, and not repeated in the error."""
    async with serving(saying(OK)) as (raw, transport):
        with pytest.raises(Unauthorized) as caught:
            await transport.send(POST, token, 5.0)
        assert raw.asked == []
        assert "Bearer" not in str(caught.value)


async def test_closing_ends_requests_in_flight():
    """A write that was sent may have taken effect."""
    async with serving(saying(b"")) as (raw, transport):
        asking = asyncio.create_task(failure(transport, timeout_s=30.0))
        await raw.was_asked.wait()
        await transport.close()
        assert (await asking).took_effect_unknown

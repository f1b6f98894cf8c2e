"""Calls over HTTP/1.1 against a server whose every byte is written here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from scheduler.errors import ApiError, Invalid, Unauthorized, Unreachable
from scheduler.kube import calls as calls_module
from scheduler.kube.calls import Answer, DirectCalls
from scheduler.kube.credentials import Endpoint
from scheduler.kube.requests import bind, get_pod
from tests.integration.waiting import until

GET = get_pod("d", "p")
POST = bind(namespace="d", name="p", uid="u", node_name="n")

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

#: Writes what it likes for each request; the connection ends when it returns False.
Server = Callable[[int, bytes, asyncio.StreamWriter], Awaitable[bool]]


class Raw:
    """A server and what it was asked; connections are numbered from 1."""

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
        """No connection is served any more."""
        await asyncio.gather(*self._tasks)


@asynccontextmanager
async def serving(server: Server, n_most: int = 4) -> AsyncIterator[tuple[Raw, DirectCalls]]:
    raw = Raw(server)
    listening = await asyncio.start_server(raw.serve, "127.0.0.1", 0)
    raw.port = listening.sockets[0].getsockname()[1]
    calls = DirectCalls(
        Endpoint(f"http://127.0.0.1:{raw.port}/below/"), user_agent="tests", max_connections=n_most
    )
    try:
        yield raw, calls
    finally:
        await calls.close()
        listening.close()
        await raw.ended()


def saying(*answers: bytes, stays: bool = True) -> Server:
    async def answer(number: int, _head: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(answers[min(number, len(answers)) - 1])
        return stays

    return answer


async def failure(calls: DirectCalls, request=POST, timeout_s: float = 5.0) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await calls.ask(request, None, timeout_s)
    return caught.value


@pytest.mark.asyncio
async def test_a_request_is_one_write_with_every_header():
    """The path's prefix once, the length of the body, the token."""
    async with serving(saying(OK)) as (raw, calls):
        assert await calls.ask(POST, "Bearer t", 5.0) == Answer(200, b"ok", None)
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


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(OK, Answer(200, b"ok", None), id="with a length"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n1;x=y\r\n!\r\n0\r\nT: 1\r\n\r\n",
            Answer(200, b"ok!", None),
            id="in chunks",
        ),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", Answer(204, b"", None), id="without a body"),
        pytest.param(
            b"HTTP/1.1 429 Slow\r\nretry-AFTER: 7\r\nContent-Length: 0\r\n\r\n",
            Answer(429, b"", "7"),
            id="429",
        ),
        pytest.param(
            b"HTTP/1.1 100 Continue\r\n\r\n" + OK, Answer(200, b"ok", None), id="after an interim one"
        ),
    ],
)
async def test_the_connection_serves_the_next_call_too(answer: bytes, expected: Answer):
    """However the answer is framed."""
    async with serving(saying(answer)) as (raw, calls):
        for _ in range(3):
            assert await calls.ask(POST, None, 5.0) == expected
        assert raw.n_connections == 1


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "stays"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", True, id="told"),
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", True, id="old protocol"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nok", False, id="the body ends with the connection"),
        pytest.param(OK + b"HTTP/1.1 200 OK\r\n", True, id="more than was asked for"),
    ],
)
async def test_a_connection_that_is_done_is_not_used_again(answer: bytes, stays: bool):
    """Nor does anything that is left in it reach the next call."""
    async with serving(saying(answer, stays=stays)) as (raw, calls):
        for number in (1, 2, 3):
            assert await calls.ask(POST, None, 5.0) == Answer(200, b"ok", None)
            assert raw.n_connections == number


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Len", id="half a header"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", id="half a body"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok", id="half a chunk"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n", id="another protocol"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", id="two lengths"
        ),
        pytest.param(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", id="an upgrade"
        ),
    ],
)
async def test_a_write_whose_answer_is_cut_or_none_may_have_taken_effect(answer: bytes):
    """A write is not sent again; whoever wrote it looks."""
    async with serving(saying(answer, stays=False)) as (raw, calls):
        error = await failure(calls)
        assert isinstance(error, Unreachable)
        assert (error.reason, error.took_effect_unknown, len(raw.asked)) == ("ConnectionLost", True, 1)


@pytest.mark.asyncio
async def test_a_read_is_sent_once_more():
    """And no more than that."""
    async with serving(saying(b"", stays=False)) as (raw, calls):
        error = await failure(calls, GET)
        assert (type(error), error.took_effect_unknown, len(raw.asked)) == (Unreachable, False, 2)


@pytest.mark.asyncio
async def test_an_answer_that_comes_too_late_is_nobody_else_s():
    """The connection of a call that was given up is closed, and the next call has its own."""
    late = asyncio.Event()

    async def server(number: int, _head: bytes, writer: asyncio.StreamWriter) -> bool:
        if number == 1:
            await late.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond")
        return True

    async with serving(server, n_most=1) as (raw, calls):
        error = await failure(calls, timeout_s=0.05)
        assert (error.reason, error.took_effect_unknown) == ("Timeout", True)
        late.set()
        assert (await calls.ask(POST, None, 5.0)).body == b"second"
        assert [number for number, _ in raw.asked] == [1, 2]


@pytest.mark.asyncio
async def test_a_call_that_never_had_its_turn_took_no_effect():
    """One connection, which another call keeps busy."""
    release = asyncio.Event()

    async def server(_number: int, _head: bytes, writer: asyncio.StreamWriter) -> bool:
        await release.wait()
        writer.write(OK)
        return True

    async with serving(server, n_most=1) as (raw, calls):
        first = asyncio.create_task(calls.ask(POST, None, 5.0))
        await raw.was_asked.wait()
        error = await failure(calls, timeout_s=0.05)
        assert (error.reason, error.took_effect_unknown) == ("Timeout", False)
        release.set()
        assert (await first).body == b"ok"
        assert (await calls.ask(POST, None, 5.0)).body == b"ok"


@pytest.mark.asyncio
async def test_a_connection_that_the_server_has_closed_meanwhile_is_noticed():
    """A write finds a new one; only a close that crosses the request can lose it."""
    async with serving(saying(OK, stays=False)) as (raw, calls):

        async def is_closed() -> bool:
            return not calls._open

        for number in (1, 2):
            assert (await calls.ask(POST, None, 5.0)).body == b"ok"
            await until(is_closed)
            assert raw.n_connections == number


@pytest.mark.asyncio
async def test_an_old_connection_is_replaced_before_the_server_does_it():
    """By the clock that the calls were given."""
    clock = [0.0]
    async with serving(saying(OK)) as (raw, _):
        calls = DirectCalls(
            Endpoint(f"http://127.0.0.1:{raw.port}"),
            user_agent="t",
            max_connections=4,
            now_s=lambda: clock[0],
        )
        for now_s, n_connections in ((0.0, 1), (calls_module.IDLE_S - 1, 1), (2 * calls_module.IDLE_S, 2)):
            clock[0] = now_s
            await calls.ask(POST, None, 5.0)
            assert raw.n_connections == n_connections
        await calls.close()


@pytest.mark.asyncio
async def test_a_body_without_end_is_refused_and_its_connection_closed(monkeypatch):
    """Memory is bounded."""
    monkeypatch.setattr(calls_module, "BODY_LIMIT_BYTES", 1000)
    large = b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000
    async with serving(saying(large, OK)) as (raw, calls):
        assert isinstance(await failure(calls), Invalid)
        assert (await calls.ask(POST, None, 5.0)).body == b"ok"
        assert raw.n_connections == 2


@pytest.mark.asyncio
@pytest.mark.parametrize("token", ["Bearer a\r\nX: y", "Bearer a\n", "Bearer \x00", "Bearer ä"])
async def test_a_token_cannot_bring_headers_of_its_own(token: str):
    """It is refused before anything is sent, and not repeated in the error."""
    async with serving(saying(OK)) as (raw, calls):
        with pytest.raises(Unauthorized) as caught:
            await calls.ask(POST, token, 5.0)
        assert raw.asked == []
        assert "Bearer" not in str(caught.value)


@pytest.mark.asyncio
async def test_closing_ends_calls_under_way():
    """A write that was sent may have taken effect."""

    async def server(_number: int, _head: bytes, _writer: asyncio.StreamWriter) -> bool:
        return True

    async with serving(server) as (raw, calls):
        asking = asyncio.create_task(failure(calls, timeout_s=30.0))
        await raw.was_asked.wait()
        await calls.close()
        assert (await asking).took_effect_unknown

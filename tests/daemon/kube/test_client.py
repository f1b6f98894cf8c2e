"""The client against a server that follows a script."""

import asyncio
import gc
import socket
from collections.abc import Callable
from contextlib import aclosing

import pytest
from aiohttp import web

from scheduler.daemon.kube.client import MAX_LINES_PER_BATCH, READ_BYTES
from scheduler.daemon.kube.requests import WatchPath, bind, get_pod, list_page, watch
from scheduler.errors import Invalid, ServerFault, Unreachable
from scheduler.version import product_version
from tests.support.scripted_server import client_of, lost, reply, scripted, silence, stream
from tests.support.waiting import Turns

GET = get_pod("d", "p")
POST = bind(namespace="d", name="p", uid="u", node_name="n")
WATCH = watch(WatchPath("/api/v1/pods"), resource_version="1", timeout_s=300)


async def failure(client, request, *, timeout_s=5.0):
    with pytest.raises(Exception) as caught:
        await client.request(request, timeout_s=timeout_s)
    return caught.value


async def lines_of(client, **options):
    async with aclosing(client.stream(WATCH, **options)) as batches:
        return [line async for lines in batches for line in lines]


async def test_a_query_is_escaped_and_the_user_agent_is_ours():
    listing = list_page(WatchPath("/api/v1/pods", field_selector="a!=b,c=d"), continue_token="t/+=")
    async with scripted(reply(b"one")) as script, client_of(script) as client:
        assert await client.request(listing, timeout_s=5) == b"one"
    (listed,) = script.received
    assert listed.headers["User-Agent"] == f"affinity-scheduler/{product_version()}"
    assert "Authorization" not in listed.headers
    assert listed.query == {"fieldSelector": "a!=b,c=d", "limit": "500", "continue": "t/+="}


async def test_a_refused_connection_took_no_effect():
    async with scripted() as script:
        pass
    async with client_of(script) as client:
        error = await failure(client, POST)
    assert isinstance(error, Unreachable)
    assert (error.status, error.reason, error.took_effect_unknown) == (0, "ConnectionRefused", False)


async def test_every_answer_is_reported_to_the_hook():
    """Redirects are not followed, since they would carry the credentials to another server."""
    told = []
    elsewhere = reply(status=307, headers={"Location": "http://127.0.0.1:1/"})
    answers = [reply(), elsewhere, lost(), stream(b"{}")]

    def hook(*values):
        told.append(values)

    async with scripted(*answers) as script, client_of(script, on_request=hook) as client:
        await client.request(GET, timeout_s=5)
        assert isinstance(await failure(client, GET), ServerFault)
        await failure(client, POST)
        await lines_of(client)
    host = script.url.removeprefix("http://")
    assert [values[:4] for values in told] == [
        ("get", "GET", "200", host),
        ("get", "GET", "307", host),
        ("create", "POST", "<error>", host),
        ("watch", "GET", "200", host),
    ]
    assert all(0 <= values[4] < 5 for values in told)


async def test_a_line_without_end_is_refused():
    """Memory is bounded."""
    async with scripted(stream(b"x" * (17 << 20))) as script, client_of(script) as client:
        with pytest.raises(Invalid, match="LineTooLong"):
            await lines_of(client)


async def test_lines_are_whole_and_never_empty():
    """Keep-alive newlines are dropped; a large object is one line."""
    large = b"y" * (9 << 20)
    async with scripted(stream(b"a", b"", large, b"b")) as script, client_of(script) as client:
        assert await lines_of(client) == [b"a", large, b"b"]


async def test_a_stream_that_ends_inside_a_line_raises_unreachable():
    async with scripted(stream(b"a\nb", end=b"")) as script, client_of(script) as client:
        with pytest.raises(Unreachable, match="inside a line"):
            await lines_of(client)


async def test_requests_in_flight_leave_connections_for_a_watch():
    answers = [silence()] * 2 + [stream(b"line")]
    async with scripted(*answers) as script, client_of(script, max_connections=2) as client:
        requests = [asyncio.create_task(failure(client, GET, timeout_s=30)) for _ in range(3)]
        await script.until_received(2)
        assert await lines_of(client) == [b"line"]
        script.stopping.set()
        assert [type(error) for error in await asyncio.gather(*requests)] == [ServerFault] * 3


async def test_a_stream_can_be_broken_from_outside():
    """The reader gets Unreachable at once; breaking the stream again is harmless."""
    breaks: list[Callable[[], None]] = []
    async with scripted(stream(b"a", then="silent")) as script, client_of(script) as client:
        async with aclosing(client.stream(WATCH, on_open=breaks.append)) as batches:
            assert await anext(batches) == [b"a"]
            asyncio.get_running_loop().call_soon(breaks[0])
            with pytest.raises(Unreachable):
                async with asyncio.timeout(5):
                    await anext(batches)
        breaks[0]()


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="this system's kernel asks in its own time")
async def test_tcp_keepalive_is_enabled_on_streams():
    """A connection to a dead host ends within 30 s."""
    async with (
        scripted(stream(b"a", then="silent")) as script,
        client_of(script) as client,
        aclosing(client.stream(WATCH)) as batches,
    ):
        await anext(batches)
        port = int(script.url.rpartition(":")[2])
        (connected,) = (one for one in gc.get_objects() if _leads_to(one, port))
        options = [
            connected.getsockopt(level, option)
            for level, option in (
                (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                (socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
                (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
            )
        ]
    assert options == [1, 15, 3, 5]


def _leads_to(one, port):
    try:
        return isinstance(one, socket.socket) and one.getpeername()[1:2] == (port,)
    except OSError:
        return False


async def test_closing_the_client_ends_its_streams():
    """The reader does not wait for a closed connection."""
    async with scripted(stream(b"a", then="silent")) as script, client_of(script) as client:
        batches = client.stream(WATCH)
        assert await anext(batches) == [b"a"]
        await client.close()
        with pytest.raises(Unreachable):
            await anext(batches)


@pytest.mark.parametrize(
    "line_bytes", [7, 3_001, 400_000], ids=["many lines", "as pods", "longer than a piece"]
)
async def test_buffered_bytes_are_yielded_in_batches(line_bytes):
    """With 3 MB of a list in the buffer, no line is lost or reordered, and other tasks run."""
    expected = [f"{number:06}".encode().ljust(line_bytes, b"x") for number in range(3_000_000 // line_bytes)]
    sent = asyncio.Event()

    async def answer(request, _script):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"\n".join(expected) + b"\n")
        sent.set()
        return response

    async with scripted(answer) as script, client_of(script) as client, Turns() as turns:
        before: list[int] = []
        found: list[bytes] = []
        async for lines in client.stream(WATCH):
            before.append(turns.n)
            found += lines
            assert len(lines) <= MAX_LINES_PER_BATCH
            assert sum(map(len, lines[1:])) < READ_BYTES
            await sent.wait()
            while turns.n < 200:  # noqa: ASYNC110 - turns in which the rest arrives
                await asyncio.sleep(0)
    assert found == expected
    assert len(set(before)) == len(before)

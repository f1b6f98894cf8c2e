"""The transport against a server that follows a script."""

import asyncio
import gc
import socket
from collections.abc import Callable
from contextlib import aclosing

import pytest
from aiohttp import web

from scheduler.errors import Invalid, NotFound, ServerFault, SettingsError, Unauthorized, Unreachable
from scheduler.kube import calls as calls_module
from scheduler.kube.client import BYTES_AT_ONCE, LINES_AT_ONCE, KubeClient, product_version
from scheduler.kube.credentials import Credentials, Endpoint, Identity
from scheduler.kube.requests import JSON, Request, Resource, bind, get_pod, list_page, watch
from tests.kube.build import body
from tests.kube.scripted import Naps, client_of, lost, reply, scripted, silence, stream

GET = get_pod("d", "p")
POST = bind(namespace="d", name="p", uid="u", node_name="n")
WATCH = watch(Resource("/api/v1/pods"), resource_version="1", timeout_s=300)


async def failure(client, request, *, timeout_s=5.0):
    with pytest.raises(Exception) as caught:
        await client.request(request, timeout_s=timeout_s)
    return caught.value


async def lines_of(client, **options):
    async with aclosing(client.stream(WATCH, **options)) as batches:
        return [line async for lines in batches for line in lines]


@pytest.mark.asyncio
async def test_requests_leave_as_they_were_built():
    """Method, path, query, body and headers; no compression; our own name."""
    listing = list_page(Resource("/api/v1/pods", field_selector="a!=b,c=d"), continue_token="t/+=")
    async with scripted(reply(b"one"), reply(b"two")) as script, client_of(script) as client:
        assert await client.request(POST, timeout_s=5) == b"one"
        assert await client.request(listing, timeout_s=5) == b"two"
    posted, listed = script.asked
    assert (posted.method, posted.path, posted.body) == ("POST", POST.path, POST.body)
    sent = {
        name: posted.headers.get(name) for name in ("Content-Type", "Accept", "Accept-Encoding", "User-Agent")
    }
    assert sent == {
        "Content-Type": JSON,
        "Accept": JSON,
        "Accept-Encoding": "identity",
        "User-Agent": f"affinity-scheduler/{product_version()}",
    }
    assert "Authorization" not in posted.headers
    assert listed.query == {"fieldSelector": "a!=b,c=d", "limit": "500", "continue": "t/+="}


@pytest.mark.asyncio
async def test_a_server_below_a_path_keeps_its_prefix():
    """As Rancher and kcp have it."""
    async with scripted(reply()) as script:
        credentials = Credentials(Endpoint(f"{script.url}/clusters/one"), Identity())
        async with KubeClient(credentials) as client:
            await client.request(GET, timeout_s=5)
    assert script.asked[0].path == f"/clusters/one{GET.path}"


@pytest.mark.asyncio
async def test_answers_below_200_to_299_are_errors_of_their_class():
    """Redirects are not followed: credentials stay with their server."""
    elsewhere = reply(status=307, headers={"Location": "http://127.0.0.1:1/"})
    async with (
        scripted(reply(body(404, "NotFound"), status=404), elsewhere) as script,
        client_of(script) as client,
    ):
        assert isinstance(await failure(client, GET), NotFound)
        assert isinstance(await failure(client, GET), ServerFault)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("request_", "answers", "reason", "unknown"),
    [
        pytest.param(GET, [silence()], "Timeout", False, id="read without an answer"),
        pytest.param(POST, [silence()], "Timeout", True, id="write without an answer"),
        pytest.param(GET, [lost(), lost()], "ConnectionLost", False, id="read cut"),
        pytest.param(POST, [lost()], "ConnectionLost", True, id="write cut"),
    ],
)
async def test_a_write_without_an_answer_may_have_taken_effect(request_: Request, answers, reason, unknown):
    """A read may not."""
    async with scripted(*answers) as script, client_of(script) as client:
        error = await failure(client, request_, timeout_s=0.1)
    assert isinstance(error, Unreachable)
    assert (error.reason, error.took_effect_unknown) == (reason, unknown)


@pytest.mark.asyncio
async def test_a_refused_connection_took_no_effect():
    """Nothing was sent."""
    async with scripted() as script:
        pass
    async with client_of(script) as client:
        error = await failure(client, POST)
    assert isinstance(error, Unreachable)
    assert (error.status, error.reason, error.took_effect_unknown) == (0, "ConnectionRefused", False)


@pytest.mark.asyncio
async def test_every_answer_is_reported_to_the_hook():
    """Verb, method, code, host and seconds; of a stream once, when it begins."""
    told = []
    answers = [reply(), reply(status=404), lost(), stream(b"{}")]

    def hook(*values):
        told.append(values)

    async with scripted(*answers) as script, client_of(script, on_request=hook) as client:
        await client.request(GET, timeout_s=5)
        await failure(client, GET)
        await failure(client, POST)
        await lines_of(client)
    host = script.url.removeprefix("http://")
    assert [values[:4] for values in told] == [
        ("get", "GET", "200", host),
        ("get", "GET", "404", host),
        ("create", "POST", "<error>", host),
        ("watch", "GET", "200", host),
    ]
    assert all(0 <= values[4] < 5 for values in told)


@pytest.mark.asyncio
async def test_requests_wait_for_their_turn():
    """Two at once, then ten a second; the clock stands still."""
    naps = Naps()
    paced = {"qps": 10.0, "burst": 2, "sleep": naps, "now_s": lambda: 0.0}
    async with scripted(*[reply()] * 4) as script, client_of(script, **paced) as client:
        for _ in range(4):
            await client.request(GET, timeout_s=5)
    assert naps.taken_s == pytest.approx([0.1, 0.2])


class Renewing(Credentials):
    """Credentials with a counter for a token; the last renewal fails."""

    def __init__(self, url, *, last):
        super().__init__(Endpoint(url), Identity("Bearer 1"))
        self._number, self._last = 1, last

    async def authorization(self):
        return f"Bearer {self._number}"

    async def renew(self, refused):
        assert refused == await self.authorization()
        if self._number == self._last:
            raise SettingsError("config", "users[a].user.exec", "exit code 1", "credentials")
        self._number += 1
        return True


REFUSED = reply(body(401, "Unauthorized", "expired"), status=401)


@pytest.mark.asyncio
async def test_a_refused_identity_is_renewed_and_tried_once_more():
    """Calls and watches."""
    answers = [REFUSED, reply(b"in"), REFUSED, stream(b"line")]
    async with scripted(*answers) as script, KubeClient(Renewing(script.url, last=3)) as client:
        assert await client.request(GET, timeout_s=5) == b"in"
        assert await lines_of(client) == [b"line"]
    shown = [asked.headers["Authorization"] for asked in script.asked]
    assert shown == ["Bearer 1", "Bearer 2", "Bearer 2", "Bearer 3"]


@pytest.mark.asyncio
async def test_a_renewal_that_fails_says_why():
    """Not just 401."""
    async with (
        scripted(REFUSED, REFUSED, REFUSED) as script,
        KubeClient(Renewing(script.url, last=2)) as client,
    ):
        twice = await failure(client, GET)
        failed = await failure(client, GET)
    assert (type(twice), twice.message) == (Unauthorized, "expired")
    assert (type(failed), "exit code 1" in failed.message) == (Unauthorized, True)


@pytest.mark.asyncio
async def test_a_line_without_end_is_refused():
    """Memory is bounded."""
    async with scripted(stream(b"x" * (17 << 20))) as script, client_of(script) as client:
        with pytest.raises(Invalid, match="LineTooLong"):
            await lines_of(client)


@pytest.mark.asyncio
async def test_a_body_without_end_is_refused(monkeypatch):
    """Memory is bounded here too."""
    monkeypatch.setattr(calls_module, "BODY_LIMIT_BYTES", 1000)
    async with scripted(reply(b"x" * 2000)) as script, client_of(script) as client:
        assert isinstance(await failure(client, GET), Invalid)


@pytest.mark.asyncio
async def test_lines_are_whole_and_never_empty():
    """Keep-alive newlines are dropped, a large object is one line."""
    large = b"y" * (9 << 20)
    async with scripted(stream(b"a", b"", large, b"b")) as script, client_of(script) as client:
        assert await lines_of(client) == [b"a", large, b"b"]


@pytest.mark.asyncio
async def test_a_stream_that_ends_inside_a_line_is_lost():
    """Although the server ended it in good order."""
    async with scripted(stream(b"a\nb", end=b"")) as script, client_of(script) as client:
        with pytest.raises(Unreachable, match="inside a line"):
            await lines_of(client)


@pytest.mark.asyncio
async def test_a_hundred_calls_in_flight_leave_room_for_a_watch():
    """Separate pools."""
    answers = [silence()] * 2 + [stream(b"line")]
    async with scripted(*answers) as script, client_of(script, max_connections=2) as client:
        calls = [asyncio.create_task(failure(client, GET, timeout_s=30)) for _ in range(3)]
        await script.until_asked(2)
        assert await lines_of(client) == [b"line"]
        script.stopping.set()
        assert [type(error) for error in await asyncio.gather(*calls)] == [ServerFault] * 3


@pytest.mark.asyncio
async def test_a_stream_can_be_broken_from_outside():
    """The reader, which would wait for minutes, is told so at once; breaking it later harms nobody."""
    breaks: list[Callable[[], None]] = []
    async with scripted(stream(b"a", then="silent")) as script, client_of(script) as client:
        async with aclosing(client.stream(WATCH, on_open=breaks.append)) as batches:
            assert await anext(batches) == [b"a"]
            asyncio.get_running_loop().call_soon(breaks[0])
            with pytest.raises(Unreachable):
                async with asyncio.timeout(5):
                    await anext(batches)
        breaks[0]()


@pytest.mark.asyncio
@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="this system's kernel asks in its own time")
async def test_the_kernel_asks_the_other_side_of_a_silent_stream():
    """A connection that leads nowhere ends within 30 s, long before the silence itself tells."""
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


@pytest.mark.asyncio
async def test_closing_the_client_ends_its_streams():
    """Nobody waits for a connection that is gone."""
    async with scripted(stream(b"a", then="silent")) as script, client_of(script) as client:
        batches = client.stream(WATCH)
        assert await anext(batches) == [b"a"]
        await client.close()
        with pytest.raises(Unreachable):
            await anext(batches)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("line_bytes", "at_most"),
    [pytest.param(10, LINES_AT_ONCE, id="many lines"), pytest.param(50_000, 8, id="long lines")],
)
async def test_lines_that_arrived_together_are_handed_over_in_pieces(line_bytes, at_most):
    """Another task has its turn between any two of them."""
    turns = 0

    async def count_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    async with scripted(stream(*[b"x" * line_bytes] * 250)) as script, client_of(script) as client:
        before: list[int] = []
        lengths: list[int] = []
        async for lines in client.stream(WATCH):
            before.append(turns)
            lengths.append(len(lines))
    counting.cancel()
    assert sum(lengths) == 250
    assert max(lengths) <= at_most
    assert len(set(before)) == len(before)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "line_bytes", [7, 3_001, 400_000], ids=["many lines", "as pods", "longer than a piece"]
)
async def test_what_has_arrived_before_it_is_looked_at_is_looked_at_in_pieces(line_bytes):
    """As while 3 MB of a list wait for a busy reader: no line is lost or changes places, and others have turns."""
    expected = [f"{number:06}".encode().ljust(line_bytes, b"x") for number in range(3_000_000 // line_bytes)]
    sent = asyncio.Event()

    async def answer(request, _script):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"\n".join(expected) + b"\n")
        sent.set()
        return response

    turns = 0

    async def count_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    async with scripted(answer) as script, client_of(script) as client:
        before: list[int] = []
        found: list[bytes] = []
        async for lines in client.stream(WATCH):
            before.append(turns)
            found += lines
            assert sum(map(len, lines[1:])) < BYTES_AT_ONCE
            await sent.wait()
            while turns < 200:  # noqa: ASYNC110 - turns in which the rest arrives
                await asyncio.sleep(0)
    counting.cancel()
    assert found == expected
    assert len(set(before)) == len(before)

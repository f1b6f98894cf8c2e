"""The reflector against a server that follows a script."""

import asyncio
from collections import Counter
from contextlib import aclosing
from itertools import count

import msgspec
import pytest

from scheduler.errors import Gone, ServerFault, Silent, Throttled, Unreachable
from scheduler.kube.changes import Interrupted, Key, Malformed, Synced, Upserted
from scheduler.kube.list_watch import ITEMS_PER_STEP, RequestFailed
from scheduler.kube.reflector import Reflector
from scheduler.kube.requests import Resource
from tests.kube.protocol import PODS, decode, down, published, queries, up
from tests.support.api_bodies import body, bookmark, broken, line, page, pod, status
from tests.support.scripted_server import FakeSleep, client_of, lost, reply, scripted, stream


def published_of(name, rv):
    return lambda change: change == up(name, rv)


@pytest.mark.asyncio
async def test_pages_then_a_watch_that_resumes_where_it_ended():
    """Two pages, a watch that ends, and a watch from the last version."""
    answers = [
        reply(page(pod("a", 1), token="next")),
        reply(page(pod("b", 2))),
        stream(line("MODIFIED", pod("a", 11)), bookmark(15)),
        stream(line("DELETED", pod("a", 16)), line("ADDED", pod("c", 17)), then="silent"),
    ]
    async with scripted(*answers) as script:
        changes, pauses = await published(script, published_of("c", 17))
    assert changes == [up("a", 1), up("b", 2), Synced("10"), up("a", 11), down("a"), up("c", 17)]
    assert pauses == []
    assert queries(script, "limit", "continue", "watch", "resourceVersion") == [
        ("500", None, None, None),
        ("500", "next", None, None),
        (None, None, "true", "10"),
        (None, None, "true", "15"),
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(reply(body(410, "Expired"), status=410), id="as a status"),
        pytest.param(stream(line("ERROR", status(410, "Expired")), then="silent"), id="inside the stream"),
    ],
)
async def test_after_410_the_difference_is_published_with_deletions(refusal):
    """In one batch: changed, recreated, vanished; nothing for the unchanged."""
    answers = [
        reply(page(pod("same", 1), pod("changed", 2), pod("again", 3, uid="old"), pod("lost", 4))),
        refusal,
        reply(page(pod("same", 1), pod("changed", 22), pod("again", 33, uid="new"), rv=40)),
    ]
    async with scripted(*answers) as script:
        changes, _ = await published(script, lambda change: change == Synced("40"))
    after = changes[changes.index(Synced("10")) + 1 :]
    assert isinstance(after[0].error, Gone)
    assert after[1:] == [
        up("changed", 22),
        down("again", "old"),
        up("again", 33, "new"),
        down("lost"),
        Synced("40"),
    ]


@pytest.mark.asyncio
async def test_an_expired_continue_token_restarts_the_list():
    """410 on a page."""
    answers = [
        reply(page(pod("a", 1), token="next")),
        reply(body(410, "Expired"), status=410),
        reply(page(pod("a", 1), pod("b", 2))),
    ]
    async with scripted(*answers) as script:
        changes, _ = await published(script, lambda change: isinstance(change, Synced))
    assert [c for c in changes if not isinstance(c, Interrupted)] == [up("a", 1), up("b", 2), Synced("10")]
    assert queries(script, "continue") == [(None,), ("next",), (None,)]


@pytest.mark.asyncio
async def test_the_initial_state_is_streamed_if_the_server_supports_it():
    """One request until the watch ends."""
    answers = [
        stream(line("ADDED", pod("a", 1)), bookmark(9, ends=True), line("ADDED", pod("b", 11)), then="silent")
    ]
    async with scripted(*answers) as script:
        changes, _ = await published(script, published_of("b", 11), watch_list=True)
    assert changes == [up("a", 1), Synced("9"), up("b", 11)]
    assert queries(script, "sendInitialEvents", "resourceVersionMatch", "allowWatchBookmarks") == [
        ("true", "NotOlderThan", "true")
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize("code", [400, 422])
async def test_a_server_without_watchlist_is_listed_in_pages(code):
    """The fallback takes no pause."""
    answers = [
        reply(body(code, "Invalid", "sendInitialEvents is forbidden for watch"), status=code),
        reply(page(pod("a", 1))),
    ]
    async with scripted(*answers) as script:
        changes, pauses = await published(script, lambda change: isinstance(change, Synced), watch_list=True)
    assert (changes, pauses) == ([up("a", 1), Synced("10")], [])


@pytest.mark.asyncio
async def test_a_malformed_object_affects_no_other():
    """In the list and in the watch."""
    answers = [
        reply(page(pod("a", 1), broken("b", 2))),
        stream(line("ADDED", broken("c", 11)), line("ADDED", pod("d", 12)), then="silent"),
    ]
    async with scripted(*answers) as script:
        changes, _ = await published(script, published_of("d", 12))
    malformed = [str(change.key) for change in changes if isinstance(change, Malformed)]
    assert (malformed, changes[-1]) == (["default/b", "default/c"], up("d", 12))


@pytest.mark.asyncio
async def test_a_stream_cut_inside_an_object_loses_nothing():
    """The incomplete line is dropped; the watch resumes after the last complete one."""
    whole = line("ADDED", pod("a", 11)) + b"\n"
    half = line("ADDED", pod("b", 12))[:40]
    answers = [
        reply(page()),
        stream(whole + half, end=b"", then="cut"),
        stream(line("ADDED", pod("b", 12)), then="silent"),
    ]
    async with scripted(*answers) as script:
        changes, pauses = await published(script, published_of("b", 12))
    assert [type(change) for change in changes] == [Synced, Upserted, Interrupted, Upserted]
    assert isinstance(changes[2].error, Unreachable)
    assert (pauses, script.received[-1].query["resourceVersion"]) == ([0.375], "11")


@pytest.mark.asyncio
async def test_a_line_split_over_many_packets_is_one_event():
    text = line("ADDED", pod("a", 11)) + b"\n" + line("ADDED", pod("b", 12)) + b"\n"
    answers = [
        reply(page()),
        stream(*[text[i : i + 7] for i in range(0, len(text), 7)], end=b"", then="silent"),
    ]
    async with scripted(*answers) as script:
        changes, _ = await published(script, published_of("b", 12))
    assert changes == [Synced("10"), up("a", 11), up("b", 12)]


@pytest.mark.asyncio
async def test_a_silent_stream_is_reopened():
    """A stream without event, bookmark or end."""
    answers = [
        reply(page()),
        stream(bookmark(11), then="silent"),
        stream(then="silent"),
        stream(line("ADDED", pod("a", 12)), then="silent"),
    ]
    async with scripted(*answers) as script:
        changes, _ = await published(script, published_of("a", 12), silent_s=0.05)
    assert isinstance(changes[1].error, Silent)
    assert [request.query["resourceVersion"] for request in script.received[2:4]] == ["11", "11"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("failures", "error", "pause_s"),
    [
        pytest.param(
            [reply(body(429, "TooManyRequests"), status=429, headers={"Retry-After": "3"})],
            Throttled,
            3.15,
            id="429 with Retry-After",
        ),
        pytest.param([reply(b"oh no", status=500)], ServerFault, 0.375, id="500 from a proxy"),
        pytest.param(
            [lost(), lost()], Unreachable, 0.375, id="connection cut, and again at aiohttp's own retry"
        ),
    ],
)
async def test_failures_of_list_and_watch_are_published_and_retried(failures, error, pause_s):
    """Before and after the first sync."""
    answers = [*failures, reply(page()), *failures, stream(line("ADDED", pod("a", 11)), then="silent")]
    async with scripted(*answers) as script:
        changes, pauses = await published(script, published_of("a", 11))
    assert [type(change.error) for change in changes if isinstance(change, Interrupted)] == [error, error]
    assert pauses == pytest.approx([pause_s, pause_s])


@pytest.mark.asyncio
async def test_a_refused_connection_is_retried_with_growing_pauses():
    """Until the server is back."""
    async with scripted() as script:
        pass
    changes, pauses = await published(script, lambda c: isinstance(c, Interrupted) and c.retry_in_s > 2)
    assert pauses == [0.375, 0.75, 1.5]
    assert {change.error.reason for change in changes} == {"ConnectionRefused"}


@pytest.mark.asyncio
async def test_other_tasks_run_during_thousands_of_events():
    """At least once every 200 events."""
    n_events = 5_000
    text = b"\n".join(line("ADDED", pod(f"p{i}", 100 + i)) for i in range(n_events))
    turns = 0

    async def counting():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with scripted(reply(page()), stream(text, then="silent")) as script:
        other = asyncio.create_task(counting())
        changes, _ = await published(script, published_of(f"p{n_events - 1}", 100 + n_events - 1))
        other.cancel()
    assert len(changes) == n_events + 1
    assert turns >= n_events / 200


class Decoder:
    """Decoding takes a millisecond of a clock that otherwise stands still."""

    def __init__(self):
        self.at_s = 0.0
        #: Turns of other tasks so far, at each decoded object.
        self.turns = []
        self._n_turns = 0

    def now_s(self):
        return self.at_s

    def decode(self, _raw):
        self.at_s += 0.001
        self.turns.append(self._n_turns)

    async def count_turns(self):
        while True:
            self._n_turns += 1
            await asyncio.sleep(0)


@pytest.mark.asyncio
@pytest.mark.parametrize("watch_list", [False, True], ids=["a page", "initial events"])
async def test_other_tasks_run_sooner_if_decoding_is_slow(watch_list):
    """After a few ms."""
    pods = [pod(f"p{i:03}", 1) for i in range(400)]
    text = b"\n".join([*(line("ADDED", one) for one in pods), bookmark(2, ends=True)])
    answer = stream(text, then="silent") if watch_list else reply(page(*pods))
    decoder = Decoder()
    async with scripted(answer) as script, client_of(script) as client:
        counting = asyncio.create_task(decoder.count_turns())
        reflector = Reflector(client, PODS, decoder.decode, watch_list=watch_list, now_s=decoder.now_s)
        keys = []
        async with asyncio.timeout(10), aclosing(reflector.batches()) as batches:
            async for batch in batches:
                keys += [change.key.name for change in batch if isinstance(change, Upserted)]
                if isinstance(batch[-1], Synced):
                    break
        counting.cancel()
    assert keys == [one["metadata"]["name"] for one in pods]
    assert max(Counter(decoder.turns).values()) <= 2 * ITEMS_PER_STEP


@pytest.mark.asyncio
async def test_other_tasks_run_during_a_comparison():
    """Between pieces of a page; here every piece takes a second."""
    pods = [pod(f"p{i:05}", 1) for i in range(10_000)]
    seconds = count()
    turns = 0

    async def counting():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with scripted(reply(page(*pods)), reply(page(*pods))) as script, client_of(script) as client:
        reflector = Reflector(client, PODS, decode, watch_list=False, now_s=lambda: next(seconds))
        async with aclosing(reflector.batches()) as batches:
            async for batch in batches:
                if isinstance(batch[-1], Synced):
                    break
            before = len(script.received)
            other = asyncio.create_task(counting())
            mended = [piece async for piece in reflector.compare(page_pause_s=0.0)]
            other.cancel()
    assert (mended, len(script.received) - before) == ([(0, [])], 1)
    assert turns >= 10_000 / 50


@pytest.mark.asyncio
async def test_a_relist_ends_a_comparison():
    """A repaired object would count as listed by it, though it may be gone."""
    lost_ones = [pod(f"q{i:02}", 5) for i in range(60)]
    answers = [
        reply(page(pod("p", 1))),
        reply(page(pod("p", 1), *lost_ones)),
        reply(page(pod("p", 1), *lost_ones)),
    ]
    async with scripted(*answers) as script, client_of(script) as client:
        reflector = Reflector(client, PODS, decode, watch_list=False, sleep=FakeSleep())
        async with aclosing(reflector.batches()) as batches:
            await anext(batches)
            mended = []
            async for n, changes in reflector.compare():
                mended.append((n, changes))
                if n:
                    assert reflector.is_settled()
                    reflector._list_watch.handle(RequestFailed(Gone(410, "Expired", "too old")))
    assert mended == [(0, []), (20, [up(f"q{i:02}", 5) for i in range(20)])]
    assert not reflector.is_settled()


@pytest.mark.asyncio
async def test_a_decoder_may_return_anything():
    """The reflector is generic; here it decodes to names of nodes."""
    naming = msgspec.json.Decoder(dict[str, msgspec.Raw])
    node = {"metadata": {"name": "n1", "uid": "u", "resourceVersion": "1"}}
    async with scripted(reply(page(node))) as script, client_of(script) as client:
        reflector = Reflector(
            client, Resource("/api/v1/nodes"), lambda raw: sorted(naming.decode(raw)), watch_list=False
        )
        async with aclosing(reflector.batches()) as batches:
            first = await anext(batches)
    assert first == [Upserted(Key("", "n1"), "u", ["metadata"]), Synced("10")]

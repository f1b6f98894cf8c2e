"""The reflector against a server that follows a script."""

import asyncio
from collections import Counter
from contextlib import aclosing
from itertools import count

import msgspec
import pytest

from scheduler.errors import Gone, ServerFault, Silent, Throttled, Unreachable
from scheduler.kube.changes import Interrupted, Key, Malformed, Synced, Upserted
from scheduler.kube.reflecting import Reflector
from scheduler.kube.requests import Resource
from scheduler.kube.watching import ITEMS_AT_ONCE, Failed
from tests.kube.build import body, bookmark, broken, line, page, pod, status
from tests.kube.protocol import PODS, decode, down, up
from tests.kube.scripted import Naps, client_of, lost, reply, scripted, stream


async def told(script, until, *, watch_list=False, silent_s=30.0):
    """All changes up to and with the first that `until` accepts; the pauses taken."""
    naps = Naps()
    changes = []
    async with client_of(script) as client:
        reflector = Reflector(
            client, PODS, decode, sleep=naps, chance=lambda: 0.5, watch_list=watch_list, silent_s=silent_s
        )
        async with asyncio.timeout(10), aclosing(reflector.batches()) as batches:
            async for batch in batches:
                for change in batch:
                    changes.append(change)
                    if until(change):
                        return changes, naps.taken_s
    raise AssertionError("batches ended")


def told_of(name, rv):
    return lambda change: change == up(name, rv)


def queries(script, *names):
    return [tuple(asked.query.get(name) for name in names) for asked in script.asked]


@pytest.mark.asyncio
async def test_pages_then_a_watch_that_resumes_where_it_ended():
    """Two pages, a watch that ends, its successor from the last version."""
    answers = [
        reply(page(pod("a", 1), token="next")),
        reply(page(pod("b", 2))),
        stream(line("MODIFIED", pod("a", 11)), bookmark(15)),
        stream(line("DELETED", pod("a", 16)), line("ADDED", pod("c", 17)), then="silent"),
    ]
    async with scripted(*answers) as script:
        changes, pauses = await told(script, told_of("c", 17))
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
async def test_gone_relists_and_tells_the_difference_with_deletions(refusal):
    """In one batch: changed, recreated, vanished; nothing for the unchanged."""
    answers = [
        reply(page(pod("same", 1), pod("changed", 2), pod("again", 3, uid="old"), pod("lost", 4))),
        refusal,
        reply(page(pod("same", 1), pod("changed", 22), pod("again", 33, uid="new"), rv=40)),
    ]
    async with scripted(*answers) as script:
        changes, _ = await told(script, lambda change: change == Synced("40"))
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
async def test_an_expired_continue_token_starts_the_list_again():
    """410 on a page."""
    answers = [
        reply(page(pod("a", 1), token="next")),
        reply(body(410, "Expired"), status=410),
        reply(page(pod("a", 1), pod("b", 2))),
    ]
    async with scripted(*answers) as script:
        changes, _ = await told(script, lambda change: isinstance(change, Synced))
    assert [c for c in changes if not isinstance(c, Interrupted)] == [up("a", 1), up("b", 2), Synced("10")]
    assert queries(script, "continue") == [(None,), ("next",), (None,)]


@pytest.mark.asyncio
async def test_the_initial_state_streams_where_the_server_can():
    """One request until the watch ends."""
    answers = [
        stream(line("ADDED", pod("a", 1)), bookmark(9, ends=True), line("ADDED", pod("b", 11)), then="silent")
    ]
    async with scripted(*answers) as script:
        changes, _ = await told(script, told_of("b", 11), watch_list=True)
    assert changes == [up("a", 1), Synced("9"), up("b", 11)]
    assert queries(script, "sendInitialEvents", "resourceVersionMatch", "allowWatchBookmarks") == [
        ("true", "NotOlderThan", "true")
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize("code", [400, 422])
async def test_a_server_that_cannot_stream_lists_is_asked_in_pages(code):
    """The fallback takes no pause."""
    answers = [
        reply(body(code, "Invalid", "sendInitialEvents is forbidden for watch"), status=code),
        reply(page(pod("a", 1))),
    ]
    async with scripted(*answers) as script:
        changes, pauses = await told(script, lambda change: isinstance(change, Synced), watch_list=True)
    assert (changes, pauses) == ([up("a", 1), Synced("10")], [])


@pytest.mark.asyncio
async def test_a_malformed_object_hurts_itself_alone():
    """In the list and in the watch."""
    answers = [
        reply(page(pod("a", 1), broken("b", 2))),
        stream(line("ADDED", broken("c", 11)), line("ADDED", pod("d", 12)), then="silent"),
    ]
    async with scripted(*answers) as script:
        changes, _ = await told(script, told_of("d", 12))
    malformed = [str(change.key) for change in changes if isinstance(change, Malformed)]
    assert (malformed, changes[-1]) == (["default/b", "default/c"], up("d", 12))


@pytest.mark.asyncio
async def test_a_stream_cut_inside_an_object_loses_nothing():
    """The half line is dropped; the watch resumes after the last whole one."""
    whole = line("ADDED", pod("a", 11)) + b"\n"
    half = line("ADDED", pod("b", 12))[:40]
    answers = [
        reply(page()),
        stream(whole + half, end=b"", then="cut"),
        stream(line("ADDED", pod("b", 12)), then="silent"),
    ]
    async with scripted(*answers) as script:
        changes, pauses = await told(script, told_of("b", 12))
    assert [type(change) for change in changes] == [Synced, Upserted, Interrupted, Upserted]
    assert isinstance(changes[2].error, Unreachable)
    assert (pauses, script.asked[-1].query["resourceVersion"]) == ([0.375], "11")


@pytest.mark.asyncio
async def test_a_line_split_over_many_packets_is_one_event():
    """Whatever the network does to it."""
    text = line("ADDED", pod("a", 11)) + b"\n" + line("ADDED", pod("b", 12)) + b"\n"
    answers = [
        reply(page()),
        stream(*[text[i : i + 7] for i in range(0, len(text), 7)], end=b"", then="silent"),
    ]
    async with scripted(*answers) as script:
        changes, _ = await told(script, told_of("b", 12))
    assert changes == [Synced("10"), up("a", 11), up("b", 12)]


@pytest.mark.asyncio
async def test_a_silent_stream_is_opened_again():
    """Half a connection is worth nothing: no event, no bookmark, no end."""
    answers = [
        reply(page()),
        stream(bookmark(11), then="silent"),
        stream(then="silent"),
        stream(line("ADDED", pod("a", 12)), then="silent"),
    ]
    async with scripted(*answers) as script:
        changes, _ = await told(script, told_of("a", 12), silent_s=0.05)
    assert isinstance(changes[1].error, Silent)
    assert [request.query["resourceVersion"] for request in script.asked[2:4]] == ["11", "11"]


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
async def test_failures_of_list_and_watch_are_told_and_retried(failures, error, pause_s):
    """Before and after the first sync."""
    answers = [*failures, reply(page()), *failures, stream(line("ADDED", pod("a", 11)), then="silent")]
    async with scripted(*answers) as script:
        changes, pauses = await told(script, told_of("a", 11))
    assert [type(change.error) for change in changes if isinstance(change, Interrupted)] == [error, error]
    assert pauses == pytest.approx([pause_s, pause_s])


@pytest.mark.asyncio
async def test_a_refused_connection_is_retried_with_growing_pauses():
    """Nobody listens: the first pauses, until the server is back."""
    async with scripted() as script:
        pass
    changes, pauses = await told(script, lambda c: isinstance(c, Interrupted) and c.retry_in_s > 2)
    assert pauses == [0.375, 0.75, 1.5]
    assert {change.error.reason for change in changes} == {"ConnectionRefused"}


@pytest.mark.asyncio
async def test_thousands_of_events_at_once_leave_room_for_other_tasks():
    """The loop gets a turn at least every 200 events."""
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
        changes, _ = await told(script, told_of(f"p{n_events - 1}", 100 + n_events - 1))
        other.cancel()
    assert len(changes) == n_events + 1
    assert turns >= n_events / 200


class Decoder:
    """Every object takes a millisecond of a clock that stands still otherwise."""

    def __init__(self):
        self.at_s = 0.0
        #: How many turns others had had when each object was decoded.
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
async def test_objects_that_are_long_to_decode_leave_others_their_turn_sooner(watch_list):
    """A few ms of them at once, and a last piece."""
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
    assert max(Counter(decoder.turns).values()) <= 2 * ITEMS_AT_ONCE


@pytest.mark.asyncio
async def test_a_comparison_leaves_others_their_turn():
    """Between pieces of a page, however large it is; here every piece takes a second."""
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
            before = len(script.asked)
            other = asyncio.create_task(counting())
            mended = [piece async for piece in reflector.compare(page_pause_s=0.0)]
            other.cancel()
    assert (mended, len(script.asked) - before) == ([(0, [])], 1)
    assert turns >= 10_000 / 50


@pytest.mark.asyncio
async def test_a_list_of_the_watch_ends_the_mending_of_a_comparison():
    """What it mended would count as shown by that list, though it may be gone by then."""
    lost_ones = [pod(f"q{i:02}", 5) for i in range(60)]
    answers = [
        reply(page(pod("p", 1))),
        reply(page(pod("p", 1), *lost_ones)),
        reply(page(pod("p", 1), *lost_ones)),
    ]
    async with scripted(*answers) as script, client_of(script) as client:
        reflector = Reflector(client, PODS, decode, watch_list=False, sleep=Naps())
        async with aclosing(reflector.batches()) as batches:
            await anext(batches)
            mended = []
            async for n, changes in reflector.compare():
                mended.append((n, changes))
                if n:
                    assert reflector.is_settled()
                    reflector._machine.handle(Failed(Gone(410, "Expired", "too old")))
    assert mended == [(0, []), (20, [up(f"q{i:02}", 5) for i in range(20)])]
    assert not reflector.is_settled()


@pytest.mark.asyncio
async def test_a_decoder_may_return_anything():
    """The reflector is generic: here names of nodes."""
    naming = msgspec.json.Decoder(dict[str, msgspec.Raw])
    node = {"metadata": {"name": "n1", "uid": "u", "resourceVersion": "1"}}
    async with scripted(reply(page(node))) as script, client_of(script) as client:
        reflector = Reflector(
            client, Resource("/api/v1/nodes"), lambda raw: sorted(naming.decode(raw)), watch_list=False
        )
        async with aclosing(reflector.batches()) as batches:
            first = await anext(batches)
    assert first == [Upserted(Key("", "n1"), "u", ["metadata"]), Synced("10")]

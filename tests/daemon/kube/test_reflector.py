"""The reflector against a server that follows a script."""

import asyncio
from collections import Counter
from contextlib import aclosing
from itertools import count

import pytest

from scheduler.daemon.kube.changes import Interrupted, Synced, Upserted
from scheduler.daemon.kube.list_watch import ITEMS_PER_STEP
from scheduler.daemon.kube.reflector import Reflector
from scheduler.errors import Gone, ServerFault, Silent, Throttled, Unreachable
from tests.daemon.kube.protocol import PODS, decode, down, paging, published, queries, up
from tests.support.api_bodies import body, bookmark, line, page, pod
from tests.support.scripted_server import FakeSleep, client_of, lost, reply, scripted, stream
from tests.support.waiting import Turns


def published_of(name, rv):
    return lambda change: change == up(name, rv)


async def test_pages_then_a_watch_that_resumes_where_it_ended():
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


async def test_a_silent_stream_is_reopened():
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


FAILURES = {
    "429 with Retry-After": (
        [reply(body(429, "TooManyRequests"), status=429, headers={"Retry-After": "3"})],
        Throttled,
        3.15,
    ),
    "500 from a proxy": ([reply(b"oh no", status=500)], ServerFault, 0.375),
    "connection cut, and again at aiohttp's own retry": ([lost(), lost()], Unreachable, 0.375),
}


@pytest.mark.parametrize(("failures", "error", "pause_s"), FAILURES.values(), ids=FAILURES)
async def test_failures_of_list_and_watch_are_published_and_retried(failures, error, pause_s):
    answers = [*failures, reply(page()), *failures, stream(line("ADDED", pod("a", 11)), then="silent")]
    async with scripted(*answers) as script:
        changes, pauses = await published(script, published_of("a", 11))
    assert [type(change.error) for change in changes if isinstance(change, Interrupted)] == [error, error]
    assert pauses == pytest.approx([pause_s, pause_s])


async def test_other_tasks_run_during_thousands_of_events():
    n_events = 5_000
    text = b"\n".join(line("ADDED", pod(f"p{i}", 100 + i)) for i in range(n_events))
    async with scripted(reply(page()), stream(text, then="silent")) as script, Turns() as turns:
        changes, _ = await published(script, published_of(f"p{n_events - 1}", 100 + n_events - 1))
    assert len(changes) == n_events + 1
    assert turns.n >= n_events / 200


@pytest.mark.parametrize("watch_list", [False, True], ids=["a page", "initial events"])
async def test_other_tasks_run_sooner_if_decoding_is_slow(watch_list):
    pods = [pod(f"p{i:03}", 1) for i in range(400)]
    text = b"\n".join([*(line("ADDED", one) for one in pods), bookmark(2, ends=True)])
    answer = stream(text, then="silent") if watch_list else reply(page(*pods))
    decoded_at = []
    async with scripted(answer) as script, client_of(script) as client, Turns() as turns:
        # Decoding takes a millisecond of a clock that otherwise stands still.
        reflector = Reflector(
            client, PODS, lambda _: decoded_at.append(turns.n), now_s=lambda: len(decoded_at) / 1000
        )
        if not watch_list:
            paging(reflector.list_watch)
        keys = []
        async with asyncio.timeout(10), aclosing(reflector.batches()) as batches:
            async for batch in batches:
                keys += [change.key.rpartition("/")[2] for change in batch if isinstance(change, Upserted)]
                if isinstance(batch[-1], Synced):
                    break
    assert keys == [one["metadata"]["name"] for one in pods]
    assert max(Counter(decoded_at).values()) <= 2 * ITEMS_PER_STEP


async def test_other_tasks_run_during_a_comparison():
    pods = [pod(f"p{i:05}", 1) for i in range(10_000)]
    seconds = count()
    async with scripted(reply(page(*pods)), reply(page(*pods))) as script, client_of(script) as client:
        reflector = Reflector(client, PODS, decode, now_s=lambda: next(seconds))
        paging(reflector.list_watch)
        async with aclosing(reflector.batches()) as batches:
            async for batch in batches:
                if isinstance(batch[-1], Synced):
                    break
            before = len(script.received)
            async with Turns() as turns:
                mended = [piece async for piece in reflector.compare(page_pause_s=0.0)]
    assert (mended, len(script.received) - before) == ([(0, [])], 1)
    assert turns.n >= 10_000 / 50


async def test_a_relist_ends_a_comparison():
    """A repaired object would count as listed by it, though it may be gone."""
    lost_ones = [pod(f"q{i:02}", 5) for i in range(60)]
    answers = [
        reply(page(pod("p", 1))),
        reply(page(pod("p", 1), *lost_ones)),
        reply(page(pod("p", 1), *lost_ones)),
    ]
    async with scripted(*answers) as script, client_of(script) as client:
        reflector = Reflector(client, PODS, decode, sleep=FakeSleep())
        paging(reflector.list_watch)
        async with aclosing(reflector.batches()) as batches:
            await anext(batches)
            mended = []
            async for n, changes in reflector.compare():
                mended.append((n, changes))
                if n:
                    assert reflector.list_watch.is_settled()
                    reflector.list_watch.on_failure(Gone(410, "Expired", "too old"))
    assert mended == [(0, []), (20, [up(f"q{i:02}", 5) for i in range(20)])]
    assert not reflector.list_watch.is_settled()

"""A list of large objects is read to its end in shorter pages, within bounded memory."""

from contextlib import aclosing

import pytest

from scheduler.cli.query.listing import list_all
from scheduler.daemon.kube import transport as transport_module
from scheduler.daemon.kube.changes import Interrupted, Synced
from scheduler.daemon.kube.list_watch import FetchPage
from scheduler.daemon.kube.pager import PageSize
from scheduler.daemon.kube.reflector import Reflector
from scheduler.daemon.kube.requests import PAGE_LIMIT
from scheduler.daemon.kube.transport import BODY_LIMIT_BYTES, BODY_TOO_LONG
from scheduler.errors import Invalid
from tests.daemon.kube.protocol import (
    DUE,
    PODS,
    decode,
    down,
    failed,
    list_watch,
    play,
    published,
    queries,
    synced,
    up,
)
from tests.support.api_bodies import line, page, pod
from tests.support.scripted_server import FakeSleep, client_of, reply, scripted, stream

TOO_LONG = failed(Invalid(200, BODY_TOO_LONG, "more than that"))


def asked(machine, sign):
    [step] = [action for action in sign(machine) if isinstance(action, FetchPage)]
    query = dict(step.request.query)
    return int(query["limit"]), query.get("continue", "")


def test_one_object_that_is_too_long_is_a_failure():
    """With growing pauses, since no shorter page exists."""
    machine = list_watch()
    assert asked(machine, DUE) == (500, "")
    assert [asked(machine, TOO_LONG)[0] for _ in range(3)] == [62, 7, 1]
    [[interrupted], pause] = play(machine, TOO_LONG)
    assert isinstance(interrupted, Interrupted)
    assert pause[0] == "pause"


def test_a_watch_line_that_is_too_long_does_not_shrink_pages():
    machine = synced(list_watch(), pod("a", 1))
    [[interrupted], step] = play(machine, TOO_LONG)
    assert isinstance(interrupted, Interrupted)
    assert step == ("ask", "")


def test_the_page_size_returns_to_normal_after_short_pages():
    size, too_long = PageSize(), Invalid(200, BODY_TOO_LONG, "")
    while size.shrink(too_long):
        pass
    assert size.limit == 1
    size.grow(BODY_LIMIT_BYTES // 2)
    assert size.limit == 1
    for _ in range(4):
        size.grow(1000)
    assert size.limit == PAGE_LIMIT
    assert not size.shrink(Invalid(200, "LineTooLong", ""))


@pytest.fixture
def large():
    """Return a page of three pods that is too long, and three pages of one pod that are not."""
    pods = [pod(name, rv, note="x" * 400) for name, rv in (("a", 1), ("b", 2), ("c", 3))]
    return [
        reply(page(*pods)),
        reply(page(pods[0], token="b")),
        reply(page(*pods[1:], token="-")),
        reply(page(pods[1], token="c")),
        reply(page(pods[2])),
    ]


async def test_a_list_over_http_completes(monkeypatch, large):
    monkeypatch.setattr(transport_module, "BODY_LIMIT_BYTES", 1000)
    async with scripted(*large, stream(line("DELETED", pod("a", 16)), then="silent")) as script:
        changes, pauses = await published(script, lambda change: change == down("a"))
    assert changes == [up("a", 1), up("b", 2), up("c", 3), Synced("10"), down("a")]
    assert pauses == []
    assert [one[:2] for one in queries(script, "limit", "continue")][:5] == [
        ("500", None), ("62", None), ("496", "b"), ("62", "b"), ("496", "c"),
    ]  # fmt: skip


async def test_the_comparison_and_the_pager_complete_too(monkeypatch, large):
    monkeypatch.setattr(transport_module, "BODY_LIMIT_BYTES", 1000)
    async with scripted(*large, *large) as script, client_of(script) as client:
        reflector = Reflector(client, PODS, decode, sleep=FakeSleep(), jitter=lambda: 0.5)
        async with aclosing(reflector._list(0.0)) as objects:
            assert len([raw async for raw in objects]) == 3
        assert await list_all(client, PODS, decode, lambda _n: None) == ["1", "2", "3"]

"""Objects may be large: a list of them is read to its end all the same, in shorter pages, within bounded memory."""

from contextlib import aclosing

import pytest

from scheduler.cli.query.listing import list_all
from scheduler.errors import Invalid
from scheduler.kube import calls as calls_module
from scheduler.kube.calls import BODY_LIMIT_BYTES, BODY_TOO_LONG
from scheduler.kube.changes import Interrupted, Synced
from scheduler.kube.paging import PageSize
from scheduler.kube.reflecting import Reflector
from scheduler.kube.requests import PAGE_LIMIT
from scheduler.kube.watching import Ask, Due, Failed, PageArrived
from tests.kube.build import line, page, pod
from tests.kube.protocol import PODS, decode, down, play, synced, up, watching
from tests.kube.scripted import Naps, client_of, reply, scripted, stream
from tests.kube.test_reflecting import queries, told

TOO_LONG = Failed(Invalid(200, BODY_TOO_LONG, "more than that"))


def asked(machine, event):
    """Limit and continue token of the page that is asked for."""
    [step] = [action for action in machine.handle(event) if isinstance(action, Ask)]
    query = dict(step.request.query)
    return int(query["limit"]), query.get("continue", "")


def test_a_page_that_is_too_long_is_asked_for_again_with_fewer_objects():
    """From where it was; nothing is told to be wrong, and no WatchList is given up."""
    machine = watching()
    assert asked(machine, Due()) == (500, "")
    assert asked(machine, PageArrived(page(pod("a", 1), token="next"))) == (500, "next")
    assert asked(machine, TOO_LONG) == (62, "next")
    assert asked(machine, TOO_LONG) == (7, "next")
    assert [[up("b", 2), Synced("10")], ("watch", "10")] == play(machine, PageArrived(page(pod("b", 2))))


def test_one_object_that_is_too_long_is_a_failure():
    """With pauses, as any other: nothing shorter can be asked for."""
    machine = watching()
    assert asked(machine, Due()) == (500, "")
    assert [asked(machine, TOO_LONG)[0] for _ in range(3)] == [62, 7, 1]
    [[interrupted], pause] = play(machine, TOO_LONG)
    assert isinstance(interrupted, Interrupted)
    assert pause[0] == "pause"


def test_a_watch_that_fails_so_is_no_matter_of_pages():
    machine = synced(watching(), pod("a", 1))
    [[interrupted], step] = play(machine, TOO_LONG)
    assert isinstance(interrupted, Interrupted)
    assert step == ("ask", "")


def test_pages_are_as_long_as_usual_again_once_they_are_short():
    size, too_long = PageSize(), Invalid(200, BODY_TOO_LONG, "")
    while size.shrinks(too_long):
        pass
    assert size.limit == 1
    size.fitted(BODY_LIMIT_BYTES // 2)
    assert size.limit == 1
    for _ in range(4):
        size.fitted(1000)
    assert size.limit == PAGE_LIMIT
    assert not size.shrinks(Invalid(200, "LineTooLong", ""))


@pytest.fixture
def large():
    """A page of three pods that is too long, and three of one that are not."""
    pods = [pod(name, rv, note="x" * 400) for name, rv in (("a", 1), ("b", 2), ("c", 3))]
    return [
        reply(page(*pods)),
        reply(page(pods[0], token="b")),
        reply(page(*pods[1:], token="-")),
        reply(page(pods[1], token="c")),
        reply(page(pods[2])),
    ]


@pytest.mark.asyncio
async def test_a_list_over_http_comes_to_its_end(monkeypatch, large):
    monkeypatch.setattr(calls_module, "BODY_LIMIT_BYTES", 1000)
    async with scripted(*large, stream(line("DELETED", pod("a", 16)), then="silent")) as script:
        changes, pauses = await told(script, lambda change: change == down("a"))
    assert changes == [up("a", 1), up("b", 2), up("c", 3), Synced("10"), down("a")]
    assert pauses == []
    assert [one[:2] for one in queries(script, "limit", "continue")][:5] == [
        ("500", None), ("62", None), ("496", "b"), ("62", "b"), ("496", "c"),
    ]  # fmt: skip


@pytest.mark.asyncio
async def test_so_do_the_comparison_with_the_cache_and_a_commands_list(monkeypatch, large):
    monkeypatch.setattr(calls_module, "BODY_LIMIT_BYTES", 1000)
    async with scripted(*large, *large) as script, client_of(script) as client:
        reflector = Reflector(client, PODS, decode, sleep=Naps(), chance=lambda: 0.5, watch_list=False)
        async with aclosing(reflector._listed(0.0)) as objects:
            assert len([raw async for raw in objects]) == 3
        assert await list_all(client, PODS, decode, lambda _n: None) == ["1", "2", "3"]

"""Binds against a server that follows a script."""

import json

import pytest

from scheduler.shell.binder import (
    UNREADABLE_S,
    Binder,
    Bound,
    BoundElsewhere,
    PodNotFound,
    WriteFailed,
)
from tests.support.api_bodies import body, pod
from tests.support.scripted_server import FakeSleep, client_of, lost, reply, scripted

POSTED = ("POST", "/api/v1/namespaces/default/pods/p/binding")
READ = ("GET", "/api/v1/namespaces/default/pods/p")
LISTED = ("GET", "/api/v1/namespaces/default/pods")


def on(node_name, uid="uid-p"):
    return reply(
        json.dumps(pod("p", 5, uid=uid) | {"spec": {"nodeName": node_name} if node_name else {}}).encode()
    )


def listed(*node_names, uid="uid-p"):
    items = [pod("p", 5, uid=uid) | {"spec": {"nodeName": name} if name else {}} for name in node_names]
    return reply(json.dumps({"metadata": {"resourceVersion": "9"}, "items": items or None}).encode())


def refusal(code, reason="X", message="no", **headers):
    return reply(body(code, reason, message), status=code, headers=headers)


async def bound(script, *, sleep=None, **options):
    async with client_of(script) as client:
        binder = Binder(client, sleep=sleep or FakeSleep(), jitter=lambda: 1.0, **options)
        return await binder.bind(namespace="default", name="p", uid="uid-p", node_name="n1")


def requests_of(script):
    return [(request.method, request.path) for request in script.received]


ASSIGNED = refusal(409, "Conflict", "already assigned")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answers", "outcome", "requests"),
    [
        pytest.param([reply(status=201)], Bound(), [POSTED], id="accepted"),
        pytest.param([refusal(404)], PodNotFound(), [POSTED], id="pod missing"),
        pytest.param([refusal(403)], WriteFailed(403, "no"), [POSTED], id="forbidden"),
        pytest.param([refusal(422)], WriteFailed(422, "no"), [POSTED], id="invalid"),
        pytest.param([ASSIGNED, on("n1")], Bound(), [POSTED, READ], id="conflict with ourselves"),
        pytest.param(
            [ASSIGNED, on("n2")], BoundElsewhere("n2"), [POSTED, READ], id="another scheduler was faster"
        ),
        pytest.param(
            [ASSIGNED, on("n1", uid="new")], PodNotFound(), [POSTED, READ], id="conflict with a new uid"
        ),
        pytest.param(
            [refusal(409, "Conflict", "being deleted"), on("")],
            WriteFailed(409, "being deleted"),
            [POSTED, READ],
            id="terminating",
        ),
        pytest.param([lost(), on("n1")], Bound(), [POSTED, READ], id="answer lost, bound"),
        pytest.param([lost(), on("n2")], BoundElsewhere("n2"), [POSTED, READ], id="answer lost, other node"),
        pytest.param([lost(), refusal(404)], PodNotFound(), [POSTED, READ], id="answer lost, pod gone"),
        pytest.param(
            [lost(), on("n1", uid="new")], PodNotFound(), [POSTED, READ], id="answer lost, recreated"
        ),
        pytest.param(
            [lost(), on(""), reply()], Bound(), [POSTED, READ, POSTED], id="answer lost, unbound: sent again"
        ),
        pytest.param(
            [lost(), on(""), ASSIGNED, on("n1")],
            Bound(),
            [POSTED, READ, POSTED, READ],
            id="the lost bind takes effect late: conflict with ourselves",
        ),
        pytest.param(
            [refusal(504), on("n1")], Bound(), [POSTED, READ], id="timeout of the server after the bind"
        ),
        pytest.param(
            [lost(), refusal(500), reply(b"rubbish"), lost(), lost(), on("n1")],
            Bound(),
            [POSTED, READ, READ, READ, READ, READ],
            id="read until there is an answer",
        ),
    ],
)
async def test_a_bind_always_has_one_outcome(answers, outcome, requests):
    """It is never forgotten and never repeated blindly."""
    async with scripted(*answers) as script:
        assert await bound(script) == outcome
    assert requests_of(script) == requests


FORBIDDEN = refusal(403, "Forbidden", "cannot get pods")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answers", "outcome", "requests"),
    [
        pytest.param([listed("n1")], Bound(), [], id="done"),
        pytest.param([listed("n2")], BoundElsewhere("n2"), [], id="another scheduler was faster"),
        pytest.param([listed()], PodNotFound(), [], id="gone"),
        pytest.param([listed("n1", uid="new")], PodNotFound(), [], id="recreated"),
        pytest.param([listed(""), reply()], Bound(), [POSTED], id="unbound: sent again"),
        pytest.param(
            [refusal(503), FORBIDDEN, listed("n1")],
            Bound(),
            [READ, LISTED],
            id="the first list fails: listed again",
        ),
    ],
)
async def test_a_bind_in_doubt_whose_pod_may_not_be_read_is_settled_by_a_list(answers, outcome, requests):
    """Of that one pod; the missing right to read is reported once."""
    told: list[tuple[str, str]] = []
    async with scripted(lost(), FORBIDDEN, *answers) as script:
        assert await bound(script, on_unreadable=lambda *one: told.append(one)) == outcome
    assert requests_of(script) == [POSTED, READ, LISTED, *requests]
    assert script.received[2].query == {"fieldSelector": "metadata.name=p"}
    assert told == [("default/p", "403 Forbidden: cannot get pods")]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("shown", "outcome"),
    [
        pytest.param("n1", Bound(), id="on our node"),
        pytest.param("n2", BoundElsewhere("n2"), id="on another"),
        pytest.param(None, PodNotFound(), id="gone"),
    ],
)
async def test_a_bind_in_doubt_is_settled_by_the_watch_without_the_right_to_read_or_list(shown, outcome):
    """The watch shows the pod unbound for a while, then its end."""
    showing = iter(["", "", shown])
    async with scripted(lost(), *[FORBIDDEN] * 6) as script:
        assert (
            await bound(script, watched_node=lambda uid: next(showing) if uid == "uid-p" else "?") == outcome
        )
    assert requests_of(script) == [POSTED, *[READ, LISTED] * 3]


@pytest.mark.asyncio
async def test_a_bind_in_doubt_is_sent_again_if_the_watch_shows_the_pod_unbound_for_minutes():
    """Without that limit it would wait for ever, and 64 such binds block all others."""
    sleep = FakeSleep()
    async with scripted(lost(), *[FORBIDDEN] * 44, reply()) as script:
        assert await bound(script, sleep=sleep, now_s=lambda: sum(sleep.slept_s)) == Bound()
    assert requests_of(script) == [POSTED, *[READ, LISTED] * 22, POSTED]
    assert UNREADABLE_S < sum(sleep.slept_s) < UNREADABLE_S + 11.0


@pytest.mark.asyncio
async def test_a_pod_in_doubt_keeps_its_room_until_the_server_answers():
    """However long that takes."""
    sleep = FakeSleep()
    async with scripted(lost(), *[refusal(503)] * 60, on("n1")) as script:
        assert await bound(script, sleep=sleep, now_s=lambda: sum(sleep.slept_s)) == Bound()
    assert sum(sleep.slept_s) > 3 * UNREADABLE_S
    assert requests_of(script) == [POSTED, *[READ] * 61]


@pytest.mark.asyncio
async def test_a_bind_carries_the_uid():
    """A pod recreated under the same name is never bound."""
    async with scripted(reply()) as script:
        await bound(script)
    assert json.loads(script.received[0].body)["metadata"]["uid"] == "uid-p"


@pytest.mark.asyncio
async def test_without_the_lease_nothing_is_sent():
    """Another instance may be the leader."""
    async with scripted(reply()) as script:
        outcome = await bound(script, may_write=lambda: False)
    assert outcome == WriteFailed(0, "this instance does not hold the Lease")
    assert script.received == []


@pytest.mark.asyncio
async def test_a_bind_is_withdrawn_if_the_lease_is_lost_during_the_rate_limit():
    """Another instance may bind the pod by then."""
    holds = True

    async def sleep(_seconds):
        nonlocal holds
        holds = False

    async with scripted(reply()) as script, client_of(script, qps=1.0, burst=1, sleep=sleep) as client:
        binder = Binder(client, sleep=FakeSleep(), jitter=lambda: 1.0, may_write=lambda: holds)
        first, second = [
            await binder.bind(namespace="default", name="p", uid="uid-p", node_name="n1") for _ in range(2)
        ]
    assert (first, second) == (Bound(), WriteFailed(0, "this instance does not hold the Lease"))
    assert len(script.received) == 1


@pytest.mark.asyncio
async def test_a_throttled_bind_honours_retry_after_and_reports_it():
    """Up to a limit."""
    sleep = FakeSleep()
    told: list[float] = []
    answers = [refusal(429, **{"Retry-After": "2"}), refusal(429, **{"Retry-After": "9000"}), reply()]
    async with scripted(*answers) as script:
        assert await bound(script, sleep=sleep, on_throttled=told.append) == Bound()
    assert sleep.slept_s == pytest.approx([2.2, 33.0])
    assert told == [2.0, 9000.0]


@pytest.mark.asyncio
async def test_a_bind_that_cannot_be_sent_fails_after_five_attempts():
    """With growing pauses; it took no effect."""
    async with scripted() as script:
        pass
    sleep = FakeSleep()
    outcome = await bound(script, sleep=sleep)
    assert isinstance(outcome, WriteFailed)
    assert outcome.status == 0
    assert sleep.slept_s == pytest.approx([0.1, 0.2, 0.4, 0.8])


@pytest.mark.asyncio
async def test_a_bind_that_is_lost_five_times_fails():
    """The pod is read as unbound each time."""
    async with scripted(*[refusal(500, "InternalError", "etcd"), on("")] * 5) as script:
        assert await bound(script) == WriteFailed(500, "etcd")
    assert requests_of(script) == [POSTED, READ] * 5

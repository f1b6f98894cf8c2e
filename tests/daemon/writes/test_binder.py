"""Binds against a server that follows a script."""

import json
from dataclasses import replace

import pytest

from scheduler.daemon.writes.binder import UNREADABLE_S, Binder
from scheduler.daemon.writes.sending import TIMEOUT_S, Sender
from scheduler.engine.model.instructions import Bind
from tests.daemon.writes.answers import refusal
from tests.support.api_bodies import pod
from tests.support.driving import Driver
from tests.support.scripted_server import FakeSleep, client_of, lost, reply, scripted

PODS = "/api/v1/namespaces/default/pods"
#: What is sent: a bind, a read of the pod, a list of it alone.
LETTERS = {("POST", f"{PODS}/p/binding"): "B", ("GET", f"{PODS}/p"): "R", ("GET", PODS): "L"}


def on(node_name, uid="uid-p"):
    return reply(
        json.dumps(pod("p", 5, uid=uid) | {"spec": {"nodeName": node_name} if node_name else {}}).encode()
    )


def listed(*node_names, uid="uid-p"):
    items = [pod("p", 5, uid=uid) | {"spec": {"nodeName": name} if name else {}} for name in node_names]
    return reply(json.dumps({"metadata": {"resourceVersion": "9"}, "items": items or None}).encode())


BIND = Bind(replace(Driver().pod("p"), uid="uid-p"), "n1")
BOUND, NOT_FOUND = "", 'pods "p" not found'
ELSEWHERE = 'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n2"'


async def bound(
    script, *, sleep=None, on_throttled=lambda _: None, may_write=lambda: True, now_s=None, **options
):
    async with client_of(script) as client:
        sender = Sender(
            client,
            sleep=sleep or FakeSleep(),
            jitter=lambda: 1.0,
            on_throttled=on_throttled,
            may_write=may_write,
            now_s=now_s or (lambda: 0.0),
        )
        return await Binder(sender, **options).bind(BIND)


def requests_of(script):
    return "".join(LETTERS[request.method, request.path] for request in script.received)


ASSIGNED = refusal(409, "Conflict", "already assigned")


OUTCOMES = {
    "accepted": ([reply(status=201)], BOUND, "B"),
    "pod missing": ([refusal(404)], NOT_FOUND, "B"),
    "forbidden": ([refusal(403)], "no", "B"),
    "invalid": ([refusal(422)], "no", "B"),
    "conflict with ourselves": ([ASSIGNED, on("n1")], BOUND, "BR"),
    "another scheduler was faster": ([ASSIGNED, on("n2")], ELSEWHERE, "BR"),
    "conflict with a new uid": ([ASSIGNED, on("n1", uid="new")], NOT_FOUND, "BR"),
    "terminating": ([refusal(409, "Conflict", "being deleted"), on("")], "being deleted", "BR"),
    "answer lost, bound": ([lost(), on("n1")], BOUND, "BR"),
    "answer lost, other node": ([lost(), on("n2")], ELSEWHERE, "BR"),
    "answer lost, pod gone": ([lost(), refusal(404)], NOT_FOUND, "BR"),
    "answer lost, recreated": ([lost(), on("n1", uid="new")], NOT_FOUND, "BR"),
    "answer lost, unbound: sent again": ([lost(), on(""), reply()], BOUND, "BRB"),
    "the lost bind takes effect late: a conflict": ([lost(), on(""), ASSIGNED, on("n1")], BOUND, "BRBR"),
    "timeout of the server after the bind": ([refusal(504), on("n1")], BOUND, "BR"),
    "read until there is an answer": (
        [lost(), refusal(500), reply(b"rubbish"), lost(), lost(), on("n1")],
        BOUND,
        "BRRRRR",
    ),
    "lost five times": ([refusal(500, "X", "etcd"), on("")] * 5, "etcd", "BR" * 5),
}


@pytest.mark.parametrize(("answers", "outcome", "requests"), OUTCOMES.values(), ids=OUTCOMES)
async def test_a_bind_always_has_one_outcome(answers, outcome, requests):
    async with scripted(*answers) as script:
        assert await bound(script) == outcome
    assert requests_of(script) == requests
    # A pod recreated under the same name is never bound.
    assert json.loads(script.received[0].body)["metadata"]["uid"] == "uid-p"


FORBIDDEN = refusal(403, "Forbidden", "cannot get pods")


LISTED_OUTCOMES = {
    "done": ([listed("n1")], BOUND, ""),
    "another scheduler was faster": ([listed("n2")], ELSEWHERE, ""),
    "gone": ([listed()], NOT_FOUND, ""),
    "recreated": ([listed("n1", uid="new")], NOT_FOUND, ""),
    "unbound: sent again": ([listed(""), reply()], BOUND, "B"),
    "the first list fails: listed again": ([refusal(503), FORBIDDEN, listed("n1")], BOUND, "RL"),
}


@pytest.mark.parametrize(("answers", "outcome", "requests"), LISTED_OUTCOMES.values(), ids=LISTED_OUTCOMES)
async def test_a_bind_in_doubt_whose_pod_may_not_be_read_is_settled_by_a_list(answers, outcome, requests):
    told: list[tuple[str, str]] = []
    async with scripted(lost(), FORBIDDEN, *answers) as script:
        assert await bound(script, on_unreadable=lambda *one: told.append(one)) == outcome
    assert requests_of(script) == "BRL" + requests
    assert script.received[2].query == {"fieldSelector": "metadata.name=p"}
    assert told == [("default/p", "403 Forbidden: cannot get pods")]


WATCHED_OUTCOMES = {
    "on our node": ("n1", BOUND),
    "on another": ("n2", ELSEWHERE),
    "gone": (None, NOT_FOUND),
}


@pytest.mark.parametrize(("shown", "outcome"), WATCHED_OUTCOMES.values(), ids=WATCHED_OUTCOMES)
async def test_a_bind_in_doubt_is_settled_by_the_watch_without_the_right_to_read_or_list(shown, outcome):
    showing = iter(["", "", shown])
    async with scripted(lost(), *[FORBIDDEN] * 6) as script:
        shown_node = await bound(script, watched_node=lambda uid: next(showing) if uid == "uid-p" else "?")
    assert shown_node == outcome
    assert requests_of(script) == "B" + "RL" * 3


async def test_a_bind_in_doubt_is_sent_again_if_the_watch_shows_the_pod_unbound_for_minutes():
    """Without that limit it would wait for ever, and 64 such binds block all others."""
    sleep = FakeSleep()
    async with scripted(lost(), *[FORBIDDEN] * 44, reply()) as script:
        assert await bound(script, sleep=sleep, now_s=lambda: sum(sleep.slept_s)) == BOUND
    assert requests_of(script) == "B" + "RL" * 22 + "B"
    assert UNREADABLE_S < sum(sleep.slept_s) < UNREADABLE_S + 11.0


async def test_a_pod_in_doubt_keeps_its_room_until_the_server_answers():
    sleep = FakeSleep()
    async with scripted(lost(), *[refusal(503)] * 60, on("n1")) as script:
        assert await bound(script, sleep=sleep, now_s=lambda: sum(sleep.slept_s)) == BOUND
    assert sum(sleep.slept_s) > 3 * UNREADABLE_S
    assert requests_of(script) == "B" + "R" * 61


async def test_a_lost_answer_counts_as_a_slow_one():
    """It lowers the limit on binds in flight."""
    seconds: list[float] = []
    async with scripted(lost(), on(""), reply()) as script:
        assert await bound(script, on_answer=seconds.append) == BOUND
    assert seconds == [TIMEOUT_S, 0.0]


async def test_a_bind_is_withdrawn_if_the_lease_is_lost_during_the_rate_limit():
    """Another instance may bind the pod by then."""
    holds = True

    async def sleep(_seconds):
        nonlocal holds
        holds = False

    async with scripted(reply()) as script, client_of(script, qps=1.0, burst=1, sleep=sleep) as client:
        binder = Binder(Sender(client, sleep=FakeSleep(), may_write=lambda: holds))
        first, second = [await binder.bind(BIND) for _ in range(2)]
    assert (first, second) == (BOUND, "this instance does not hold the Lease")
    assert len(script.received) == 1


async def test_a_throttled_bind_honours_retry_after_and_reports_it():
    sleep = FakeSleep()
    told: list[float] = []
    answers = [refusal(429, **{"Retry-After": "2"}), refusal(429, **{"Retry-After": "9000"}), reply()]
    async with scripted(*answers) as script:
        assert await bound(script, sleep=sleep, on_throttled=told.append) == BOUND
    assert sleep.slept_s == pytest.approx([2.2, 33.0])
    assert told == [2.0, 9000.0]


async def test_a_bind_that_cannot_be_sent_fails_after_five_attempts():
    async with scripted() as script:
        pass
    sleep = FakeSleep()
    outcome = await bound(script, sleep=sleep)
    assert outcome.startswith("nothing listens on ")
    assert sleep.slept_s == pytest.approx([0.1, 0.2, 0.4, 0.8])

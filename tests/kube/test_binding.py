"""Binding and conditions against a server that follows a script."""

import json

import pytest

from scheduler.kube.requests import PodCondition
from scheduler.shell.binder import UNREADABLE_S, Binder, Bound, BoundElsewhere, Patched, PodGone, Refused
from tests.kube.build import body, pod
from tests.kube.scripted import Naps, client_of, lost, reply, scripted

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


async def bound(script, *, naps=None, **options):
    async with client_of(script) as client:
        binder = Binder(client, sleep=naps or Naps(), chance=lambda: 1.0, **options)
        return await binder.bind(namespace="default", name="p", uid="uid-p", node_name="n1")


def asked(script):
    return [(request.method, request.path) for request in script.asked]


ASSIGNED = refusal(409, "Conflict", "already assigned")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answers", "outcome", "requests"),
    [
        pytest.param([reply(status=201)], Bound(), [POSTED], id="accepted"),
        pytest.param([refusal(404)], PodGone(), [POSTED], id="pod missing"),
        pytest.param([refusal(403)], Refused(403, "no"), [POSTED], id="forbidden"),
        pytest.param([refusal(422)], Refused(422, "no"), [POSTED], id="invalid"),
        pytest.param([ASSIGNED, on("n1")], Bound(), [POSTED, READ], id="conflict with ourselves"),
        pytest.param([ASSIGNED, on("n2")], BoundElsewhere("n2"), [POSTED, READ], id="somebody was faster"),
        pytest.param(
            [ASSIGNED, on("n1", uid="new")], PodGone(), [POSTED, READ], id="conflict with a new uid"
        ),
        pytest.param(
            [refusal(409, "Conflict", "being deleted"), on("")],
            Refused(409, "being deleted"),
            [POSTED, READ],
            id="terminating",
        ),
        pytest.param([lost(), on("n1")], Bound(), [POSTED, READ], id="answer lost, but done"),
        pytest.param([lost(), on("n2")], BoundElsewhere("n2"), [POSTED, READ], id="answer lost, other node"),
        pytest.param([lost(), refusal(404)], PodGone(), [POSTED, READ], id="answer lost, pod gone"),
        pytest.param([lost(), on("n1", uid="new")], PodGone(), [POSTED, READ], id="answer lost, recreated"),
        pytest.param(
            [lost(), on(""), reply()], Bound(), [POSTED, READ, POSTED], id="answer lost, not done: once more"
        ),
        pytest.param(
            [lost(), on(""), ASSIGNED, on("n1")],
            Bound(),
            [POSTED, READ, POSTED, READ],
            id="lost one takes effect late: our own conflict",
        ),
        pytest.param(
            [refusal(504), on("n1")], Bound(), [POSTED, READ], id="server lost patience after doing it"
        ),
        pytest.param(
            [lost(), refusal(500), reply(b"rubbish"), lost(), lost(), on("n1")],
            Bound(),
            [POSTED, READ, READ, READ, READ, READ],
            id="reading goes on until there is an answer",
        ),
    ],
)
async def test_a_bind_always_ends_in_one_answer(answers, outcome, requests):
    """Nothing is forgotten, nothing repeated blindly."""
    async with scripted(*answers) as script:
        assert await bound(script) == outcome
    assert asked(script) == requests


FORBIDDEN = refusal(403, "Forbidden", "cannot get pods")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answers", "outcome", "requests"),
    [
        pytest.param([listed("n1")], Bound(), [], id="done"),
        pytest.param([listed("n2")], BoundElsewhere("n2"), [], id="somebody was faster"),
        pytest.param([listed()], PodGone(), [], id="gone"),
        pytest.param([listed("n1", uid="new")], PodGone(), [], id="recreated"),
        pytest.param([listed(""), reply()], Bound(), [POSTED], id="not done: once more"),
        pytest.param(
            [refusal(503), FORBIDDEN, listed("n1")],
            Bound(),
            [READ, LISTED],
            id="no list at first: asked again",
        ),
    ],
)
async def test_a_bind_in_doubt_whose_pod_may_not_be_read_is_settled_by_a_list(answers, outcome, requests):
    """Of that one pod, and it is told once that the right to read it is missing."""
    told: list[tuple[str, str]] = []
    async with scripted(lost(), FORBIDDEN, *answers) as script:
        assert await bound(script, on_unreadable=lambda *one: told.append(one)) == outcome
    assert asked(script) == [POSTED, READ, LISTED, *requests]
    assert script.asked[2].query == {"fieldSelector": "metadata.name=p"}
    assert told == [("default/p", "403 Forbidden: cannot get pods")]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("shown", "outcome"),
    [
        pytest.param("n1", Bound(), id="on our node"),
        pytest.param("n2", BoundElsewhere("n2"), id="on another"),
        pytest.param(None, PodGone(), id="gone"),
    ],
)
async def test_a_bind_in_doubt_is_settled_by_the_watch_where_nothing_may_be_asked(shown, outcome):
    """It shows the pod unbound for a while, then what became of it."""
    showing = iter(["", "", shown])
    async with scripted(lost(), *[FORBIDDEN] * 6) as script:
        assert (
            await bound(script, whereabouts=lambda uid: next(showing) if uid == "uid-p" else "?") == outcome
        )
    assert asked(script) == [POSTED, *[READ, LISTED] * 3]


@pytest.mark.asyncio
async def test_a_bind_in_doubt_is_sent_again_where_the_watch_alone_answers_and_goes_on_showing_it_unbound():
    """After minutes it cannot have been done; without that bound it would wait for ever, and 64 of them hold up all."""
    naps = Naps()
    async with scripted(lost(), *[FORBIDDEN] * 44, reply()) as script:
        assert await bound(script, naps=naps, now_s=lambda: sum(naps.taken_s)) == Bound()
    assert asked(script) == [POSTED, *[READ, LISTED] * 22, POSTED]
    assert UNREADABLE_S < sum(naps.taken_s) < UNREADABLE_S + 11.0


@pytest.mark.asyncio
async def test_a_server_that_does_not_answer_is_no_server_that_refuses():
    """However long it takes: the pod keeps its place until the server says what became of it."""
    naps = Naps()
    async with scripted(lost(), *[refusal(503)] * 60, on("n1")) as script:
        assert await bound(script, naps=naps, now_s=lambda: sum(naps.taken_s)) == Bound()
    assert sum(naps.taken_s) > 3 * UNREADABLE_S
    assert asked(script) == [POSTED, *[READ] * 61]


@pytest.mark.asyncio
async def test_a_bind_carries_the_uid():
    """So that a namesake is never bound."""
    async with scripted(reply()) as script:
        await bound(script)
    assert json.loads(script.asked[0].body)["metadata"]["uid"] == "uid-p"


@pytest.mark.asyncio
async def test_without_the_lease_nothing_is_sent():
    """Another instance may be at it."""
    async with scripted(reply()) as script:
        outcome = await bound(script, may_write=lambda: False)
    assert outcome == Refused(0, "this instance does not hold the Lease")
    assert script.asked == []


@pytest.mark.asyncio
async def test_a_lease_that_is_lost_while_the_rate_limit_holds_a_bind_back_keeps_it_here():
    """A second later the pod may be somebody else's."""
    holds = True

    async def sleep(_seconds):
        nonlocal holds
        holds = False

    async with scripted(reply()) as script, client_of(script, qps=1.0, burst=1, sleep=sleep) as client:
        binder = Binder(client, sleep=Naps(), chance=lambda: 1.0, may_write=lambda: holds)
        first, second = [
            await binder.bind(namespace="default", name="p", uid="uid-p", node_name="n1") for _ in range(2)
        ]
    assert (first, second) == (Bound(), Refused(0, "this instance does not hold the Lease"))
    assert len(script.asked) == 1


@pytest.mark.asyncio
async def test_a_throttled_bind_waits_as_asked_and_tells_the_others():
    """429 is no refusal; the wish is bounded."""
    naps = Naps()
    told: list[float] = []
    answers = [refusal(429, **{"Retry-After": "2"}), refusal(429, **{"Retry-After": "9000"}), reply()]
    async with scripted(*answers) as script:
        assert await bound(script, naps=naps, on_throttled=told.append) == Bound()
    assert naps.taken_s == pytest.approx([2.2, 33.0])
    assert told == [2.0, 9000.0]


@pytest.mark.asyncio
async def test_a_bind_that_never_leaves_is_given_up_after_bounded_tries():
    """Nobody listens: five tries, growing pauses, and the truth that it did not happen."""
    async with scripted() as script:
        pass
    naps = Naps()
    outcome = await bound(script, naps=naps)
    assert isinstance(outcome, Refused)
    assert outcome.status == 0
    assert naps.taken_s == pytest.approx([0.1, 0.2, 0.4, 0.8])


@pytest.mark.asyncio
async def test_a_bind_that_is_never_done_is_given_up_after_bounded_tries():
    """Each time lost, each time found unbound."""
    async with scripted(*[refusal(500, "InternalError", "etcd"), on("")] * 5) as script:
        assert await bound(script) == Refused(500, "etcd")
    assert asked(script) == [POSTED, READ] * 5


CONDITION = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message="0/1")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answers", "outcome", "n_tries"),
    [
        pytest.param([reply()], Patched(), 1, id="written"),
        pytest.param([refusal(500, "InternalError"), reply()], Patched(), 2, id="internal error"),
        pytest.param([refusal(503), reply()], Patched(), 2, id="unavailable"),
        pytest.param([refusal(409), refusal(409), reply()], Patched(), 3, id="conflicts"),
        pytest.param([refusal(409)] * 4, Refused(409, "no"), 4, id="four tries at most"),
        pytest.param([refusal(404)], PodGone(), 1, id="pod gone"),
        pytest.param(
            [refusal(422, "Invalid", "metadata.uid: field is immutable")],
            PodGone(),
            1,
            id="another pod of the name",
        ),
        pytest.param([refusal(422)], Refused(422, "no"), 1, id="invalid"),
        pytest.param([refusal(504, "Timeout")], Refused(504, "no"), 1, id="time-out of the server"),
    ],
)
async def test_a_condition_is_tried_again_as_upstream_does(answers, outcome, n_tries):
    """Internal error, unavailable, conflict; nothing else."""
    async with scripted(*answers) as script, client_of(script) as client:
        binder = Binder(client, sleep=Naps(), chance=lambda: 0.0)
        patched = await binder.patch_condition(namespace="default", name="p", uid="u", condition=CONDITION)
    assert (patched, len(script.asked)) == (outcome, n_tries)


@pytest.mark.asyncio
async def test_without_the_lease_no_condition_is_sent():
    """The next leader may have bound the pod, and what we say of it is out of date."""
    async with scripted(reply()) as script, client_of(script) as client:
        binder = Binder(client, sleep=Naps(), chance=lambda: 0.0, may_write=lambda: False)
        outcome = await binder.patch_condition(namespace="default", name="p", uid="u", condition=CONDITION)
    assert outcome == Refused(0, "the request was not to be sent any more")
    assert script.asked == []


@pytest.mark.asyncio
async def test_pauses_between_patches_grow_fivefold_from_ten_milliseconds():
    """A refused connection is tried again too; jitter is up to a tenth."""
    async with scripted() as script:
        pass
    naps = Naps()
    async with client_of(script) as client:
        binder = Binder(client, sleep=naps, chance=lambda: 1.0)
        patched = await binder.patch_condition(namespace="default", name="p", uid="u", condition=CONDITION)
    assert isinstance(patched, Refused)
    assert naps.taken_s == pytest.approx([0.011, 0.055, 0.275])

"""The outcome of an eviction for every response of the server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.tools.enforcer import loop as enforcer
from scheduler.tools.enforcer.evictor import TIMEOUT_S, EvictionOutcome, evict, nominate
from scheduler.tools.enforcer.instructions import EvictionResult
from tests.support import build
from tests.support.api_bodies import body
from tests.support.json_cluster import decoded
from tests.support.scripted_server import client_of, lost, reply, scripted


def refusal(code: int, message: str = "no", **headers: str) -> Any:
    return reply(body(code, "X", message), status=code, headers=headers)


def found(uid: str = "u1", *, leaving: bool = False) -> Any:
    return reply(json.dumps(build.pod("p", uid=uid, terminating=leaving)).encode())


RESPONSES = {
    "accepted": ([reply(status=201)], EvictionOutcome(EvictionResult.EVICTED)),
    "no such pod": ([refusal(404)], EvictionOutcome(EvictionResult.GONE)),
    "a disruption budget forbids it": (
        [refusal(429, "budget", **{"Retry-After": "10"})],
        EvictionOutcome(EvictionResult.BLOCKED, "budget", 10.0),
    ),
    "not allowed to": ([refusal(403, "rbac")], EvictionOutcome(EvictionResult.FAILED, "403 X: rbac")),
    "another pod of that name": ([refusal(409), found("u2")], EvictionOutcome(EvictionResult.GONE)),
    "gone before the read": ([refusal(409), refusal(404)], EvictionOutcome(EvictionResult.GONE)),
    "conflict, still there": ([refusal(409), found()], EvictionOutcome(EvictionResult.FAILED, "409 X: no")),
    "answer lost, pod terminating": ([lost(), found(leaving=True)], EvictionOutcome(EvictionResult.EVICTED)),
    "answer lost, pod gone": ([lost(), refusal(404)], EvictionOutcome(EvictionResult.EVICTED)),
    "more than one budget": (
        [refusal(500, "two budgets"), found()],
        EvictionOutcome(EvictionResult.FAILED, "500 X: two budgets"),
    ),
    "the read fails too": (
        [refusal(500, "a"), refusal(503, "b")],
        EvictionOutcome(EvictionResult.FAILED, "500 X: a; then: 503 X: b"),
    ),
    "an unreadable answer": (
        [refusal(500, "a"), reply(b"[]")],
        EvictionOutcome(
            EvictionResult.FAILED,
            "500 X: a; then: 200 BadAnswer: not a Pod: Expected `object`, got `array`",
        ),
    ),
}


@pytest.mark.parametrize(("answers", "outcome"), RESPONSES.values(), ids=RESPONSES)
async def test_every_response_has_its_outcome(answers: list[Any], outcome: EvictionOutcome) -> None:
    """A lost eviction is settled by reading the pod once."""
    pod = decoded(build.pod("p", uid="u1", node="n"))
    async with scripted(*answers) as script, client_of(script) as client:
        assert await evict(client, pod) == outcome
        assert len(script.received) == len(answers)
        sent = json.loads(script.received[0].body)
    assert sent == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p", "namespace": "default"},
        "deleteOptions": {"preconditions": {"uid": "u1"}},
    }
    assert script.received[0].path == "/api/v1/namespaces/default/pods/p/eviction"


@pytest.mark.parametrize("is_refused", [False, True])
async def test_pods_are_nominated_until_one_is_refused(is_refused: bool) -> None:
    pods = [decoded(build.pod(name, uid=name)) for name in ("m0", "m1")]
    answers = [refusal(403, "rbac")] if is_refused else [reply(body(200, "", "")), reply(body(200, "", ""))]
    async with scripted(*answers) as script, client_of(script) as client:
        outcome = await nominate(client, [(pods[0], "n0"), (pods[1], "")], may_act=lambda: True)
        sent = [(each.path, json.loads(each.body)) for each in script.received]
    path = "/api/v1/namespaces/default/pods/{}/status"
    wanted = [
        (path.format("m0"), {"metadata": {"uid": "m0"}, "status": {"nominatedNodeName": "n0"}}),
        (path.format("m1"), {"metadata": {"uid": "m1"}, "status": {"nominatedNodeName": None}}),
    ]
    why = "nominate default/m0 to n0: 403 X: rbac"
    assert outcome == (EvictionOutcome(EvictionResult.FAILED, why) if is_refused else None)
    assert sent == (wanted[:1] if is_refused else wanted)


@pytest.mark.parametrize("n_written", [0, 1, 2])
async def test_an_enforcer_that_lost_its_lease_nominates_no_further_pod_and_evicts_none(
    n_written: int,
) -> None:
    """The search for the move came in pieces, between which it may have lost it."""
    pods = [decoded(build.pod(name, uid=name)) for name in ("m0", "m1")]
    async with scripted(*[reply(body(200, "", ""))] * n_written) as script, client_of(script) as client:
        nominations = [(pods[0], "n0"), (pods[1], "")]
        outcome = await nominate(client, nominations, may_act=lambda: len(script.received) < n_written)
        assert len(script.received) == n_written
    assert outcome == EvictionOutcome(EvictionResult.FAILED, "this enforcer no longer leads, or stops")


def test_the_shutdown_waits_longer_than_an_eviction_takes() -> None:
    assert TIMEOUT_S < enforcer._STOP_EVICTION_S

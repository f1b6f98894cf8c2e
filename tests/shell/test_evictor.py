"""What becomes of an eviction, whatever the server answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.enforcing.instructions import EvictionResult
from scheduler.model.pod_decoder import PodDecoder
from scheduler.shell import enforcer
from scheduler.shell.evictor import TIMEOUT_S, Outcome, evicted
from tests.kube.build import body
from tests.kube.scripted import client_of, lost, reply, scripted
from tests.support import build


def refusal(code: int, message: str = "no", **headers: str) -> Any:
    return reply(body(code, "X", message), status=code, headers=headers)


def found(uid: str = "u1", *, leaving: bool = False) -> Any:
    return reply(json.dumps(build.pod("p", uid=uid, terminating=leaving)).encode())


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        pytest.param([reply(status=201)], Outcome(EvictionResult.EVICTED), id="accepted"),
        pytest.param([refusal(404)], Outcome(EvictionResult.GONE), id="no such pod"),
        pytest.param(
            [refusal(429, "budget", **{"Retry-After": "10"})],
            Outcome(EvictionResult.BLOCKED, "budget", 10.0),
            id="a disruption budget forbids it",
        ),
        pytest.param(
            [refusal(403, "rbac")], Outcome(EvictionResult.FAILED, "403 X: rbac"), id="not allowed to"
        ),
        pytest.param(
            [refusal(409), found("u2")], Outcome(EvictionResult.GONE), id="another pod of that name"
        ),
        pytest.param([refusal(409), refusal(404)], Outcome(EvictionResult.GONE), id="gone before we asked"),
        pytest.param(
            [refusal(409), found()], Outcome(EvictionResult.FAILED, "409 X: no"), id="conflict, still there"
        ),
        pytest.param(
            [lost(), found(leaving=True)], Outcome(EvictionResult.EVICTED), id="answer lost, but done"
        ),
        pytest.param(
            [lost(), refusal(404)], Outcome(EvictionResult.EVICTED), id="answer lost, and the pod with it"
        ),
        pytest.param(
            [refusal(500, "two budgets"), found()],
            Outcome(EvictionResult.FAILED, "500 X: two budgets"),
            id="more than one budget",
        ),
        pytest.param(
            [refusal(500, "a"), refusal(503, "b")],
            Outcome(EvictionResult.FAILED, "500 X: a; then: 503 X: b"),
            id="nothing can be asked",
        ),
        pytest.param(
            [refusal(500, "a"), reply(b"[]")],
            Outcome(
                EvictionResult.FAILED,
                "500 X: a; then: 200 BadAnswer: not a Pod: Expected `object`, got `array`",
            ),
            id="an unreadable answer",
        ),
    ],
)
async def test_every_answer_has_its_outcome(answers: list[Any], outcome: Outcome) -> None:
    """A lost eviction is settled by reading the pod, once."""
    pod = PodDecoder().decode(json.dumps(build.pod("p", uid="u1", node="n")).encode())
    async with scripted(*answers) as script, client_of(script) as client:
        assert await evicted(client, pod) == outcome
        assert len(script.asked) == len(answers)
        sent = json.loads(script.asked[0].body)
    assert sent == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p", "namespace": "default"},
        "deleteOptions": {"preconditions": {"uid": "u1"}},
    }
    assert script.asked[0].path == "/api/v1/namespaces/default/pods/p/eviction"


def test_at_the_end_an_eviction_in_flight_is_waited_for() -> None:
    assert TIMEOUT_S < enforcer._STOP_EVICTION_S

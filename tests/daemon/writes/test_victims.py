"""The fate of a victim for every response of the server."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scheduler.daemon.writes.sending import Sender
from scheduler.daemon.writes.victims import VictimEvictor
from scheduler.engine.model.instructions import EvictVictim, Instruction, ProceedWithEviction, SpareVictim
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import EvictionDue, EvictionStep, VictimFate
from tests.support.api_bodies import body
from tests.support.driving import Driver
from tests.support.scripted_server import FakeSleep, client_of, lost, reply, scripted

_DRIVER = Driver()
HIGH, LOW = _DRIVER.pod("high", priority=9), _DRIVER.pod("low", node="n")
PATH = "/api/v1/namespaces/default/pods/low"
OTHER_UID = "Precondition failed: UID in precondition: a, UID in object meta: b"


def refusal(code: int, message: str = "no", **headers: str) -> Any:
    return reply(body(code, "X", message), status=code, headers=headers)


def _always(_due: EvictionDue) -> bool:
    return True


async def _evicted(
    answers: list[Any],
    *,
    is_needed: Callable[[EvictionDue], bool] = _always,
    victim: Pod = LOW,
    ends: bool = False,
    leads: bool = True,
) -> tuple[tuple[VictimFate, str], list[str], list[bytes]]:

    async def put(due: EvictionDue) -> list[Instruction]:
        pods = due.preemptor_uid, due.victim_uid
        return [ProceedWithEviction(*pods) if is_needed(due) else SpareVictim(*pods, ends=ends)]

    async with scripted(*answers) as script, client_of(script) as client:
        evictor = VictimEvictor(
            Sender(client, sleep=FakeSleep(), may_write=lambda: leads),
            clock_s=lambda: 0.0,
            put=put,
        )
        ended = await evictor.evict(EvictVictim(HIGH, victim))
        received = list(script.received)
    return ended, [f"{one.method} {one.path}" for one in received], [one.body for one in received]


PATCH, DELETE = f"PATCH {PATH}/status", f"DELETE {PATH}"


ANSWERS = {
    "deleted": ([reply(), reply()], VictimFate.DELETED, [PATCH, DELETE]),
    "gone before": ([refusal(404)], VictimFate.GONE, [PATCH]),
    "gone meanwhile": ([reply(), refusal(404)], VictimFate.GONE, [PATCH, DELETE]),
    "another pod of its name": ([reply(), refusal(409, OTHER_UID)], VictimFate.GONE, [PATCH, DELETE]),
    "a lost answer: again": ([reply(), lost(), reply()], VictimFate.DELETED, [PATCH, DELETE, DELETE]),
    "a lost answer to what deleted it": (
        [reply(), lost(), refusal(404)],
        VictimFate.DELETED,
        [PATCH, DELETE, DELETE],
    ),
    "a late answer, and another pod of its name": (
        [reply(), refusal(504), refusal(409, OTHER_UID)],
        VictimFate.DELETED,
        [PATCH, DELETE, DELETE],
    ),
    "gone while the server was busy": (
        [reply(), refusal(429, "busy"), refusal(404)],
        VictimFate.GONE,
        [PATCH, DELETE, DELETE],
    ),
    "gone after a lost condition": ([lost(), refusal(404)], VictimFate.GONE, [PATCH, PATCH]),
    "a busy server": (
        [refusal(429, "busy", **{"Retry-After": "1"}), reply(), reply()],
        VictimFate.DELETED,
        [PATCH, PATCH, DELETE],
    ),
    "another writer of the status": (
        [refusal(409, "the object has been modified"), reply(), reply()],
        VictimFate.DELETED,
        [PATCH, PATCH, DELETE],
    ),
    "a conflict that is not about the uid": (
        [reply(), refusal(500), refusal(409, "a webhook is in the way")],
        VictimFate.FAILED,
        [PATCH, DELETE, DELETE],
    ),
    "not allowed to": ([refusal(403, "rbac")], VictimFate.FAILED, [PATCH]),
    "a server that fails": (
        [reply(), *[refusal(500)] * 5],
        VictimFate.FAILED,
        [PATCH, *[DELETE] * 5],
    ),
}


@pytest.mark.parametrize(("answers", "fate", "requests"), ANSWERS.values(), ids=ANSWERS)
async def test_every_answer_has_a_fate(answers: list[Any], fate: VictimFate, requests: list[str]) -> None:
    ended, sent, _ = await _evicted(answers)
    assert (ended[0], bool(ended[1])) == (fate, fate is VictimFate.FAILED)
    assert sent == requests


async def test_the_condition_says_why_and_the_deletion_names_the_pod_and_no_grace() -> None:
    _, _, (patch, delete) = await _evicted([reply(), reply()])
    assert json.loads(patch) == {
        "metadata": {"uid": LOW.uid},
        "status": {
            "conditions": [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "PreemptionByScheduler",
                    "message": f"{HIGH.scheduler_name}: preempting to accommodate a higher priority pod",
                    "lastTransitionTime": "1970-01-01T00:00:00Z",
                }
            ]
        },
    }
    assert json.loads(delete) == {"preconditions": {"uid": LOW.uid}}


async def test_a_victim_whose_room_is_not_waited_for_is_spared_without_a_request() -> None:
    ended, sent, _ = await _evicted([], is_needed=lambda due: due.step is not EvictionStep.CONDITION)
    assert (ended[0], sent) == (VictimFate.SPARED, [])


async def test_a_victim_that_is_not_needed_any_more_is_not_deleted() -> None:
    ended, sent, _ = await _evicted([reply()], is_needed=lambda due: due.step is EvictionStep.CONDITION)
    assert (ended[0], sent) == (VictimFate.SPARED, [PATCH])


async def test_a_victim_that_is_not_needed_any_more_after_a_pause_is_not_tried_again() -> None:
    answers = iter([True, True, False])
    ended, sent, _ = await _evicted([reply(), refusal(429, "busy")], is_needed=lambda _due: next(answers))
    # The pod may fit elsewhere: it is tried at once, as after any other victim that is spared.
    assert (ended[0], sent) == (VictimFate.SPARED, [PATCH, DELETE])


async def test_a_condition_without_an_answer_is_not_written_again_to_a_victim_that_ends_meanwhile() -> None:
    """The answer to the first one is lost, the server is busy for the second, and another scheduler deletes the pod."""
    answers = iter([True, True, False])
    ended, sent, _ = await _evicted(
        [lost(), refusal(429, "busy")], is_needed=lambda _due: next(answers), ends=True
    )
    assert (ended[0], sent) == (VictimFate.SPARED, [PATCH, PATCH])


@pytest.mark.parametrize(("ends", "fate"), [(True, VictimFate.DELETED), (False, VictimFate.SPARED)])
async def test_a_deletion_without_an_answer_is_not_sent_again_to_a_victim_that_need_not_go(
    ends: bool,
    fate: VictimFate,
) -> None:
    """One that ends was deleted by it."""
    answers = iter([True, True, True, False])
    ended, sent, _ = await _evicted(
        [reply(), lost(), refusal(429, "busy")], is_needed=lambda _due: next(answers), ends=ends
    )
    assert (ended[0], sent) == (fate, [PATCH, DELETE, DELETE])


async def test_a_condition_of_an_earlier_eviction_that_failed_keeps_its_time() -> None:
    again = replace(LOW, disruption="PreemptionByScheduler")
    _, _, (patch, _) = await _evicted([reply(), reply()], victim=again)
    (condition,) = json.loads(patch)["status"]["conditions"]
    assert "lastTransitionTime" not in condition
    assert (condition["type"], condition["status"]) == ("DisruptionTarget", "True")


async def test_an_instance_without_the_lease_evicts_nothing() -> None:
    ended, sent, _ = await _evicted([], leads=False)
    assert (ended[0], sent) == (VictimFate.SPARED, [])

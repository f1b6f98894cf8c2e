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
from tests.daemon.writes.answers import refusal
from tests.support.driving import Driver
from tests.support.scripted_server import FakeSleep, client_of, lost, reply, scripted

_DRIVER = Driver()
HIGH, LOW = _DRIVER.pod("high", priority=9), _DRIVER.pod("low", node="n")
PATH = "/api/v1/namespaces/default/pods/low"
BUSY = refusal(429, message="busy")
OTHER_UID = "Precondition failed: UID in precondition: a, UID in object meta: b"


def _always(_due: EvictionDue) -> bool:
    return True


async def _evicted(
    answers: list[Any],
    *,
    is_needed: Callable[[EvictionDue], bool] = _always,
    victim: Pod = LOW,
    ends: bool = False,
    leads: bool = True,
) -> tuple[tuple[VictimFate, str], str, list[bytes]]:
    steps = list[EvictionStep]()

    async def put(due: EvictionDue) -> list[Instruction]:
        steps.append(due.step)
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
    assert steps == [EvictionStep.CONDITION, *[EvictionStep.DELETION] * (len(steps) - 1)]
    assert {(one.method, one.path) for one in received} <= {("PATCH", f"{PATH}/status"), ("DELETE", PATH)}
    return ended, " ".join(one.method[0] for one in received), [one.body for one in received]


GONE, DELETED, FAILED = VictimFate.GONE, VictimFate.DELETED, VictimFate.FAILED
#: The answers, the fate, and the requests: P for the patch of its status, D for its deletion.
ANSWERS = {
    "deleted": ([reply(), reply()], DELETED, "P D"),
    "gone before": ([refusal(404)], GONE, "P"),
    "gone meanwhile": ([reply(), refusal(404)], GONE, "P D"),
    "another pod of its name": ([reply(), refusal(409, message=OTHER_UID)], GONE, "P D"),
    "a lost answer: again": ([reply(), lost(), reply()], DELETED, "P D D"),
    "a lost answer to what deleted it": ([reply(), lost(), refusal(404)], DELETED, "P D D"),
    "a late answer, and another pod of its name": (
        [reply(), refusal(504), refusal(409, message=OTHER_UID)],
        DELETED,
        "P D D",
    ),
    "gone while the server was busy": ([reply(), BUSY, refusal(404)], GONE, "P D D"),
    "gone after a lost condition": ([lost(), refusal(404)], GONE, "P P"),
    "a busy server": ([refusal(429, **{"Retry-After": "1"}), reply(), reply()], DELETED, "P P D"),
    "another writer of the status": ([refusal(409), reply(), reply()], DELETED, "P P D"),
    "a conflict that is not about the uid": ([reply(), refusal(500), refusal(409)], FAILED, "P D D"),
    "not allowed to": ([refusal(403)], FAILED, "P"),
    "a server that fails": ([reply(), *[refusal(500)] * 5], FAILED, "P D D D D D"),
}


@pytest.mark.parametrize(("answers", "fate", "requests"), ANSWERS.values(), ids=ANSWERS)
async def test_every_answer_has_a_fate(answers: list[Any], fate: VictimFate, requests: str) -> None:
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


#: The answers, whether the victim's place is needed before each request, whether the victim ends, the requests.
SPARED = {
    "its room is not waited for": ([], [False], False, ""),
    "not needed any more": ([reply()], [True, False], False, "P"),
    "not needed any more after a pause": ([reply(), BUSY], [True, True, False], False, "P D"),
    "another deletes it after a condition without an answer": (
        [lost(), BUSY],
        [True, True, False],
        True,
        "P P",
    ),
    "need not go after a deletion without an answer": (
        [reply(), lost(), BUSY],
        [True, True, True, False],
        False,
        "P D D",
    ),
}


@pytest.mark.parametrize(("answers", "needed", "ends", "requests"), SPARED.values(), ids=SPARED)
async def test_a_victim_that_is_not_needed_is_spared(
    answers: list[Any], needed: list[bool], ends: bool, requests: str
) -> None:
    """The pod may fit elsewhere: it is tried at once."""
    is_needed = iter(needed)
    ended, sent, _ = await _evicted(answers, is_needed=lambda _due: next(is_needed), ends=ends)
    assert (ended[0], sent) == (VictimFate.SPARED, requests)


async def test_a_victim_that_ends_after_a_deletion_without_an_answer_was_deleted_by_it() -> None:
    is_needed = iter([True, True, True, False])
    answers = [reply(), lost(), BUSY]
    ended, sent, _ = await _evicted(answers, is_needed=lambda _due: next(is_needed), ends=True)
    assert (ended[0], sent) == (DELETED, "P D D")


async def test_a_condition_of_an_earlier_eviction_that_failed_keeps_its_time() -> None:
    again = replace(LOW, disruption="PreemptionByScheduler")
    _, _, (patch, _) = await _evicted([reply(), reply()], victim=again)
    (condition,) = json.loads(patch)["status"]["conditions"]
    assert "lastTransitionTime" not in condition
    assert (condition["type"], condition["status"]) == ("DisruptionTarget", "True")


async def test_an_instance_without_the_lease_evicts_nothing() -> None:
    ended, sent, _ = await _evicted([], leads=False)
    assert (ended[0], sent) == (VictimFate.SPARED, "")

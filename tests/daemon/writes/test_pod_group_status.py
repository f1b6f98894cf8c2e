"""Conditions of PodGroups: each type is written beside the others, and turns as the API server would turn it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from scheduler.daemon.metrics.logs import configure
from scheduler.daemon.writes.conditions import ConditionWriter
from scheduler.daemon.writes.sending import Sender
from scheduler.engine.core.lost_members import LostMembers
from scheduler.engine.model.instructions import PatchPodGroup
from scheduler.engine.model.pod_groups import WHOLE, GroupKey, GroupKind, PodGroup, decode_pod_group
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.pod_groups import PodGroups
from tests.support import build
from tests.support.driving import Driver
from tests.support.scripted_server import client_of, reply, scripted

KEY = GroupKey(GroupKind.KUBERNETES, "default", "gang")
SCHEDULED = {
    "type": "PodGroupInitiallyScheduled",
    "status": "True",
    "reason": "Scheduled",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
    "observedGeneration": 1,
}


def _group(*conditions: dict[str, Any]) -> PodGroup:
    document = {
        "metadata": {"name": "gang", "namespace": "default", "resourceVersion": "7", "generation": 2},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        "status": {"conditions": list(conditions)},
    }
    return decode_pod_group(GroupKind.KUBERNETES, "v1beta1", json.dumps(document).encode())


def _member(name: str) -> Pod:
    spec = {"schedulingGroup": {"podGroupName": "gang"}}
    return Driver().decoded(build.pod(name, node="n", spec=spec))


def _lost_one(groups: PodGroups, lost: LostMembers) -> list[PatchPodGroup]:
    """Place two members and lose one. Return the conditions after a minute."""
    members = [_member("a"), _member("b")]
    for one in members:
        groups.place(one)
    groups.note_whole(KEY, 2)
    groups.displace(members[0])
    lost.note(KEY, members[0], 0.0)
    return [one for one in lost.on_time(60.0) if isinstance(one, PatchPodGroup)]


async def _written(instruction: PatchPodGroup) -> list[dict[str, Any]]:
    async with scripted(reply()) as script, client_of(script) as client:
        log = configure(verbosity=0, form="text")
        writer = ConditionWriter(Sender(client), clock_s=lambda: 0.0, log=log)
        writer.write(instruction)
        task = asyncio.create_task(writer.run())
        async with asyncio.timeout(5.0):
            await script.until_received(1)
        task.cancel()
    conditions: list[dict[str, Any]] = json.loads(script.received[0].body)["status"]["conditions"]
    return conditions


async def test_a_group_that_lost_members_keeps_its_condition_and_gets_another() -> None:
    groups = PodGroups()
    groups.upsert(_group(SCHEDULED))
    (instruction,) = _lost_one(groups, LostMembers(groups))
    text = "pod group default/gang was placed and has lost members: 1 of the 2 that it needs are on nodes"
    assert await _written(instruction) == [
        SCHEDULED,
        {
            "type": WHOLE,
            "status": "False",
            "reason": "MembersLost",
            "message": text,
            "lastTransitionTime": "1970-01-01T00:00:00Z",
            "observedGeneration": 2,
        },
    ]


async def test_the_condition_is_true_again_once_as_many_members_are_bound_as_it_needs() -> None:
    groups = PodGroups()
    groups.upsert(_group(SCHEDULED))
    lost = LostMembers(groups)
    (instruction,) = _lost_one(groups, lost)
    (before,) = [one for one in await _written(instruction) if one["type"] == WHOLE]
    group = _group(SCHEDULED, before)
    (told,) = lost.on_whole(KEY, group)
    assert isinstance(told, PatchPodGroup)
    scheduled, whole = await _written(told)
    assert (scheduled, whole["status"], whole["reason"]) == (SCHEDULED, "True", "Whole")
    assert lost.on_whole(KEY, group) == []

"""The condition writer: the newest condition per pod, in order, and never after the pod's bind."""

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.metrics.logs import configure
from scheduler.daemon.writes import conditions
from scheduler.daemon.writes.conditions import ConditionWriter
from scheduler.daemon.writes.sending import Sender
from scheduler.engine.model.instructions import PatchCondition, PatchPodGroup
from scheduler.engine.model.pod_groups import WHOLE, GroupCondition, GroupKey, GroupKind, PodGroup
from scheduler.engine.model.pods import Pod, PodCondition
from tests.daemon.writes.answers import refusal
from tests.support.driving import Driver
from tests.support.scripted_server import FakeSleep, Script, client_of, held, reply, scripted


def unschedulable(pod: Pod, message: str) -> PatchCondition:
    return PatchCondition(pod, "Unschedulable", message)


def sent(script: Script) -> list[tuple[str, str]]:
    return [
        (one.path.split("/")[-2], json.loads(one.body)["status"]["conditions"][0]["message"])
        for one in script.received
    ]


def logged(log: io.StringIO) -> list[str]:
    return re.findall(
        r'"Failed to write the PodScheduled condition" pod="default/p" err="(.*)"', log.getvalue()
    )


@asynccontextmanager
async def writing(
    *answers: Any, stream: io.StringIO | None = None, is_ending: Any = lambda _: False, **options: Any
) -> AsyncIterator[tuple[Script, ConditionWriter]]:
    """Run a writer at second 1000 since the epoch."""
    defaults: dict[str, Any] = {"sleep": FakeSleep(), "jitter": lambda: 0.0}
    async with asyncio.timeout(5.0), scripted(*answers) as script, client_of(script) as client:
        log = configure(verbosity=0, form="text", stream=stream)
        sender = Sender(client, **(defaults | options))
        writer = ConditionWriter(sender, clock_s=lambda: 1000.0, log=log, is_ending=is_ending)
        task = asyncio.create_task(writer.run())
        try:
            yield script, writer
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_newer_condition_replaces_one_that_waits() -> None:
    pod = Driver().pod("p")
    async with writing(reply()) as (script, writer):
        writer.write(unschedulable(pod, "old"))
        writer.write(unschedulable(pod, "new"))
        await script.until_received(1)
        await writer.cancel(pod.uid)
    assert sent(script) == [("p", "new")]


async def test_conditions_of_one_pod_are_written_one_after_the_other() -> None:
    """The second waits for the answer to the first; other pods do not."""
    driver = Driver()
    pod, other = driver.pod("p"), driver.pod("q")
    release = asyncio.Event()
    async with writing(held(release, reply()), reply(), reply()) as (script, writer):
        writer.write(unschedulable(pod, "first"))
        await script.until_received(1)
        writer.write(unschedulable(pod, "second"))
        writer.write(unschedulable(other, "only"))
        await script.until_received(2)
        assert sent(script) == [("p", "first"), ("q", "only")]
        release.set()
        await script.until_received(3)
    assert sent(script)[2] == ("p", "second")


@pytest.mark.parametrize(("many", "n_sent"), [(1000, 2), (0, 3)])
async def test_two_conditions_are_written_at_a_time_unless_many_wait(
    many: int, n_sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "_MANY", many)
    driver, release = Driver(), asyncio.Event()
    answers = [held(release, reply()) for _ in range(3)]
    request, n_open, most = KubeClient.request, 0, 0

    async def counted(client: KubeClient, *arguments: Any, **keywords: Any) -> bytes:
        nonlocal n_open, most
        n_open += 1
        most = max(most, n_open)
        try:
            return await request(client, *arguments, **keywords)
        finally:
            n_open -= 1

    monkeypatch.setattr(KubeClient, "request", counted)
    async with writing(*answers) as (script, writer):
        for number in range(3):
            writer.write(unschedulable(driver.pod(f"p{number}"), "no room"))
        await script.until_received(n_sent)
        release.set()
        await script.until_received(3)
    assert most == n_sent


async def test_cancel_drops_the_waiting_condition_and_waits_for_the_one_in_flight() -> None:
    pod = Driver().pod("p")
    release = asyncio.Event()
    async with writing(held(release, reply())) as (script, writer):
        writer.write(unschedulable(pod, "under way"))
        await script.until_received(1)
        writer.write(unschedulable(pod, "waiting"))
        settled = asyncio.create_task(writer.cancel(pod.uid))
        await asyncio.sleep(0)
        assert not settled.done()
        release.set()
        await settled
    assert sent(script) == [("p", "under way")]


TRANSITIONS = {
    "the first condition": (None, "1970-01-01T00:16:40Z"),
    "from true to false": (PodCondition("True", "", ""), "1970-01-01T00:16:40Z"),
    "false before and after": (PodCondition("False", "SchedulingGated", "x"), None),
}


@pytest.mark.parametrize(("known", "time"), TRANSITIONS.values(), ids=TRANSITIONS)
async def test_the_transition_time_is_sent_only_with_a_transition(
    known: PodCondition | None, time: str | None
) -> None:
    """A new message is none; the pod's generation is always sent."""
    pod = replace(Driver().pod("p"), scheduled_condition=known, generation=3)
    async with writing(reply()) as (script, writer):
        writer.write(unschedulable(pod, "m"))
        await script.until_received(1)
    # Merged by type: other conditions stay.
    assert script.received[0].headers["Content-Type"] == "application/strategic-merge-patch+json"
    patch = json.loads(script.received[0].body)
    (condition,) = patch["status"]["conditions"]
    assert condition.pop("lastTransitionTime", None) == time
    told = {"status": "False", "reason": "Unschedulable", "message": "m", "observedGeneration": 3}
    assert (condition, patch["metadata"]) == ({"type": "PodScheduled", **told}, {"uid": pod.uid})


ENDS = {
    "refused": (403, "no right", ["no right"]),
    "the pod is gone": (404, "not found", []),
    "another pod has its name": (422, "metadata.uid: Invalid value", []),
}


@pytest.mark.parametrize(("status", "text", "failures"), ENDS.values(), ids=ENDS)
async def test_failures_are_logged_unless_the_pod_is_gone(
    status: int, text: str, failures: list[str]
) -> None:
    driver = Driver()
    log = io.StringIO()
    answers = [refusal(status, message=text), reply()]
    async with writing(*answers, stream=log) as (script, writer):
        pod = driver.pod("p")
        writer.write(unschedulable(pod, "m"))
        await script.until_received(1)
        await writer.cancel(pod.uid)
        writer.write(unschedulable(driver.pod("q"), "m"))
        await script.until_received(2)
    assert logged(log) == failures


async def test_nothing_is_sent_about_a_pod_that_ends_meanwhile() -> None:
    """Not even the repetition of a condition that the server was too busy for."""
    pod, log, is_ending = Driver().pod("p"), io.StringIO(), iter([False, True])
    busy = refusal(429, "TooManyRequests")
    async with writing(busy, stream=log, is_ending=lambda _: next(is_ending)) as (script, writer):
        writer.write(unschedulable(pod, "m"))
        await writer.hasten(pod.uid)
    assert (logged(log), len(script.received)) == ([], 1)


THEN, NOW = "2026-01-01T00:00:00Z", "1970-01-01T00:16:40Z"
PLACED = GroupCondition("PodGroupInitiallyScheduled", "True", "Scheduled", "", THEN, 1)
GROUP_TRANSITIONS = {
    "the first of its type": ([], NOW),
    "from true to false": ([GroupCondition(WHOLE, "True", "Whole", "", THEN, 1)], NOW),
    "false before and after": ([GroupCondition(WHOLE, "False", "MembersLost", "1 of 3", THEN, 1)], THEN),
}


@pytest.mark.parametrize(("before", "time"), GROUP_TRANSITIONS.values(), ids=GROUP_TRANSITIONS)
async def test_a_condition_of_a_group_is_written_beside_its_others(
    before: list[GroupCondition], time: str
) -> None:
    key = GroupKey(GroupKind.KUBERNETES, "default", "gang")
    group = PodGroup(
        key, 2, api_version="v1beta1", resource_version="7", generation=2, conditions=(PLACED, *before)
    )
    async with writing(reply()) as (script, writer):
        writer.write(PatchPodGroup(group, False, "MembersLost", "1 of 2", WHOLE))
        await script.until_received(1)
    patch = json.loads(script.received[0].body)
    assert patch["metadata"] == {"resourceVersion": "7"}
    lost = GroupCondition(WHOLE, "False", "MembersLost", "1 of 2", time, 2)
    assert msgspec.convert(patch["status"]["conditions"], list[GroupCondition]) == [PLACED, lost]

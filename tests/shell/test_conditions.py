"""The condition writer: the newest condition per pod, in order, and never after the pod's bind."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from scheduler.model.instructions import PatchCondition
from scheduler.model.pods import Pod, PodCondition
from scheduler.shell.binder import Binder
from scheduler.shell.conditions import ConditionWriter
from tests.support.api_bodies import body
from tests.support.driving import Driver
from tests.support.scripted_server import FakeSleep, Script, client_of, reply, scripted

pytestmark = pytest.mark.asyncio


def order(pod: Pod, message: str) -> PatchCondition:
    return PatchCondition(pod, "Unschedulable", message, clear_nomination=False)


def sent(script: Script) -> list[tuple[str, str]]:
    """Return (pod, message) of each patch."""
    return [
        (one.path.split("/")[-2], json.loads(one.body)["status"]["conditions"][0]["message"])
        for one in script.received
    ]


@asynccontextmanager
async def writing(script: Script, failures: list[str] | None = None) -> AsyncIterator[ConditionWriter]:
    """Run a writer at second 1000 since the epoch."""
    async with client_of(script) as client:
        told = [] if failures is None else failures
        writer = ConditionWriter(
            Binder(client, sleep=FakeSleep()),
            clock_s=lambda: 1000.0,
            on_failed=lambda _order, message: told.append(message),
        )
        task = asyncio.create_task(writer.run())
        try:
            yield writer
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_newer_condition_replaces_one_that_waits() -> None:
    """Of two conditions before the first write, only the second is sent."""
    pod = Driver().pod("p")
    async with scripted(reply()) as script, writing(script) as writer:
        writer.write(order(pod, "old"))
        writer.write(order(pod, "new"))
        async with asyncio.timeout(5.0):
            await script.until_received(1)
            await writer.cancel(pod.uid)
    assert sent(script) == [("p", "new")]


async def test_conditions_of_one_pod_are_written_one_after_the_other() -> None:
    """The second waits for the answer to the first; other pods do not."""
    driver = Driver()
    pod, other = driver.pod("p"), driver.pod("q")
    release = asyncio.Event()

    async def slowly(_request: object, _script: object) -> object:
        await release.wait()
        return await reply()(_request, _script)

    async with scripted(slowly, reply(), reply()) as script, writing(script) as writer:
        async with asyncio.timeout(5.0):
            writer.write(order(pod, "first"))
            await script.until_received(1)
            writer.write(order(pod, "second"))
            writer.write(order(other, "only"))
            await script.until_received(2)
            assert sent(script) == [("p", "first"), ("q", "only")]
            release.set()
            await script.until_received(3)
    assert sent(script)[2] == ("p", "second")


async def test_cancel_drops_the_waiting_condition_and_waits_for_the_one_in_flight() -> None:
    """After that no condition can overtake a bind."""
    pod = Driver().pod("p")
    release = asyncio.Event()

    async def slowly(_request: object, _script: object) -> object:
        await release.wait()
        return await reply()(_request, _script)

    async with scripted(slowly) as script, writing(script) as writer:
        async with asyncio.timeout(5.0):
            writer.write(order(pod, "under way"))
            await script.until_received(1)
            writer.write(order(pod, "waiting"))
            settled = asyncio.create_task(writer.cancel(pod.uid))
            await asyncio.sleep(0)
            assert not settled.done()
            release.set()
            await settled
            assert len(writer) == 0
    assert sent(script) == [("p", "under way")]


@pytest.mark.parametrize(
    ("known", "time"),
    [
        pytest.param(None, "1970-01-01T00:16:40Z", id="the first condition"),
        pytest.param(PodCondition("True", "", ""), "1970-01-01T00:16:40Z", id="from true to false"),
        pytest.param(PodCondition("False", "SchedulingGated", "x"), None, id="false before and after"),
    ],
)
async def test_the_transition_time_is_sent_only_with_a_transition(
    known: PodCondition | None, time: str | None
) -> None:
    """A new message is none; the pod's generation is always sent."""
    pod = replace(Driver().pod("p"), scheduled_condition=known, generation=3)
    async with scripted(reply()) as script, writing(script) as writer:
        async with asyncio.timeout(5.0):
            writer.write(order(pod, "m"))
            await script.until_received(1)
    patch = json.loads(script.received[0].body)
    (condition,) = patch["status"]["conditions"]
    assert condition.get("lastTransitionTime") == time
    assert (condition["observedGeneration"], patch["metadata"]) == (3, {"uid": pod.uid})


@pytest.mark.parametrize(
    ("status", "text", "told"),
    [
        pytest.param(403, "no right", ["no right"], id="refused"),
        pytest.param(404, "not found", [], id="the pod is gone"),
        pytest.param(422, "metadata.uid: Invalid value", [], id="another pod has its name"),
    ],
)
async def test_failures_are_reported_unless_the_pod_is_gone(status: int, text: str, told: list[str]) -> None:
    """The writer continues."""
    driver = Driver()
    failures: list[str] = []
    answers = [reply(body(status, "X", text), status=status), reply()]
    async with scripted(*answers) as script, writing(script, failures) as writer:
        async with asyncio.timeout(5.0):
            pod = driver.pod("p")
            writer.write(order(pod, "m"))
            await script.until_received(1)
            await writer.cancel(pod.uid)
            writer.write(order(driver.pod("q"), "m"))
            await script.until_received(2)
    assert failures == told

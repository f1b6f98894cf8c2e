"""SIGKILL in the middle of an eviction; answers that are lost. The next life, or the standby, finishes the work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from tests.proof.chaos.happenings import (
    AddBudget,
    AddNamespace,
    AddNode,
    AddPod,
    AddPriorityClass,
    Kill,
    Remove,
    Terminate,
    WorldEvent,
)
from tests.proof.chaos.instance import EVICTION_KILL_POINTS, OURS
from tests.proof.chaos.journal import key_of, node_of
from tests.proof.chaos.nominations import nomination_of
from tests.proof.chaos.run import virtually
from tests.proof.chaos.test_deaths import Story, told

#: Two nodes full of batch. On the second one a budget protects it.
_CLUSTER: list[WorldEvent] = [
    AddPriorityClass("low", 10),
    AddPriorityClass("high", 1000),
    AddNamespace("red", "x"),
    AddNamespace("blue", "x"),
    AddBudget("blue/batch", 0),
    AddNode("n1", "2", "a"),
    AddPod("red/low", "batch", OURS),
    AddPod("red/quick", "quick batch", OURS),
    AddNode("n2", "2", "b"),
    AddPod("blue/low", "batch", OURS),
    AddPod("blue/quick", "quick batch", OURS),
]
_BOTH = {"red/low", "red/quick"}
#: A Lease that is not renewed expires after 15 s; without one, a next life begins after a second.
_WITH_LEASE_S, _ALONE_S = 35.0, 20.0


async def _begin(story: Story) -> None:
    """Fill the nodes in this order: each pair lands where there is room for it."""
    for one in _CLUSTER:
        await story.stage.perform(one)
        if isinstance(one, AddPod) and one.key == "red/quick":
            await asyncio.sleep(5.0)
    await asyncio.sleep(5.0)


async def _preempt(story: Story) -> None:
    """Bring a pod that needs a whole node."""
    await story.stage.perform(AddPod("red/high", "critical", OURS))


def _pod(story: Story, key: str) -> dict[str, Any] | None:
    return next((one for one in story.server.objects("Pod") if key_of(one) == key), None)


async def _end_pods(story: Story, *, until_s: float) -> None:
    """Let terminating pods end after 3 s, as their kubelet does."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + until_s
    while loop.time() < ends_s:
        await asyncio.sleep(3.0)
        for pod in story.server.objects("Pod"):
            if pod["metadata"].get("deletionTimestamp"):
                await story.stage.perform(Remove("Pod", key_of(pod)))


async def _end(story: Story) -> None:
    """Judge the run: the pod is on the first node, and nobody but its two pods was evicted, each once."""
    judge = await story.judged(15.0)
    assert judge.n_evictions == 2
    assert {one.victim for one in story.journal.ordered} <= _BOTH
    assert (_pod(story, "red/low"), _pod(story, "red/quick")) == (None, None)
    assert node_of(_pod(story, "red/high")) == "n1"


@pytest.mark.parametrize(
    ("after", "elected"),
    [
        pytest.param(0, False, id="first victim"),
        pytest.param(1, False, id="second victim"),
        pytest.param(0, True, id="standby"),
    ],
)
@pytest.mark.parametrize("point", EVICTION_KILL_POINTS)
@virtually
async def test_the_next_life_evicts_the_rest_and_nobody_twice(
    point: str, after: int, *, elected: bool
) -> None:
    async with told(elected=elected) as story:
        await _begin(story)
        for instance in story.instances:
            await story.stage.perform(Kill(instance.name, point, after))
        await _preempt(story)
        await _end_pods(story, until_s=_WITH_LEASE_S if elected else _ALONE_S)
        for instance in story.instances:
            instance.doom = None
        await _end(story)
        if after == 0:
            assert sum(one.n_lives for one in story.instances) > len(story.instances)


@pytest.mark.parametrize("lost", [Effect.LOSE_ANSWER, Effect.RESPOND_AFTER, Effect.DROP, Effect.RESPOND])
@virtually
async def test_a_deletion_without_a_clear_answer_is_told_of_and_counted_once(lost: Effect) -> None:
    """One victim is gone at once, so the second try finds no pod; the other one ends later."""
    async with told(elected=False) as story:
        await _begin(story)
        story.server.faults.add(Fault(action=lost, verb="delete", path=r"/pods/[^/]+$", code=504, times=2))
        await _preempt(story)
        await _end_pods(story, until_s=_ALONE_S)
        await _end(story)
        assert sorted(uid for _, uid in story.journal.reported) == sorted(
            {one.victim_uid for one in story.journal.ordered}
        )
        machine = story.instances[0].machine
        assert machine is not None
        assert machine.preemptions.wasted == {}
        assert not (machine.state.held_for_evictions or machine.preemptions.is_evicting)


@virtually
async def test_an_instance_that_is_stopped_ends_its_evictions_first() -> None:
    async with told(elected=False) as story:
        await _begin(story)
        slow = Fault(action=Effect.DELAY, verb="delete", path=r"/pods/[^/]+$", delay_s=2.0, times=2)
        story.server.faults.add(slow)
        await _preempt(story)
        await asyncio.sleep(1.0)
        await story.stage.perform(Terminate("one"))
        await _end_pods(story, until_s=_ALONE_S)
        await _end(story)
        assert [by for by, _ in story.journal.reported] == ["one-1", "one-1"]
        assert story.instances[0].n_lives == 2


@virtually
async def test_a_nomination_ends_with_its_node() -> None:
    """Cluster-autoscaler counts a nominated pod as placed, even on a node that is gone."""
    async with told(elected=False) as story:
        await _begin(story)
        await _preempt(story)
        await asyncio.sleep(1.0)
        assert nomination_of(_pod(story, "red/high") or {}) == "n1"
        await story.stage.perform(Remove("Node", "n1"))
        await story.stage.perform(Remove("Node", "n2"))
        await asyncio.sleep(1.0)
        assert nomination_of(_pod(story, "red/high") or {}) == ""


@virtually
async def test_a_nomination_ends_where_a_pod_of_higher_priority_takes_the_node() -> None:
    async with told(elected=False) as story:
        await _begin(story)
        await _preempt(story)
        await asyncio.sleep(1.0)
        await story.stage.perform(AddPriorityClass("top", 2000))
        await story.server.patch(
            "PodDisruptionBudget", "blue/batch", {"status": {"disruptionsAllowed": 0}}, "status"
        )
        for number in range(2):
            pod = {
                "metadata": {"name": f"top-{number}", "namespace": "red"},
                "spec": {
                    "schedulerName": OURS,
                    "priorityClassName": "top",
                    "containers": [{"name": "c", "image": "c", "resources": {"requests": {"cpu": "2"}}}],
                },
            }
            await story.server.create("Pod", pod)
        await _end_pods(story, until_s=20.0)
        assert {node_of(_pod(story, f"red/top-{number}")) for number in range(2)} == {"n1", "n2"}
        assert nomination_of(_pod(story, "red/high") or {}) == ""

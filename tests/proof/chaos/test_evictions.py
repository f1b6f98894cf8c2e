"""SIGKILL in the middle of an eviction; answers that are lost. The next life, or the standby, finishes the work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from tests.proof.chaos.happenings import (
    AddBudget,
    AddNamespace,
    AddNode,
    AddPod,
    AddPriorityClass,
    Create,
    Kill,
    Remove,
    Terminate,
    WorldEvent,
)
from tests.proof.chaos.instance import EVICTION_KILL_POINTS, OURS
from tests.proof.chaos.journal import Ordered, key_of, node_of
from tests.proof.chaos.kinds import Shape
from tests.proof.chaos.nominations import nomination_of
from tests.proof.chaos.run import virtually
from tests.proof.chaos.scene import Scene, told
from tests.support import build

#: Two nodes full of batch. On the second one a budget protects it.
_FIRST: list[WorldEvent] = [
    AddPriorityClass("low", 10),
    AddPriorityClass("high", 1000),
    AddNamespace("red", "x"),
    AddNamespace("blue", "x"),
    AddBudget("blue/batch", 0),
    AddNode("n1", "2", "a"),
    AddPod("red/low", "batch", OURS),
    AddPod("red/quick", "quick batch", OURS),
]
_SECOND: list[WorldEvent] = [
    AddNode("n2", "2", "b"),
    AddPod("blue/low", "batch", OURS),
    AddPod("blue/quick", "quick batch", OURS),
]
_BOTH = {"red/low", "red/quick"}
#: A Lease that is not renewed expires after 15 s; without one, a next life begins after a second.
_WITH_LEASE_S, _ALONE_S = 35.0, 20.0


_HIGH = AddPod("red/high", "critical", OURS)


@asynccontextmanager
async def _full(shape: Shape = Shape.ALONE) -> AsyncIterator[Scene]:
    """Yield a scene whose nodes were filled in this order: each pair lands where there is room for it."""
    async with told(*_FIRST, shape=shape) as scene:
        await asyncio.sleep(5.0)
        await scene.stage.perform(*_SECOND)
        await asyncio.sleep(5.0)
        yield scene


async def _end_pods(scene: Scene, *, until_s: float) -> None:
    """Let terminating pods end after 3 s, as their kubelet does."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + until_s
    while loop.time() < ends_s:
        await asyncio.sleep(3.0)
        for pod in scene.server.objects("Pod"):
            if pod["metadata"].get("deletionTimestamp"):
                await scene.stage.perform(Remove("Pod", key_of(pod)))


def _orders(scene: Scene) -> list[Ordered]:
    return [one for one in scene.journal.evictions if isinstance(one, Ordered)]


async def _end(scene: Scene) -> None:
    """Judge the run: the pod is on the first node, and nobody but its two pods was evicted, each once."""
    assert (await scene.settled(15.0)).n_evictions == 2
    assert {one.victim for one in _orders(scene)} <= _BOTH
    assert (scene.pod("red/low"), scene.pod("red/quick")) == (None, None)
    assert node_of(scene.pod("red/high")) == "n1"


@pytest.mark.parametrize(
    ("after", "elected"),
    [
        pytest.param(1, False, id="second victim"),
        pytest.param(0, True, id="first victim, standby"),
    ],
)
@pytest.mark.parametrize("point", EVICTION_KILL_POINTS)
@virtually
async def test_the_next_life_evicts_the_rest_and_nobody_twice(
    point: str, after: int, *, elected: bool
) -> None:
    async with _full(Shape.ELECTED if elected else Shape.ALONE) as scene:
        await scene.stage.perform(*(Kill(one.name, point, after) for one in scene.instances))
        await scene.stage.perform(_HIGH)
        await _end_pods(scene, until_s=_WITH_LEASE_S if elected else _ALONE_S)
        for instance in scene.instances:
            instance.doom = None
        await _end(scene)
        if after == 0:
            assert scene.n_lives > len(scene.instances)


@pytest.mark.parametrize("lost", [Effect.LOSE_ANSWER, Effect.RESPOND_AFTER, Effect.DROP, Effect.RESPOND])
@virtually
async def test_a_deletion_without_a_clear_answer_is_told_of_and_counted_once(lost: Effect) -> None:
    """One victim is gone at once, so the second try finds no pod; the other one ends later."""
    async with _full() as scene:
        scene.server.faults.add(Fault(action=lost, verb="delete", path=r"/pods/[^/]+$", code=504, times=2))
        await scene.stage.perform(_HIGH)
        await _end_pods(scene, until_s=_ALONE_S)
        await _end(scene)
        assert sorted(uid for _, uid in scene.journal.reported) == sorted(
            {one.victim_uid for one in _orders(scene)}
        )
        machine = scene.instances[0].machine
        assert machine is not None
        assert machine.preemptions.wasted == {}
        assert not (machine.state.held_for_evictions or machine.preemptions.is_evicting)


@virtually
async def test_an_instance_that_is_stopped_ends_its_evictions_first() -> None:
    async with _full() as scene:
        slow = Fault(action=Effect.DELAY, verb="delete", path=r"/pods/[^/]+$", delay_s=2.0, times=2)
        scene.server.faults.add(slow)
        await scene.stage.perform(_HIGH)
        await asyncio.sleep(1.0)
        await scene.stage.perform(Terminate("one"))
        await _end_pods(scene, until_s=_ALONE_S)
        await _end(scene)
        assert [by for by, _ in scene.journal.reported] == ["one-1", "one-1"]
        assert scene.instances[0].n_lives == 2


@virtually
async def test_a_nomination_ends_with_its_node() -> None:
    """Cluster-autoscaler counts a nominated pod as placed, even on a node that is gone."""
    async with _full() as scene:
        await scene.stage.perform(_HIGH)
        await asyncio.sleep(1.0)
        assert nomination_of(scene.pod("red/high") or {}) == "n1"
        await scene.stage.perform(Remove("Node", "n1"))
        await scene.stage.perform(Remove("Node", "n2"))
        await asyncio.sleep(1.0)
        assert nomination_of(scene.pod("red/high") or {}) == ""


@virtually
async def test_a_nomination_ends_where_a_pod_of_higher_priority_takes_the_node() -> None:
    async with _full() as scene:
        await scene.stage.perform(_HIGH)
        await asyncio.sleep(1.0)
        await scene.stage.perform(AddPriorityClass("top", 2000))
        await scene.server.patch(
            "PodDisruptionBudget", "blue/batch", {"status": {"disruptionsAllowed": 0}}, "status"
        )
        for number in range(2):
            spec: build.Json = {"schedulerName": OURS, "priorityClassName": "top"}
            container = build.container(requests={"cpu": "2"})
            pod = build.pod(f"top-{number}", namespace="red", containers=[container], spec=spec)
            await scene.stage.perform(Create("Pod", pod))
        await _end_pods(scene, until_s=20.0)
        assert {node_of(scene.pod(f"red/top-{number}")) for number in range(2)} == {"n1", "n2"}
        assert nomination_of(scene.pod("red/high") or {}) == ""

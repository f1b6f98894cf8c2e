"""SIGKILL in the middle of an eviction; answers that are lost. The next life, or the standby, finishes the work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from scheduler.devcluster.http.faults import Action, Fault
from tests.chaos.caches import FinalState, miscounts
from tests.chaos.evictions import EvictionJudge
from tests.chaos.happenings import (
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
from tests.chaos.instance import EVICTION_KILL_POINTS, Instance
from tests.chaos.journal import Journal, key_of, node_of
from tests.chaos.judging import Judge
from tests.chaos.nominations import nomination_of
from tests.chaos.run import OURS, repeatable
from tests.chaos.stage import Server, Stage
from tests.chaos.test_deaths import few_instances
from tests.chaos.venue import EMBEDDED, Setting
from tests.chaos.virtual import run_virtually

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


@dataclass
class _Story:
    server: Server
    stage: Stage
    instances: list[Instance]
    journal: Journal

    async def begin(self) -> None:
        """Fill the nodes in this order: each pair lands where there is room for it."""
        for one in _CLUSTER:
            await self.stage.perform(one)
            if isinstance(one, AddPod) and one.key == "red/quick":
                await asyncio.sleep(5.0)
        await asyncio.sleep(5.0)

    async def preempt(self) -> None:
        """Bring a pod that needs a whole node."""
        await self.stage.perform(AddPod("red/high", "critical", OURS))

    def pod(self, key: str) -> dict[str, Any] | None:
        namespace, name = key.split("/")
        found = (one for one in self.server.objects("Pod") if one["metadata"]["name"] == name)
        return next((one for one in found if one["metadata"]["namespace"] == namespace), None)

    async def end_pods(self, *, until_s: float) -> None:
        """Let terminating pods end after 3 s, as their kubelet does."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + until_s
        while loop.time() < ends_s:
            await asyncio.sleep(3.0)
            for pod in self.server.objects("Pod"):
                if pod["metadata"].get("deletionTimestamp"):
                    await self.stage.perform(Remove("Pod", key_of(pod)))

    async def end(self) -> EvictionJudge:
        """Judge the run: the pod is on the first node, and nobody but its two pods was evicted, each once."""
        final_state = FinalState(self.server, self.instances, frozenset({OURS}), self.journal)
        await final_state.settled(15.0)
        group_of = {one.name: one.scheduler_name for one in self.instances}
        elected = [one.name for one in self.instances if one.elected]
        judge = EvictionJudge(self.journal, group_of)
        wrongs = [
            *final_state.wrongs,
            *judge.wrongs(),
            *Judge(self.journal, group_of, elected=elected).wrongs(),
        ]
        wrongs += [wrong for one in self.instances for wrong in miscounts(one)]
        assert [text for one in self.instances for text in one.crashes] == []
        assert wrongs == []
        assert {one.victim for one in self.journal.ordered} <= _BOTH
        assert (self.pod("red/low"), self.pod("red/quick")) == (None, None)
        assert node_of(self.pod("red/high")) == "n1"
        return judge


@asynccontextmanager
async def _told(*, elected: bool) -> AsyncIterator[_Story]:
    journal = Journal(asyncio.get_running_loop().time)
    async with EMBEDDED.opened(journal, Setting()) as opened:
        instances = few_instances(opened, journal, elected=elected)
        lives = [asyncio.create_task(one.live()) for one in instances]
        yield _Story(opened.server, Stage(opened.server, instances, journal), instances, journal)
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)


def _play(story: Coroutine[Any, Any, None]) -> None:
    with repeatable(1):
        run_virtually(story)


@pytest.mark.parametrize(
    ("after", "elected"),
    [
        pytest.param(0, False, id="first victim"),
        pytest.param(1, False, id="second victim"),
        pytest.param(0, True, id="standby"),
    ],
)
@pytest.mark.parametrize("point", EVICTION_KILL_POINTS)
def test_the_next_life_evicts_the_rest_and_nobody_twice(point: str, after: int, *, elected: bool) -> None:
    async def story() -> None:
        async with _told(elected=elected) as told:
            await told.begin()
            for instance in told.instances:
                await told.stage.perform(Kill(instance.name, point, after))
            await told.preempt()
            await told.end_pods(until_s=_WITH_LEASE_S if elected else _ALONE_S)
            for instance in told.instances:
                instance.doom = None
            judge = await told.end()
            assert (judge.n_evictions, judge.wasted) == (2, {})
            if after == 0:
                assert sum(one.n_lives for one in told.instances) > len(told.instances)

    _play(story())


@pytest.mark.parametrize("lost", [Action.LOSE_ANSWER, Action.RESPOND_AFTER, Action.DROP, Action.RESPOND])
def test_a_deletion_without_a_clear_answer_is_told_of_and_counted_once(lost: Action) -> None:
    """One victim is gone at once, so the second try finds no pod; the other one ends later."""

    async def story() -> None:
        async with _told(elected=False) as told:
            await told.begin()
            told.server.faults.add(Fault(action=lost, verb="delete", path=r"/pods/[^/]+$", code=504, times=2))
            await told.preempt()
            await told.end_pods(until_s=_ALONE_S)
            judge = await told.end()
            assert (judge.n_evictions, judge.wasted) == (2, {})
            assert sorted(uid for _, uid in told.journal.reported) == sorted(
                {one.victim_uid for one in told.journal.ordered}
            )
            machine = told.instances[0].machine
            assert machine is not None
            assert machine.preemptions.wasted == {}
            assert not (machine.state.preempting or machine.preemptions.is_running("red/high"))

    _play(story())


def test_an_instance_that_is_stopped_ends_its_evictions_first() -> None:
    async def story() -> None:
        async with _told(elected=False) as told:
            await told.begin()
            slow = Fault(action=Action.DELAY, verb="delete", path=r"/pods/[^/]+$", delay_s=2.0, times=2)
            told.server.faults.add(slow)
            await told.preempt()
            await asyncio.sleep(1.0)
            await told.stage.perform(Terminate("one"))
            await told.end_pods(until_s=_ALONE_S)
            judge = await told.end()
            assert (judge.n_evictions, judge.wasted) == (2, {})
            assert [by for by, _ in told.journal.reported] == ["one-1", "one-1"]
            assert told.instances[0].n_lives == 2

    _play(story())


def test_a_nomination_ends_with_its_node() -> None:
    """Cluster-autoscaler counts a nominated pod as placed, even on a node that is gone."""

    async def story() -> None:
        async with _told(elected=False) as told:
            await told.begin()
            await told.preempt()
            await asyncio.sleep(1.0)
            assert nomination_of(told.pod("red/high") or {}) == "n1"
            await told.stage.perform(Remove("Node", "n1"))
            await told.stage.perform(Remove("Node", "n2"))
            await asyncio.sleep(1.0)
            assert nomination_of(told.pod("red/high") or {}) == ""

    _play(story())


def test_a_nomination_ends_where_a_pod_of_higher_priority_takes_the_node() -> None:
    async def story() -> None:
        async with _told(elected=False) as told:
            await told.begin()
            await told.preempt()
            await asyncio.sleep(1.0)
            await told.stage.perform(AddPriorityClass("top", 2000))
            await told.server.patch(
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
                await told.server.create("Pod", pod)
            await told.end_pods(until_s=20.0)
            assert {node_of(told.pod(f"red/top-{number}")) for number in range(2)} == {"n1", "n2"}
            assert nomination_of(told.pod("red/high") or {}) == ""

    _play(story())

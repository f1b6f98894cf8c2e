"""SIGKILL at every moment between the pop of a pod and the confirmation of its bind; the next life takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from scheduler.sandbox.devcluster.http.faults import Effect, Fault
from tests.proof.chaos.caches import FinalState, miscounts
from tests.proof.chaos.evictions import EvictionJudge
from tests.proof.chaos.happenings import AddNamespace, AddNode, AddPod, Happening, Kill
from tests.proof.chaos.instance import KILL_POINTS, OURS, Instance, few_instances, living
from tests.proof.chaos.journal import Journal, node_of
from tests.proof.chaos.judging import Judge
from tests.proof.chaos.run import repeatable, virtually
from tests.proof.chaos.stage import Server, Stage
from tests.proof.chaos.venue import EMBEDDED, Setting
from tests.proof.chaos.virtual import after_turns, run_virtually

#: Two nodes with room for one pod each; the first two pods repel each other, so decisions depend on each other.
_CLUSTER: list[Happening] = [AddNamespace("red", "x"), AddNode("n1", "1", "a"), AddNode("n2", "1", "b")]
_PODS: list[Happening] = [AddPod(f"red/p{number}", "alone", OURS) for number in range(2)]
#: A Lease that is not renewed expires after 15 s.
_BORN_AGAIN_S = 40.0


@dataclass
class Story:
    """A cluster with one instance, or with a leader and a standby."""

    server: Server
    stage: Stage
    instances: list[Instance]
    final_state: FinalState
    journal: Journal
    cluster: list[Happening]
    pods: list[Happening]

    async def begin(self) -> None:
        """Create the pods as soon as an instance may place them."""
        for one in self.cluster:
            await self.stage.perform(one)
        await asyncio.sleep(20.0)
        for one in self.pods:
            await self.stage.perform(one)

    async def judged(self, within_s: float) -> EvictionJudge:
        """Wait for the final state, assert that no promise is broken, and return the judge of evictions."""
        await self.final_state.settled(within_s)
        group_of = {one.name: one.scheduler_name for one in self.instances}
        elected = [one.name for one in self.instances if one.elected]
        evictions = EvictionJudge(self.journal, group_of)
        wrongs = [*self.final_state.wrongs, *evictions.wrongs()]
        wrongs += Judge(self.journal, group_of, elected=elected).wrongs()
        wrongs += [wrong for one in self.instances for wrong in miscounts(one)]
        assert [text for one in self.instances for text in one.crashes] == []
        assert wrongs == []
        return evictions

    async def end(self) -> dict[str, str]:
        """Judge the run, and return the nodes of all pods."""
        await asyncio.sleep(_BORN_AGAIN_S)
        await self.judged(10.0)
        bound = {one.key: node_of(one.obj) for one in self.journal.written if one.bound_node}
        assert len(bound) == len(self.pods), bound
        return bound


@asynccontextmanager
async def told(
    *, elected: bool, cluster: list[Happening] = _CLUSTER, pods: list[Happening] = _PODS
) -> AsyncIterator[Story]:
    """Yield a story whose instances have begun to live."""
    journal = Journal(asyncio.get_running_loop().time)
    async with EMBEDDED.opened(journal, Setting()) as opened:
        instances = few_instances(opened.port, journal, opened.holder, elected=elected)
        opened.listen(instances)
        final_state = FinalState(opened.server, instances, frozenset({OURS}), journal)
        stage = Stage(opened.server, instances, journal)
        async with living(instances):
            yield Story(opened.server, stage, instances, final_state, journal, cluster, pods)


@pytest.mark.parametrize("after", [0, 1], ids=["first bind", "second bind"])
@pytest.mark.parametrize("point", KILL_POINTS)
@virtually
async def test_a_standby_finishes_the_work(point: str, after: int) -> None:
    async with told(elected=True) as story:
        for instance in story.instances:
            await story.stage.perform(Kill(instance.name, point, after))
        await story.begin()
        assert sorted((await story.end()).values()) == ["n1", "n2"]
        assert sum(one.n_lives for one in story.instances) > len(story.instances)


def test_there_is_no_moment_at_which_it_must_not_die() -> None:
    """One alone is killed between any two turns of the loop, from pod creation to the confirmation of both binds."""

    async def play(turn: int) -> bool:
        """Returns whether it died before both were confirmed."""
        async with told(elected=False) as story:
            # One after the other: else the server takes both binds in one turn, and none dies in between.
            await story.stage.perform(Fault(action=Effect.DELAY, path="/pods/p1/binding$", delay_s=0.01))
            await story.begin()
            instance = story.instances[0]
            machine = instance.machine
            assert machine is not None

            def die() -> None:
                if sum(not one.assumed for one in machine.state.placed.values()) < len(_PODS):
                    instance.kill()

            with after_turns(turn, die):
                await asyncio.sleep(1.0)
            assert sorted((await story.end()).values()) == ["n1", "n2"]
            return instance.n_lives > 1

    assert deaths_at(play, range(1000)) > 20


def deaths_at(play: Callable[[int], Coroutine[Any, Any, bool]], turns: Iterable[int]) -> int:
    """Play with a death after so many turns of the loop, until one comes too late; return the number of the others."""
    for n_deaths, turn in enumerate(turns):
        with repeatable(1):
            if not run_virtually(play(turn)):
                return n_deaths
    raise AssertionError("every death was early enough")

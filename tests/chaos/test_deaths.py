"""SIGKILL at every moment between the pop of a pod and the confirmation of its bind; the next life takes over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from tests.chaos.caches import FinalState, miscounts
from tests.chaos.happenings import AddNamespace, AddNode, AddPod, Happening, Kill
from tests.chaos.instance import KILL_POINTS, Instance
from tests.chaos.journal import Journal, node_of
from tests.chaos.judging import Judge
from tests.chaos.run import OURS, repeatable
from tests.chaos.stage import Stage
from tests.chaos.venue import EMBEDDED, Opened, Setting
from tests.chaos.verdicts import Wrong
from tests.chaos.virtual import VirtualLoop, run_virtually

#: Two nodes with room for one pod each; the first two pods repel each other, so decisions depend on each other.
_CLUSTER: list[Happening] = [AddNamespace("red", "x"), AddNode("n1", "1", "a"), AddNode("n2", "1", "b")]
_PODS: list[Happening] = [AddPod(f"red/p{number}", "alone", OURS) for number in range(2)]
#: A Lease that is not renewed expires after 15 s.
_BORN_AGAIN_S = 40.0


@dataclass
class Story:
    """A cluster with one instance, or with a leader and a standby."""

    stage: Stage
    instances: list[Instance]
    final_state: FinalState
    journal: Journal
    cluster: list[Happening]
    pods: list[Happening]
    #: The broken promises.
    wrongs: list[Wrong] = field(default_factory=list)

    async def begin(self) -> None:
        """Create the pods as soon as an instance may place them."""
        for one in self.cluster:
            await self.stage.perform(one)
        await asyncio.sleep(20.0)
        for one in self.pods:
            await self.stage.perform(one)

    def leader(self) -> Instance:
        """Return the instance that leads."""
        return next(one for one in self.instances if one.life is not None and one.life.scheduler._leads())

    async def end(self) -> dict[str, str]:
        """Wait for the final state, judge the run, and return the nodes of all pods."""
        await asyncio.sleep(_BORN_AGAIN_S)
        await self.final_state.settled(10.0)
        group_of = {one.name: one.scheduler_name for one in self.instances}
        elected = [one.name for one in self.instances if one.elected]
        self.wrongs += [*self.final_state.wrongs, *Judge(self.journal, group_of, elected=elected).wrongs()]
        self.wrongs += [wrong for one in self.instances for wrong in miscounts(one)]
        assert [text for one in self.instances for text in one.crashes] == []
        bound = {one.key: node_of(one.obj) for one in self.journal.written if one.bound_node}
        assert not self.wrongs, self.wrongs
        assert len(bound) == len(self.pods), bound
        return bound


def few_instances(opened: Opened, journal: Journal, *, elected: bool) -> list[Instance]:
    """Return one instance, or two on one Lease, which the venue listens to."""
    instances = [
        Instance(
            name,
            scheduler_name=OURS,
            elected=elected,
            server_port=opened.port,
            journal=journal,
            chance=random.Random(name),
            holder=opened.holder,
        )
        for name in (("first", "second") if elected else ("one",))
    ]
    opened.listen(instances)
    return instances


@asynccontextmanager
async def told(
    *, elected: bool, cluster: list[Happening] = _CLUSTER, pods: list[Happening] = _PODS
) -> AsyncIterator[Story]:
    """Yield a story whose instances have begun to live."""
    journal = Journal(asyncio.get_running_loop().time)
    async with EMBEDDED.opened(journal, Setting()) as opened:
        instances = few_instances(opened, journal, elected=elected)
        lives = [asyncio.create_task(one.live()) for one in instances]
        final_state = FinalState(opened.server, instances, frozenset({OURS}), journal)
        stage = Stage(opened.server, instances, journal)
        story = Story(stage, instances, final_state, journal, cluster, pods)
        yield story
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)


@pytest.mark.parametrize("elected", [False, True], ids=["alone", "standby"])
@pytest.mark.parametrize("after", [0, 1], ids=["first bind", "second bind"])
@pytest.mark.parametrize("point", KILL_POINTS)
def test_the_next_life_finishes_the_work(point: str, after: int, *, elected: bool) -> None:
    async def play() -> None:
        async with told(elected=elected) as story:
            for instance in story.instances:
                await story.stage.perform(Kill(instance.name, point, after))
            await story.begin()
            assert sorted((await story.end()).values()) == ["n1", "n2"]
            assert sum(one.n_lives for one in story.instances) > len(story.instances)

    with repeatable(1):
        run_virtually(play())


def test_there_is_no_moment_at_which_it_must_not_die() -> None:
    """It is killed between any two turns of the event loop, from pod creation to the confirmation of both binds."""
    n_turns = _turns_of_a_whole_life()
    assert n_turns > 20
    for turn in range(n_turns):
        lives = _dying_after(turn)
        assert lives == 2, f"turn {turn}"


def _turns_of_a_whole_life() -> int:
    turns = 0

    async def play() -> None:
        nonlocal turns
        async with told(elected=False) as story:
            await story.begin()
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            machine = story.instances[0].machine
            assert machine is not None
            confirmed_in = 0

            def count() -> None:
                nonlocal turns, confirmed_in
                turns += 1
                placed = [one for one in machine.state.placed.values() if not one.assumed]
                if len(placed) == len(_PODS) and not confirmed_in:
                    confirmed_in = turns

            loop.between_turns = count
            await asyncio.sleep(1.0)
            loop.between_turns = None
            turns = confirmed_in
            assert sorted((await story.end()).values()) == ["n1", "n2"]

    with repeatable(1):
        run_virtually(play())
    return turns


def _dying_after(turns: int) -> int:
    """Return the number of lives."""
    n_lives = 0

    async def play() -> None:
        nonlocal n_lives
        async with told(elected=False) as story:
            await story.begin()
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            left = turns

            def count() -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    story.instances[0].kill()

            if turns == 0:
                story.instances[0].kill()
            loop.between_turns = count
            await asyncio.sleep(1.0)
            loop.between_turns = None
            assert sorted((await story.end()).values()) == ["n1", "n2"]
            n_lives = story.instances[0].n_lives

    with repeatable(1):
        run_virtually(play())
    return n_lives

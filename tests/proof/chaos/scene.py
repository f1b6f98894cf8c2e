"""A cluster with its instances, on which a run or a test lets things happen, and the judgement of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.kinds import JsonObject
from tests.proof.chaos.caches import FinalState, miscounts
from tests.proof.chaos.happenings import Happening
from tests.proof.chaos.instance import Instance, living
from tests.proof.chaos.journal import Journal, key_of
from tests.proof.chaos.judging import Judgement, judged
from tests.proof.chaos.kinds import PLAIN, Kind, Shape
from tests.proof.chaos.stage import Server, Stage
from tests.proof.chaos.venue import Setting, Venue
from tests.proof.chaos.verdicts import Verdict, Wrong


@dataclass
class Scene:
    """
    The cluster and the instances.

    Attributes:
        names: the schedulerNames of the instances.
        cluster: None if it is not embedded.
    """

    server: Server
    instances: list[Instance]
    names: list[str]
    journal: Journal
    stage: Stage
    final_state: FinalState
    cluster: DevCluster | None

    def pod(self, key: str) -> JsonObject | None:
        """Return the pod, if it is there."""
        return next((one for one in self.server.objects("Pod") if key_of(one) == key), None)

    @property
    def n_lives(self) -> int:
        """Return the number of lives of all instances."""
        return sum(one.n_lives for one in self.instances)

    def wrongs_of_instances(self) -> list[Wrong]:
        """Return crashes, what is wrong at the end, and counts that differ from a recount."""
        crashes = [Wrong(Verdict.CRASH, text) for one in self.instances for text in one.crashes]
        counts = [wrong for one in self.instances for wrong in miscounts(one)]
        return [*crashes, *self.final_state.wrongs, *counts]

    async def settled(self, within_s: float) -> Judgement:
        """Wait for the final state, assert that no promise is broken, and return what was judged."""
        await self.final_state.settled(within_s)
        judgement = judged(self.journal)
        assert [str(one) for one in (*self.wrongs_of_instances(), *judgement.wrongs)] == []
        return judgement


@asynccontextmanager
async def scene(
    kind: Kind = PLAIN,
    shape: Shape = Shape.ALONE,
    *,
    setting: Setting | None = None,
    venue: Venue | None = None,
    chance: random.Random | None = None,
) -> AsyncIterator[Scene]:
    """Yield a scene whose instances do not live yet. `chance` seeds their lives, by default drawn from their names."""
    venue = venue or kind.venue
    journal = Journal(asyncio.get_running_loop().time)
    async with venue.opened(journal, setting or Setting()) as opened:
        instances = [
            Instance(
                name,
                scheduler_name=scheduler,
                elected=shape.is_elected,
                server_port=opened.port,
                journal=journal,
                chance=chance and random.Random(chance.getrandbits(64)),
                holder=opened.holder,
                election=venue.pace.election,
            )
            for name, scheduler in shape.scheduler_of.items()
        ]
        opened.listen(instances)
        journal.group_of = shape.scheduler_of
        journal.elected = shape.scheduler_of if shape.is_elected else ()
        names = sorted({*shape.scheduler_of.values()})
        journal.mark("BEGIN", schedulers=names, within_s=venue.pace.settle_s, may_collide=kind.may_collide)
        stage = Stage(opened.server, instances, journal)
        final_state = FinalState(opened.server, instances, frozenset(names), journal)
        yield Scene(opened.server, instances, names, journal, stage, final_state, opened.cluster)


@asynccontextmanager
async def told(*begin: Happening, kind: Kind = PLAIN, shape: Shape = Shape.ALONE) -> AsyncIterator[Scene]:
    """Yield a scene whose instances live, after these happenings."""
    async with scene(kind, shape) as made, living(made.instances):
        await made.stage.perform(*begin)
        yield made

"""One run: a cluster and its schedulers, half a minute of faults, a quiet time, then the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import random
import secrets
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec
from unittest import mock
from uuid import UUID

from scheduler.sandbox.devcluster.storage import store as store_module
from scheduler.sandbox.devcluster.storage.store import ObjectStore
from tests.proof.chaos.caches import POLL_S, FinalState
from tests.proof.chaos.faulting import FaultGenerator
from tests.proof.chaos.happenings import Happening, Script, literal
from tests.proof.chaos.instance import DAY_S
from tests.proof.chaos.journal import Journal
from tests.proof.chaos.judging import Judgement, judged
from tests.proof.chaos.kinds import PLAIN, Kind, Shape
from tests.proof.chaos.scene import Scene, scene
from tests.proof.chaos.shapes import NAIVE, RANKED_SHAPES, SHAPES
from tests.proof.chaos.stage import Embedded, Stage
from tests.proof.chaos.venue import Setting, Venue
from tests.proof.chaos.verdicts import Verdict, Wrong, story
from tests.proof.chaos.virtual import run_virtually
from tests.proof.chaos.world import World

P = ParamSpec("P")

#: How often kubelets look at their pods.
_KUBELET_S = 0.1


@dataclass
class Outcome:
    """The result of a run, which is right if `wrongs` is empty."""

    seed: int
    shape: Shape
    kind: Kind
    setting: Setting
    #: What happened, to be replayed.
    script: list[tuple[float, Happening]] = field(default_factory=list)
    wrongs: list[Wrong] = field(default_factory=list)
    judgement: Judgement = field(default_factory=Judgement)
    #: Pods that could evict others and that no event woke, so that they needed the flush of unschedulable pods.
    n_flushed: int = 0
    #: Seconds from the end of the faults until all that fits was placed.
    settled_s: float = 0.0
    n_lives: int = 0
    #: The zero of all moments in `journal` and `wrongs`.
    began_s: float = 0.0
    journal: Journal | None = None

    def story(self) -> str:
        """Return what went wrong and what happened before, as text."""
        told = [] if self.journal is None else self.journal.told
        return story(f"seed {self.seed}, {self.kind.name}, {self.shape.value}", self.wrongs, told)

    def as_test(self) -> str:
        """Return the run as a test for `test_regressions.py`."""
        found = self.wrongs[0].verdict.value.capitalize() if self.wrongs else "Right"
        setting = "" if self.setting == Setting() else f"        {literal(self.setting)},\n"
        kind = "" if self.kind is PLAIN else f'        kind=KINDS["{self.kind.name}"],\n'
        return "\n".join(
            [
                f"def test_seed_{self.seed}_{self.shape.value}() -> None:",
                f'    """{found}."""',
                "    outcome = replay(",
                f"        {self.seed},",
                f"        Shape.{self.shape.name},",
                "        [",
                *(f"            ({at_s}, {literal(one)})," for at_s, one in self.script),
                "        ],",
                f"{setting}{kind}    )",
                "    assert not outcome.wrongs, outcome.story()",
                "",
            ]
        )


def run(seed: int, shape: Shape, kind: Kind = PLAIN) -> Outcome:
    """Play the run of a seed on the embedded cluster with a virtual clock."""
    with repeatable(seed):
        return run_virtually(Run(seed, shape, kind).play())


async def run_at(venue: Venue, seed: int, shape: Shape) -> Outcome:
    """Play the run of a seed at a venue in real time, where no run repeats exactly."""
    with repeatable(seed):
        return await Run(seed, shape, venue=venue).play()


def replay(
    seed: int,
    shape: Shape,
    script: Script,
    setting: Setting | None = None,
    *,
    kind: Kind = PLAIN,
    until_s: float | None = None,
) -> Outcome:
    """
    Play `script` and nothing else; the seed still draws ties, jitter and UIDs.

    With `until_s` the run ends then, without waiting for the final state, and is judged by the writes until then.
    """
    with repeatable(seed):
        return run_virtually(Run(seed, shape, kind, script=script, setting=setting, until_s=until_s).play())


@contextlib.contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """
    Draw random numbers, UIDs and names from the seed for the duration of the block; objects have the loop's time.

    Queues order pods by it that a list brings at once.
    """
    uids, names = random.Random(f"uids {seed}"), random.Random(f"names {seed}")
    random.seed(seed)
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
    with (
        mock.patch.object(store_module, "uuid4", lambda: UUID(int=uids.getrandbits(128), version=4)),
        mock.patch.object(secrets, "choice", names.choice),
        mock.patch.object(ObjectStore, "now_s", lambda _: DAY_S),
    ):
        yield


def virtually(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Return a test that plays this one on a virtual clock, with random numbers and UIDs of one seed."""

    @functools.wraps(test)
    def play(*args: P.args, **kwargs: P.kwargs) -> None:
        with repeatable(1):
            run_virtually(test(*args, **kwargs))

    return play


class Run:
    """
    One run, to be played once.

    Args:
        seed: draws everything that `script` leaves open.
        script: the happenings; None draws them.
        setting: the settings of the cluster; None draws them, or takes the defaults with a script.
        until_s: when it ends without waiting for the final state.
        venue: where it is played; by default where its kind is.
    """

    def __init__(
        self,
        seed: int,
        shape: Shape,
        kind: Kind = PLAIN,
        *,
        script: Script | None = None,
        setting: Setting | None = None,
        venue: Venue | None = None,
        until_s: float | None = None,
    ) -> None:
        self._kind, self._shape, self._script, self._venue = kind, shape, script, venue or kind.venue
        pace = self._venue.pace
        self._until_s = until_s
        self._pace = pace if until_s is None else replace(pace, trouble_s=min(until_s, pace.trouble_s))
        self._chance = random.Random(f"{seed} {shape.value}")
        drawn = Setting.drawn(self._drawn())
        if setting is None:
            setting = drawn if script is None else Setting()
        self._outcome = Outcome(seed, shape, kind, setting)
        self._chance_of = {name: self._drawn() for name in ("world", "trouble", "faults", "lives")}
        self._began_s = 0.0

    async def play(self) -> Outcome:
        """Play the run and judge it."""
        loop, outcome = asyncio.get_running_loop(), self._outcome
        loop.set_exception_handler(self._on_loose_end)
        made = scene(
            self._kind,
            self._shape,
            setting=outcome.setting,
            venue=self._venue,
            chance=self._chance_of["lives"],
        )
        async with made as there:
            outcome.journal = there.journal
            self._began_s = outcome.began_s = loop.time()
            world = self._world(there)
            async with asyncio.TaskGroup() as group:
                lives: list[asyncio.Task[None]] = []
                async for at_s, happening in self._trouble(world, [one.name for one in there.instances]):
                    if at_s > 0 and not lives:
                        lives += [group.create_task(one.live(), name=one.name) for one in there.instances]
                        lives += [
                            group.create_task(self._beside(work)) for work in self._others(world, there)
                        ]
                    await self._happen(there.stage, at_s, happening)
                there.stage.end_faults()
                there.journal.mark("CALM")
                lives.append(group.create_task(self._calm(world, there.stage)))
                if self._until_s is not None:
                    await self._wait_until(self._until_s)
                else:
                    outcome.settled_s = await there.final_state.settled(self._pace.settle_s)
                    if not there.final_state.wrongs:
                        await self._last_events(world, there.stage, there.final_state)
                    outcome.n_flushed = there.final_state.n_flushed
                    outcome.n_lives = there.n_lives
                    outcome.wrongs += there.wrongs_of_instances()
                for life in lives:
                    life.cancel()
        outcome.judgement = judged(there.journal)
        assert there.journal.sent or not outcome.judgement.n_binds, "nobody heard the binds that were sent"
        outcome.wrongs += outcome.judgement.wrongs
        # Pods left over after a crash are a consequence of it.
        outcome.wrongs.sort(key=lambda one: one.verdict is not Verdict.CRASH)
        return outcome

    def _world(self, there: Scene) -> World:
        has_naive, is_ranked = self._shape in self._kind.naive, self._shape.is_ranked
        return self._kind.world(
            there.server.objects,
            self._chance_of["world"],
            there.names * 3 + [NAIVE] * has_naive,
            self._kind.pods or tuple(RANKED_SHAPES if is_ranked else SHAPES),
            is_ranked=is_ranked,
        )

    def _others(self, world: World, there: Scene) -> list[Coroutine[Any, Any, None]]:
        """Return what goes on beside the schedulers."""
        works = [self._refuse_pods(world, there.stage, there.journal)] if self._shape.is_ranked else []
        if isinstance(there.server, Embedded) and there.cluster is not None:
            works += self._kind.beside(there.server, there.cluster, there.journal, self._outcome.seed)
        return works

    async def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - whatever ends it breaks the run
            self._outcome.wrongs.append(Wrong(Verdict.CRASH, "".join(traceback.format_exception(error))))

    def _on_loose_end(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Count an unhandled exception as a bug, unless the server raises it for a broken connection."""
        error = context.get("exception")
        if not isinstance(error, ConnectionError):
            self._outcome.wrongs.append(Wrong(Verdict.CRASH, f"loose end: {context['message']} {error!r}"))

    def _drawn(self) -> random.Random:
        return random.Random(self._chance.getrandbits(64))

    async def _happen(self, stage: Stage, at_s: float, happening: Happening) -> None:
        self._outcome.script.append((at_s, happening))
        await stage.perform(happening)

    async def _trouble(self, world: World, instances: list[str]) -> AsyncIterator[tuple[float, Happening]]:
        """Yield happenings, each at its moment, until the faults end."""
        if self._script is None:
            async for one in self._drawn_happenings(world, instances):
                yield one
            return
        trouble = [one for one in self._script if one[0] <= self._pace.trouble_s]
        for at_s, together in itertools.groupby(trouble, lambda one: one[0]):
            await self._wait_until(at_s)
            for one in together:
                yield one
        await self._wait_until(self._pace.trouble_s)

    async def _refuse_pods(self, world: World, stage: Stage, journal: Journal) -> None:
        """Let kubelets refuse pods whose host port is taken."""
        n_seen = 0
        while True:
            await asyncio.sleep(_KUBELET_S)
            if n_seen != (n_seen := len(journal.written)):
                await stage.perform(*world.refuse_pods())

    async def _calm(self, world: World, stage: Stage) -> None:
        """Do what kubelets and drivers do soon, once the faults are over."""
        while True:
            await asyncio.sleep(1.0)
            await stage.perform(*world.calm())

    async def _last_events(self, world: World, stage: Stage, final_state: FinalState) -> None:
        """Perform single happenings, each only when the one before is handled."""
        for number in range(self._pace.n_last):
            at_s = self._pace.last_at_s + number * self._pace.last_s
            await self._wait_until(at_s)
            if self._script is None:
                happenings: list[Happening] = [*world.draw_last()]
            else:
                happenings = [one for moment, one in self._script if moment == at_s]
            for happening in happenings:
                await self._happen(stage, at_s, happening)
            if happenings:
                await final_state.settled(self._pace.last_s - POLL_S)

    async def _drawn_happenings(
        self, world: World, instances: list[str]
    ) -> AsyncIterator[tuple[float, Happening]]:
        """Yield drawn happenings of users and faults, each at its own rate."""
        chance = self._chance_of["trouble"]
        generator = FaultGenerator(
            instances, self._chance_of["faults"], evicts=self._shape.is_ranked, targets=self._kind.targets
        )
        calm = chance.choice((0.2, 0.5, 1.0))
        mended = chance.random() < world.mends
        for one in world.found():
            yield 0.0, one
        at_s = 0.0
        pace = chance.choice((3.0, 4.0, 6.0))
        while (at_s := round(at_s + chance.expovariate(pace) + 0.001, 3)) < self._pace.trouble_s:
            await self._wait_until(at_s)
            for event in world.draw():
                yield at_s, event
            if self._shape in self._kind.naive and chance.random() < 0.5:
                for event in world.draw_stranger():
                    yield at_s, event
            if chance.random() < calm * 0.5:
                for fault in generator.draw():
                    yield at_s, fault
        await self._wait_until(self._pace.trouble_s)
        for event in world.mend() if mended else ():
            yield self._pace.trouble_s, event

    async def _wait_until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, self._began_s + at_s - asyncio.get_running_loop().time()))

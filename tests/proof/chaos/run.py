"""One run: a cluster and its schedulers, half a minute of faults, a quiet time, then the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, ParamSpec
from unittest import mock
from uuid import UUID

from scheduler.sandbox.devcluster.storage import store as store_module
from tests.proof.chaos.caches import POLL_S, FinalState, miscounts
from tests.proof.chaos.evictions import EvictionJudge
from tests.proof.chaos.faulting import FaultGenerator
from tests.proof.chaos.happenings import Happening, Script, literal
from tests.proof.chaos.instance import OURS, Instance
from tests.proof.chaos.journal import Journal
from tests.proof.chaos.judging import Judge
from tests.proof.chaos.shapes import NAIVE, RANKED_SHAPES, SHAPES
from tests.proof.chaos.stage import Stage
from tests.proof.chaos.venue import EMBEDDED, Setting, Venue
from tests.proof.chaos.verdicts import Verdict, Wrong
from tests.proof.chaos.virtual import run_virtually
from tests.proof.chaos.world import World
from tests.proof.history.checker import check

P = ParamSpec("P")

THEIRS = "theirs"
#: Share of runs in which all nodes return when the faults end.
_MENDED = 0.5
#: How often kubelets look at their pods.
_KUBELET_S = 0.1
#: Broken promises that are printed of a run.
_MAX_TOLD = 8


class Shape(Enum):
    """
    The schedulers: one; two that share a Lease; two with different names and a naive third.

    Ranked ones have pods with priorities, and evict.
    """

    ALONE = "alone"
    ELECTED = "elected"
    RIVALS = "rivals"
    RANKED = "ranked"
    RANKED_ELECTED = "ranked-elected"

    @property
    def has_naive(self) -> bool:
        """Whether there is a third scheduler, which binds without any check."""
        return self in (Shape.RIVALS, Shape.RANKED)

    @property
    def is_ranked(self) -> bool:
        """Whether pods have priorities."""
        return self in (Shape.RANKED, Shape.RANKED_ELECTED)


_INSTANCES = {
    Shape.ALONE: (("one", OURS, False),),
    Shape.ELECTED: (("first", OURS, True), ("second", OURS, True)),
    Shape.RIVALS: (("left", OURS, False), ("right", THEIRS, False)),
    Shape.RANKED: (("left", OURS, False), ("right", THEIRS, False)),
    Shape.RANKED_ELECTED: (("first", OURS, True), ("second", OURS, True)),
}


@dataclass
class Outcome:
    """The result of a run, which is right if `wrongs` is empty."""

    seed: int
    shape: Shape
    setting: Setting
    #: What happened, to be replayed.
    script: list[tuple[float, Happening]] = field(default_factory=list)
    wrongs: list[Wrong] = field(default_factory=list)
    n_binds: int = 0
    n_raced: int = 0
    window_s: float = 0.0
    n_evictions: int = 0
    #: Pods that could evict others and that no event woke, so that they needed the flush of unschedulable pods.
    n_flushed: int = 0
    #: Seconds from the end of the faults until all that fits was placed.
    settled_s: float = 0.0
    n_lives: int = 0
    #: The zero of all moments in `journal` and `wrongs`.
    began_s: float = 0.0
    journal: Journal | None = None

    def story(self, last: int = 60) -> str:
        """Return what went wrong and what happened before, as text."""
        told = [] if self.journal is None else self.journal.told[-last:]
        return "\n".join(
            [
                f"seed {self.seed}, {self.shape.value}:",
                *(str(one)[:600] for one in self.wrongs[:_MAX_TOLD]),
                "what happened last:",
                *(f"{at_s:10.3f} {text}" for at_s, text in told),
            ]
        )

    def as_test(self) -> str:
        """Return the run as a test for `test_regressions.py`."""
        found = self.wrongs[0].verdict.value.capitalize() if self.wrongs else "Right"
        setting = "" if self.setting == Setting() else f"        {literal(self.setting)},\n"
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
                f"{setting}    )",
                "    assert not outcome.wrongs, outcome.story()",
                "",
            ]
        )


def run(seed: int, shape: Shape, pods: Sequence[str] = (), world: type[World] = World) -> Outcome:
    """Play the run of a seed on the embedded cluster with a virtual clock. `pods`: the shapes of its pods; else all."""
    with repeatable(seed):
        return run_virtually(Run(seed, shape, pods=pods, world=world).play())


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
    until_s: float | None = None,
) -> Outcome:
    """
    Play `script` and nothing else; the seed still draws ties, jitter and UIDs.

    With `until_s` the run ends then, without waiting for the final state, and is judged by the writes until then.
    """
    with repeatable(seed):
        run = Run(seed, shape, script=script, setting=setting, until_s=until_s)
        return run_virtually(run.play())


@contextlib.contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Draw random numbers and UIDs from the seed for the duration of the block."""
    uids = random.Random(f"uids {seed}")
    random.seed(seed)
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
    with mock.patch.object(store_module, "uuid4", lambda: UUID(int=uids.getrandbits(128), version=4)):
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
        pods: the shapes of its pods; none stands for all.
    """

    def __init__(
        self,
        seed: int,
        shape: Shape,
        *,
        script: Script | None = None,
        setting: Setting | None = None,
        venue: Venue = EMBEDDED,
        until_s: float | None = None,
        pods: Sequence[str] = (),
        world: type[World] = World,
    ) -> None:
        self._world, self._is_ranked = world, shape.is_ranked
        self._pods = pods or tuple(RANKED_SHAPES if self._is_ranked else SHAPES)
        self._shape, self._script, self._venue = shape, script, venue
        pace = venue.pace
        self._until_s = until_s
        self._pace = pace if until_s is None else replace(pace, trouble_s=min(until_s, pace.trouble_s))
        self._chance = random.Random(f"{seed} {shape.value}")
        drawn = Setting.drawn(self._drawn())
        if setting is None:
            setting = drawn if script is None else Setting()
        self._outcome = Outcome(seed, shape, setting)
        self._chance_of = {name: self._drawn() for name in ("world", "trouble", "faults", "lives")}
        self._began_s = 0.0

    async def play(self) -> Outcome:
        """Play the run and judge it."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_loose_end)
        journal = self._outcome.journal = Journal(loop.time)
        async with self._venue.opened(journal, self._outcome.setting) as opened:
            instances = self._instances(opened.port, journal, opened.holder)
            opened.listen(instances)
            names = sorted({one.scheduler_name for one in instances})
            journal.mark("BEGIN", schedulers=names, within_s=self._pace.settle_s)
            stage = Stage(opened.server, instances, journal)
            self._began_s = self._outcome.began_s = loop.time()
            world = self._world(
                opened.server.objects,
                self._chance_of["world"],
                self._asked_for(names),
                self._pods,
                is_ranked=self._is_ranked,
            )
            async with asyncio.TaskGroup() as group:
                lives: list[asyncio.Task[None]] = []
                final_state = FinalState(opened.server, instances, frozenset(names), journal)
                async for at_s, happening in self._trouble(world, [one.name for one in instances]):
                    if at_s > 0 and not lives:
                        lives += [group.create_task(one.live(), name=one.name) for one in instances]
                        if self._is_ranked:
                            lives.append(group.create_task(self._refuse_pods(world, stage, journal)))
                    await self._happen(stage, at_s, happening)
                stage.end_faults()
                journal.mark("CALM")
                if self._is_ranked:
                    lives.append(group.create_task(self._end_pods(world, stage)))
                if self._until_s is not None:
                    await self._wait_until(self._until_s)
                else:
                    self._outcome.settled_s = await final_state.settled(self._pace.settle_s)
                    if not final_state.wrongs:
                        await self._last_events(world, stage, final_state)
                    self._outcome.wrongs += final_state.wrongs
                    self._outcome.n_flushed = final_state.n_flushed
                    self._compare(instances)
                for life in lives:
                    life.cancel()
        self._judge(instances, journal)
        # Pods left over after a crash are a consequence of it.
        self._outcome.wrongs.sort(key=lambda one: one.verdict is not Verdict.CRASH)
        return self._outcome

    def _on_loose_end(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Count an unhandled exception as a bug, unless the server raises it for a broken connection."""
        error = context.get("exception")
        if not isinstance(error, ConnectionError):
            self._outcome.wrongs.append(Wrong(Verdict.CRASH, f"loose end: {context['message']} {error!r}"))

    def _drawn(self) -> random.Random:
        return random.Random(self._chance.getrandbits(64))

    def _asked_for(self, names: list[str]) -> list[str]:
        return names * 3 + ([NAIVE] if self._shape.has_naive else [])

    def _instances(self, port: int, journal: Journal, holder: Callable[[], str]) -> list[Instance]:
        chance = self._chance_of["lives"]
        return [
            Instance(
                name,
                scheduler_name=scheduler,
                elected=elected,
                server_port=port,
                journal=journal,
                chance=random.Random(chance.getrandbits(64)),
                holder=holder,
                election=self._pace.election,
            )
            for name, scheduler, elected in _INSTANCES[self._shape]
        ]

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
        """
        Let kubelets refuse pods whose host port is taken.

        Where two pods have one port, Kubernetes' dry run takes it for free once one of them leaves, and evicts pods for
        others that fit no better then.
        """
        n_seen = 0
        while True:
            await asyncio.sleep(_KUBELET_S)
            if n_seen != (n_seen := len(journal.written)):
                for event in world.refuse_pods():
                    await stage.perform(event)

    async def _end_pods(self, world: World, stage: Stage) -> None:
        """Let pods end within a second, as a quick kubelet does, once the faults are over."""
        while True:
            await asyncio.sleep(1.0)
            for event in world.end_all_terminating():
                await stage.perform(event)

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
        generator = FaultGenerator(instances, self._chance_of["faults"], evicts=self._is_ranked)
        calm = chance.choice((0.2, 0.5, 1.0))
        mended = chance.random() < _MENDED
        for one in world.found():
            yield 0.0, one
        at_s = 0.0
        pace = chance.choice((3.0, 4.0, 6.0))
        while (at_s := round(at_s + chance.expovariate(pace) + 0.001, 3)) < self._pace.trouble_s:
            await self._wait_until(at_s)
            for event in world.draw():
                yield at_s, event
            if self._shape.has_naive and chance.random() < 0.5:
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

    def _compare(self, instances: list[Instance]) -> None:
        for one in instances:
            self._outcome.wrongs += [Wrong(Verdict.CRASH, text) for text in one.crashes]
            self._outcome.n_lives += one.n_lives
            self._outcome.wrongs += miscounts(one)

    def _judge(self, instances: list[Instance], journal: Journal) -> None:
        group_of = {one.name: one.scheduler_name for one in instances}
        broken = check(journal.history_lines())
        self._outcome.wrongs += [Wrong(Verdict.HISTORY, text) for text in broken]
        judge = Judge(journal, group_of, elected=[one.name for one in instances if one.elected])
        self._outcome.wrongs += judge.wrongs()
        assert journal.sent or not judge.n_binds, "nobody heard the binds that were sent"
        self._outcome.n_binds, self._outcome.n_raced = judge.n_binds, judge.n_raced
        self._outcome.window_s = judge.window_s
        evictions = EvictionJudge(journal, group_of)
        self._outcome.wrongs += evictions.wrongs()
        self._outcome.n_evictions = evictions.n_evictions

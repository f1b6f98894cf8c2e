"""One run: a cluster, its schedulers, half a minute of misfortune, then peace, then the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any
from unittest import mock
from uuid import UUID

from scheduler.devcluster import store as store_module
from tests.chaos.caches import POLL_S, Peace, miscounts
from tests.chaos.faulting import Misfortunes
from tests.chaos.happenings import Happening, Script, literal
from tests.chaos.instance import Instance
from tests.chaos.journal import Journal
from tests.chaos.judging import Judge
from tests.chaos.shapes import NAIVE
from tests.chaos.stage import Stage
from tests.chaos.venue import EMBEDDED, Setting, Venue
from tests.chaos.verdicts import Verdict, Wrong
from tests.chaos.virtual import run_virtually
from tests.chaos.world import World

OURS, THEIRS = "ours", "theirs"
#: In this part of the runs all nodes return when the faults end.
_MENDED = 0.5
#: Complaints of a run that are told.
_MAX_TOLD = 8


class Shape(Enum):
    """Who schedules: one; two, of whom the holder of the Lease; two with names of their own, and a naive third."""

    ALONE = "alone"
    ELECTED = "elected"
    RIVALS = "rivals"


_INSTANCES = {
    Shape.ALONE: (("one", OURS, False),),
    Shape.ELECTED: (("first", OURS, True), ("second", OURS, True)),
    Shape.RIVALS: (("left", OURS, False), ("right", THEIRS, False)),
}


@dataclass
class Outcome:
    """What became of a run; it is good where `wrongs` is empty."""

    seed: int
    shape: Shape
    setting: Setting
    #: What happened, so that it can happen again.
    script: list[tuple[float, Happening]] = field(default_factory=list)
    wrongs: list[Wrong] = field(default_factory=list)
    n_binds: int = 0
    n_raced: int = 0
    window_s: float = 0.0
    #: Seconds from the end of the faults until nothing was left to place.
    settled_s: float = 0.0
    n_lives: int = 0
    #: Of the clock of all moments in `journal` and `wrongs`.
    began_s: float = 0.0
    journal: Journal | None = None

    def story(self, last: int = 60) -> str:
        """What went wrong and what happened before, for a person."""
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
        """The run as it stands among the regressions."""
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


def run(seed: int, shape: Shape) -> Outcome:
    """The run of a seed, on the embedded cluster and a clock of its own."""
    with repeatable(seed):
        return run_virtually(Run(seed, shape).play())


async def run_at(venue: Venue, seed: int, shape: Shape) -> Outcome:
    """The run of a seed where time is real, and no run is like another."""
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
    The same with what is written in `script` and nothing else; the seed still draws ties, jitter and uids.

    Where `until_s` is given it ends there, without peace, and is judged by what was written until then.
    """
    with repeatable(seed):
        run = Run(seed, shape, script=script, setting=setting, until_s=until_s)
        return run_virtually(run.play())


@contextlib.contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Chance and uids come from the seed."""
    uids = random.Random(f"uids {seed}")
    random.seed(seed)
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
    with mock.patch.object(store_module, "uuid4", lambda: UUID(int=uids.getrandbits(128), version=4)):
        yield


class Run:
    """
    A run to be played once.

    Args:
        seed: draws everything, or what `script` leaves open.
        shape: who schedules.
        script: what happens; None draws it.
        setting: what the cluster is like; None draws it, or is the usual one with a script.
        venue: where it is played.
        until_s: when it ends, if not in peace.
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
    ) -> None:
        self._shape, self._script, self._venue = shape, script, venue
        pace = venue.pace
        self._until_s = until_s
        self._pace = pace if until_s is None else replace(pace, trouble_s=min(until_s, pace.trouble_s))
        self._chance = random.Random(f"{seed} {shape.value}")
        drawn = Setting.drawn(self._drawn())
        if setting is None:
            setting = drawn if script is None else Setting()
        self._outcome = Outcome(seed, shape, setting)
        self._chance_of = {name: self._drawn() for name in ("world", "trouble", "misfortune", "lives")}
        self._began_s = 0.0

    async def play(self) -> Outcome:
        """Plays it, and judges it."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_loose_end)
        journal = self._outcome.journal = Journal(loop.time)
        async with self._venue.opened(journal, self._outcome.setting) as opened:
            instances = self._instances(opened.port, journal, opened.holder)
            opened.listen(instances)
            names = sorted({one.scheduler_name for one in instances})
            stage = Stage(opened.server, instances, journal)
            self._began_s = self._outcome.began_s = loop.time()
            world = World(opened.server.objects, self._chance_of["world"], self._asked_for(names))
            async with asyncio.TaskGroup() as group:
                lives: list[asyncio.Task[None]] = []
                peace = Peace(opened.server, instances, frozenset(names), journal)
                async for at_s, happening in self._trouble(world, [one.name for one in instances]):
                    if at_s > 0 and not lives:
                        lives += [group.create_task(one.live(), name=one.name) for one in instances]
                    await self._happen(stage, at_s, happening)
                stage.end_misfortune()
                if self._until_s is not None:
                    await self._wait_until(self._until_s)
                else:
                    self._outcome.settled_s = await peace.settled(self._pace.peace_s)
                    if not peace.wrongs:
                        await self._last_events(world, stage, peace)
                    self._outcome.wrongs += peace.wrongs
                    self._compare(instances)
                for life in lives:
                    life.cancel()
        self._judge(instances, journal)
        # What is left over after a crash is so because of it.
        self._outcome.wrongs.sort(key=lambda one: one.verdict is not Verdict.CRASH)
        return self._outcome

    def _on_loose_end(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception that nobody took is a bug, unless it is the server's about a connection that was broken."""
        error = context.get("exception")
        if not isinstance(error, ConnectionError):
            self._outcome.wrongs.append(Wrong(Verdict.CRASH, f"loose end: {context['message']} {error!r}"))

    def _drawn(self) -> random.Random:
        return random.Random(self._chance.getrandbits(64))

    def _asked_for(self, names: list[str]) -> list[str]:
        return names * 3 + ([NAIVE] if self._shape is Shape.RIVALS else [])

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
        """What happens, each at its moment, until the trouble is over."""
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

    async def _last_events(self, world: World, stage: Stage, peace: Peace) -> None:
        """One thing at a time, each of which must have its consequences before the next."""
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
                await peace.settled(self._pace.last_s - POLL_S)

    async def _drawn_happenings(
        self, world: World, instances: list[str]
    ) -> AsyncIterator[tuple[float, Happening]]:
        """Users and misfortune act, each at its own pace."""
        chance = self._chance_of["trouble"]
        misfortunes = Misfortunes(instances, self._chance_of["misfortune"])
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
            if self._shape is Shape.RIVALS and chance.random() < 0.5:
                for event in world.draw_stranger():
                    yield at_s, event
            if chance.random() < calm * 0.5:
                for misfortune in misfortunes.draw():
                    yield at_s, misfortune
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
        judge = Judge(journal, group_of, elected=[one.name for one in instances if one.elected])
        self._outcome.wrongs += judge.wrongs()
        assert journal.sent or not judge.n_binds, "nobody heard the binds that were sent"
        self._outcome.n_binds, self._outcome.n_raced = judge.n_binds, judge.n_raced
        self._outcome.window_s = judge.window_s

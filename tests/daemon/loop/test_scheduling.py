"""The scheduling loop: when cycles run, when it sleeps, and how it ends. The machine is real, with a tiny cluster."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise

import pytest

from scheduler.daemon.loop.scheduling import SchedulingLoop
from scheduler.daemon.loop.slices import until_settled
from scheduler.daemon.loop.upkeep import disable_full_collections
from scheduler.daemon.writes.inbox import Inbox
from scheduler.engine.model.instructions import Attempted, Bind, EmitEvent, Instruction, PatchCondition
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.engine.model.stimuli import BindDone, BindFailed, NodeSeen, PodGone, PodSeen
from scheduler.engine.state.batches import UNITS_PER_STEP
from tests.proof.chaos.run import virtually
from tests.support.build import container, node
from tests.support.driving import Driver
from tests.support.waiting import Turns, until


class WatchedInbox(Inbox):
    """An inbox that knows whether its reader waits for something to arrive."""

    is_waited = False

    def is_at_rest(self) -> bool:
        return self.is_waited and not self._arrived.is_set()

    async def wait(self, timeout_s: float | None) -> None:
        self.is_waited = True
        try:
            await super().wait(timeout_s)
        finally:
            self.is_waited = False


class Bench:
    """
    A loop over a driver's machine with these pods, and a clock that tests advance.

    `on_asked` is called when it checks readiness.
    """

    def __init__(
        self,
        *pods: str,
        is_ready: bool = True,
        max_binding: int = 10,
        driver: Driver | None = None,
        on_cycle: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.driver = Driver() if driver is None else driver
        #: What passes whenever the loop looks at its clock, and when it checks readiness.
        self.tick_s = self.asked_s = 0.0
        #: The time of day.
        self.epoch_s = 1_700_000_000.0
        self.driver.node("a")
        self.pods = [self.driver.pod(name) for name in pods]
        self.inbox = WatchedInbox()
        #: The instructions so far, and when each was given.
        self.ordered: list[Instruction] = []
        self.at_s: list[float] = []
        self.is_ready = is_ready
        self.on_asked: Callable[[], None] = lambda: None
        self.loop = SchedulingLoop(
            self.driver.machine,
            self.inbox,
            self._execute,
            is_ready=self._asked,
            max_binding=lambda: max_binding,
            clock_s=lambda: self.epoch_s,
            now_s=self._now_s,
            on_handled=lambda _name, _seconds: None,
            on_cycle=on_cycle,
        )

    def _asked(self) -> bool:
        self.driver.now_s += self.asked_s
        self.on_asked()
        return self.is_ready

    def _execute(self, instruction: Instruction) -> None:
        self.ordered.append(instruction)
        self.at_s.append(self.driver.now_s)

    def bound(self) -> list[str]:
        """Return the pods whose binds were ordered."""
        return [one.pod.name for one in self.ordered if isinstance(one, Bind)]

    def _now_s(self) -> float:
        self.driver.now_s += self.tick_s
        return self.driver.now_s

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the loop, and stop it at the end without grace."""
        task = asyncio.create_task(self.loop.run())
        yield
        self.loop.stop(0.0)
        await task

    @asynccontextmanager
    async def stopping(self, grace_s: float) -> AsyncIterator[asyncio.Task[None]]:
        """Run the loop until it waits, and stop it with this grace. After the block it has to end."""
        running = asyncio.create_task(self.loop.run())
        await self.turns()
        self.loop.stop(grace_s)
        yield running
        await asyncio.wait_for(running, 10.0)

    async def turns(self) -> None:
        """Let the loop run until it waits."""
        async with asyncio.timeout(10.0):
            while not self.inbox.is_at_rest():  # noqa: ASYNC110 - stops at the first turn at which it holds
                await asyncio.sleep(0)

    async def until_bound(self, n: int) -> None:
        """Let the loop run until it has ordered so many binds, and no further."""
        async with asyncio.timeout(10.0):
            while len(self.bound()) < n:  # noqa: ASYNC110 - stops at the first turn at which it holds
                await asyncio.sleep(0)


@pytest.mark.parametrize("nudges", [True, False])
@virtually
async def test_no_cycle_runs_before_the_caches_are_synced(nudges: bool) -> None:
    """Stimuli are handled, pods wait. A nudge starts the cycles; a Lease that was renewed late does not nudge."""
    bench = Bench("p", is_ready=False)
    async with bench.running():
        await bench.turns()
        assert bench.bound() == []
        bench.is_ready = True
        if nudges:
            bench.inbox.nudge()
            await bench.turns()
        else:
            await bench.until_bound(1)
        assert bench.bound() == ["p"]


async def test_decisions_have_the_time_of_day_after_the_clock_was_set() -> None:
    """By which a driver's time to make devices ready is over; the monotonic clock goes on."""
    bench = Bench()
    async with bench.running():
        for number, jump_s in enumerate((0, -3600, 3600)):
            bench.epoch_s = 1_700_000_000.0 + jump_s
            bench.driver.pod(f"p{number}")
            bench.inbox.nudge()
            await bench.until_bound(number + 1)
            assert bench.driver.machine.state.devices.epoch_s == bench.epoch_s


async def test_binds_in_flight_are_bounded() -> None:
    bench = Bench("a", "b", "c", max_binding=2)
    async with bench.running():
        await bench.turns()
        assert bench.bound() == ["a", "b"]
        bench.inbox.put_now(BindDone(bench.pods[0].uid))
        await bench.turns()
        assert bench.bound() == ["a", "b", "c"]


@pytest.mark.parametrize(("namespace_share", "is_behind"), [(0.05, True), (0.0, False)])
async def test_what_a_namespace_uses_is_held_against_it(namespace_share: float, is_behind: bool) -> None:
    """Every cycle takes 0.2 s: after a few of them the pods that came first go behind the one that came last."""
    bench = Bench(max_binding=100, driver=Driver(namespace_share=namespace_share))
    for number in range(10):
        bench.driver.pod(f"first-{number}", namespace="many")
    bench.driver.pod("last", namespace="few")
    bench.tick_s = 0.2
    async with bench.running():
        await bench.turns()
        bound = bench.bound()
        assert len(bound) == 11
        assert [name for name in bound if name != "last"] == [f"first-{number}" for number in range(10)]
        assert (bound.index("last") < 5) is is_behind
        assert bound[0] == "first-0"


async def test_a_sweep_goes_on_until_it_has_ended() -> None:
    """Thousands of label sets are looked at in pieces, so that pods between them do not wait."""
    bench = Bench()
    label_sets = bench.driver.state.label_sets
    for number in range(1300):
        label_sets.of("default", {"job": str(number)})
    async with bench.running():
        await bench.turns()
        for _ in range(3):
            bench.driver.now_s += 60.0
            bench.inbox.nudge()
            await bench.turns()
            while bench.driver.machine.is_sweeping:
                bench.driver.now_s += 0.05
                bench.inbox.nudge()
                await bench.turns()
        assert len(label_sets) == 0


async def test_a_burst_has_few_cycles_and_other_tasks_run_after_it() -> None:
    bench = Bench(*(f"p{number}" for number in range(40)), max_binding=100)
    async with bench.running():
        n_bound = [0]
        while n_bound[-1] < 40:
            await asyncio.sleep(0)
            n_bound.append(len(bench.bound()))
        assert [b - a for a, b in pairwise(n_bound) if b > a] == [16, 16, 8]


async def test_a_burst_ends_after_milliseconds_however_slow_cycles_are() -> None:
    bench = Bench(*"abcdefgh", max_binding=100)
    bench.asked_s = 0.001
    async with bench.running():
        await asyncio.sleep(0)
        assert 4 <= len(bench.bound()) < len(bench.pods)


async def test_failed_attempts_end_at_once_and_binds_start_after_the_burst() -> None:
    """The duration of an attempt does not include later cycles of its burst."""
    bench = Bench()
    bench.asked_s = 0.001
    for name in "abc":
        bench.driver.pod(name, cpu="64" if name == "b" else "0")
    async with bench.running():
        await bench.turns()
        shown = (Bind, Attempted, EmitEvent, PatchCondition)
        told = [one.pod.name for one in bench.ordered if isinstance(one, shown)]
        assert told == ["b"] * (len(told) - 2) + ["a", "c"]
        (attempt,) = [one for one in bench.ordered if isinstance(one, Attempted)]
        # The cycle begins before the readiness check, and the next one a millisecond later.
        assert bench.at_s[bench.ordered.index(attempt)] == pytest.approx(attempt.started_s + 0.001)


async def test_binds_of_a_burst_start_although_thousands_of_pods_woke_during_it() -> None:
    bench = Bench(*"abc")
    for number in range(1000):
        bench.driver.pod(f"p{number}", cpu="64", priority=1)
    while bench.driver.machine.queue.depths()["active"] > 3:
        bench.driver.cycle()

    def wake_all_behind_the_first() -> None:
        if bench.driver.machine.n_binding == 1 and not bench.driver.machine.has_backlog:
            seen = decode_node(json.dumps(node("larger", allocatable={"cpu": "65"})).encode())
            # Not by the driver, which would finish the backlog.
            bench.driver.machine.handle(NodeSeen(seen), bench.driver.now_s)

    bench.on_asked = wake_all_behind_the_first
    async with bench.running():
        await asyncio.sleep(0)
        assert bench.driver.machine.has_backlog
        assert bench.bound() == ["a"]


async def test_a_burst_ends_when_the_loop_is_not_ready() -> None:
    """For example because the Lease ended."""
    bench = Bench(*"abc", max_binding=100)

    def lose_the_lease_after_one() -> None:
        bench.is_ready = bench.driver.machine.n_binding < 1

    bench.on_asked = lose_the_lease_after_one
    async with bench.running():
        await bench.turns()
        assert bench.bound() == ["a"]


async def test_stop_waits_for_the_answers_and_no_longer() -> None:
    """No cycle begins; the loop ends with the last answer, once the watch has shown what was bound."""
    bench = Bench("a", "b", "c", max_binding=2)
    async with bench.stopping(1000.0) as running:
        bench.inbox.put_now(BindDone(bench.pods[0].uid))
        bench.inbox.put_now(PodSeen(replace(bench.pods[0], node_name="a")))
        await bench.turns()
        assert not running.done()
        bench.inbox.put_now(BindFailed(bench.pods[1].uid, "no"))
    assert bench.bound() == ["a", "b"]


@pytest.mark.parametrize("is_shown", [True, False])
async def test_stop_waits_a_moment_for_the_watch_to_show_the_binds(is_shown: bool) -> None:
    """A leader whose watch has shown every bind can hand over; one with a late watch ends all the same."""
    bench = Bench("p")
    async with bench.stopping(1000.0) as running:
        bench.inbox.put_now(BindDone(bench.pods[0].uid))
        await bench.turns()
        assert not running.done()
        if is_shown:
            bench.inbox.put_now(PodSeen(replace(bench.pods[0], node_name="a")))
        else:
            bench.driver.now_s += 0.5
            bench.inbox.nudge()
    assert bench.driver.machine.n_unconfirmed == (0 if is_shown else 1)


async def test_stop_gives_up_on_answers_after_the_grace() -> None:
    bench = Bench("p")
    async with bench.stopping(5.0) as running:
        await bench.turns()
        assert not running.done()
        bench.driver.now_s += 5.0
        bench.inbox.nudge()
    assert bench.driver.machine.n_binding == 1


async def test_other_tasks_run_during_a_flood_of_stimuli() -> None:
    bench = Bench()
    await bench.inbox.put(PodGone(f"uid-{number}") for number in range(1000))
    async with bench.running():
        lengths: set[int] = set()
        while len(bench.inbox):
            lengths.add(len(bench.inbox))
            await asyncio.sleep(0)
        assert len(lengths) >= 10


async def test_a_loop_that_misses_its_wake_up_is_stalled() -> None:
    bench = Bench("p", is_ready=False)
    async with bench.running():
        await bench.turns()
        bench.driver.now_s += 1000.0
        assert not bench.loop.is_stalled(180.0), "nothing can be tried yet"
        bench.is_ready = True
        assert bench.loop.is_stalled(180.0)
        bench.inbox.nudge()
        await bench.turns()
        assert not bench.loop.is_stalled(180.0)


async def test_other_tasks_run_while_an_event_wakes_thousands_of_pods() -> None:
    """No cycle begins before all of them are awake: the last one has the highest priority."""
    bench = Bench(max_binding=1)
    for number in range(2000):
        large = container(requests={"cpu": "64"})
        bench.driver.pod(f"p{number}", containers=[large], priority=number // 1999)
    while bench.driver.machine.has_work():
        bench.driver.cycle()
    bench.driver.now_s += 60.0
    async with bench.running():
        await bench.turns()
        big = decode_node(json.dumps(node("big", allocatable={"cpu": "64"})).encode())
        await bench.inbox.put([NodeSeen(big), PodGone("nobody")])
        awake: list[int] = []
        while not bench.bound():
            awake.append(bench.driver.machine.queue.depths()["active"])
            await asyncio.sleep(0)
        steps = sorted(set(awake))
        assert len(steps) >= 8
        assert max(after - before for before, after in pairwise(steps)) <= UNITS_PER_STEP
        assert bench.bound() == ["p1999"]


async def test_a_slice_ends_after_milliseconds_however_slow_stimuli_are() -> None:
    """Stimuli of 1 ms each are handled four at a time, not a hundred."""
    bench = Bench()
    gone: list[str] = []

    def handle(name: str, _seconds: float) -> None:
        gone.append(name)
        bench.driver.now_s += 0.001

    bench.loop._on_handled = handle
    await bench.inbox.put(PodGone(f"uid-{number}") for number in range(50))
    async with bench.running():
        await asyncio.sleep(0)
        assert 1 <= len(gone) <= 6


async def test_retried_pods_leave_few_objects_for_one_collection() -> None:
    """New objects replace old ones, so that the interpreter's own threshold would not be reached."""
    bench = Bench()
    bench.on_asked = bench.ordered.clear
    for number in range(2500):
        bench.driver.pod(f"p{number}", cpu="64")
    while bench.driver.machine.has_work():
        bench.driver.cycle()
    bench.driver.now_s += 60.0
    bench.driver.node("no larger")
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    young, middle = [0], [0]

    def note(phase: str, _: object) -> None:
        if phase == "start":
            young.append(len(gc.get_objects(generation=0)))
            middle.append(len(gc.get_objects(generation=1)))

    disable_full_collections()
    gc.callbacks.append(note)
    async with bench.running():
        try:
            big = decode_node(json.dumps(node("big", allocatable={"cpu": "65"})).encode())
            await bench.inbox.put([NodeSeen(big)])
            await until(lambda: _is_idle(bench), what="every pod was tried again", timeout_s=30.0)
        finally:
            gc.callbacks.remove(note)
            gc.unfreeze()
            gc.set_threshold(*thresholds)
        assert bench.driver.machine.n_binding == 1
        assert max(young) < 2_500
        assert max(middle) < 5_000


async def _is_idle(bench: Bench) -> bool:
    return bench.driver.machine.n_binding > 0 and not bench.driver.machine.has_work()


def _group(bench: Bench, n_members: int) -> None:
    bench.driver.node("large", allocatable={"cpu": "1000", "pods": "1000"})
    for number in range(n_members):
        bench.driver.pod(f"member-{number}", labels={GROUP: "g", MIN_COUNT: str(n_members)})


async def test_others_run_during_the_cycle_of_a_group_and_see_all_of_its_members_on_nodes_or_none() -> None:
    bench = Bench(max_binding=1000)
    bench.tick_s = 0.001
    _group(bench, 100)
    n_assumed = set[int]()
    async with bench.running(), Turns() as turns:
        while len(bench.bound()) < 100:
            await until_settled(bench.driver.state)
            n_assumed.add(bench.driver.state.n_assumed)
            bench.driver.audit()
            await asyncio.sleep(0)
    assert turns.n > 20
    assert n_assumed == {0, 100}


async def test_stop_during_the_cycle_of_a_group_binds_all_of_its_members() -> None:
    bench = Bench(max_binding=1000)
    bench.tick_s = 0.001
    _group(bench, 100)
    running = asyncio.create_task(bench.loop.run())
    await bench.until_bound(10)
    assert len(bench.bound()) < 100
    bench.loop.stop(1000.0)
    await bench.until_bound(100)
    for bind in bench.ordered:
        if isinstance(bind, Bind):
            bench.inbox.put_now(BindDone(bind.pod.uid))
            bench.inbox.put_now(PodSeen(replace(bind.pod, node_name=bind.node_name)))
    await asyncio.wait_for(running, 10.0)


async def test_the_cycle_of_a_group_counts_once_and_as_a_whole() -> None:
    """It has a member in each piece at most, which takes a millisecond."""
    cycles_s: list[float] = []
    bench = Bench(max_binding=1000, on_cycle=cycles_s.append)
    bench.tick_s = 0.001
    _group(bench, 100)
    async with bench.running():
        await bench.until_bound(100)
        await bench.turns()
    (cycle_s,) = cycles_s
    assert cycle_s > 0.05

"""One scheduler in the run: the product's own objects on a connection that can fail; it can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import logging
import random
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.credentials import load_credentials
from scheduler.daemon.kube.requests import Request
from scheduler.daemon.kube.transport import Response
from scheduler.daemon.loop.app import Options, Scheduler
from scheduler.daemon.loop.connection import Connection
from scheduler.daemon.loop.leader_election import LeaderElector
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.metrics.metrics import Metrics
from scheduler.daemon.port.status_server import ServingOptions
from scheduler.daemon.settings.loading import default_settings
from scheduler.daemon.settings.resolved import LeaderElection
from scheduler.engine.core.machine import Machine
from scheduler.engine.model.instructions import Bind, EvictVictim, Instruction, WriteReservation
from scheduler.engine.model.stimuli import (
    BindDone,
    CycleDue,
    EvictionEnded,
    NodeGone,
    PodSeen,
    ReservationWritten,
    Stimulus,
)
from tests.proof.chaos.journal import Eviction, Journal, Sent, Step
from tests.proof.chaos.proxy import Wire
from tests.proof.chaos.told import Told

#: So long that no run reaches the flush of unschedulable pods.
_NEVER_FLUSHED_S = 1e6
#: The time of day at the zero of the loop's clock.
DAY_S = 1.8e9
#: The schedulerName of most runs.
OURS = "ours"
ELECTION = LeaderElection(True, 15.0, 10.0, 2.0, resource_name="chaos")

#: Points at which an instance can be killed, all between the pop of a pod and the confirmation of its bind.
KILL_POINTS = ("decided", "arrived", "written", "answered", "confirmed")
#: Those in the middle of an eviction.
EVICTION_KILL_POINTS = (
    "eviction ordered", "status arrived", "deletion arrived", "deletion written", "deletion answered", "victim leaves",
)  # fmt: skip
#: Those between Reserve and Bind of a pod for which volumes or claims of devices are written.
RESERVATION_KILL_POINTS = ("reserved", "reservation arrived", "reservation written", "reservation answered")


@dataclass
class Life:
    """One life of an instance: a process, in effect."""

    number: int
    scheduler: Scheduler
    task: asyncio.Task[int]
    log: io.StringIO


class Instance:
    """
    A scheduler that is restarted whenever it ends, as a Deployment's pod is.

    Args:
        name: the beginning of its User-Agent.
        elected: whether it uses leader election.
        chance: seeds its lives; by default drawn from its name.
        holder: returns the holder of the Lease.
        status_port: the port of its probes; 0 for none.
    """

    def __init__(
        self,
        name: str,
        *,
        server_port: int,
        journal: Journal,
        scheduler_name: str = OURS,
        elected: bool = False,
        chance: random.Random | None = None,
        holder: Callable[[], str] = str,
        election: LeaderElection = ELECTION,
        status_port: int = 0,
    ) -> None:
        self.name, self.scheduler_name, self.elected = name, scheduler_name, elected
        self.wire = Wire(server_port)
        self.n_lives = 0
        self.life: Life | None = None
        #: Offsets of its wall clock and of its monotonic clock, of which the latter only grows.
        self.wall_offset_s = 0.0
        self.leapt_s = 0.0
        #: Kill point and number of passes before; None if it is not to be killed.
        self.doom: tuple[str, int] | None = None
        self.restart_after_s = 1.0
        self.crashes: list[str] = []
        self._journal, self._chance = journal, chance or random.Random(name)
        self._holder, self._election, self._status_port = holder, election, status_port

    @property
    def identity(self) -> str:
        """Return the User-Agent and Lease identity of its current life."""
        return f"{self.name}-{self.n_lives}"

    def leap(self, by_s: float) -> None:
        """
        Let so much time pass at once.

        An instance that was suspended while it waited for a Lease finds that the holder has renewed it. Here only its
        clock leaps: a leap beyond the margin between the holder's deadline and the end of the Lease would take the
        Lease from a holder that cannot know yet.
        """
        if self.elected and self._holder() not in ("", self.identity):
            by_s = min(by_s, self._election.lease_duration_s - self._election.renew_deadline_s)
        self.leapt_s += by_s

    @property
    def machine(self) -> Machine | None:
        """Return the machine of its current life."""
        return self.life.scheduler._machine if self.life is not None else None

    @property
    def holds_room(self) -> bool:
        """Whether it keeps room for a group that has waited for long, which other pods do not get meanwhile."""
        return self.machine is not None and self.machine._group_lives.nominations.next_wake_s() is not None

    def flush(self) -> None:
        """Let it try all its unschedulable pods, as it does with pods that are unschedulable for 5 minutes."""
        if self.life is None:
            return
        scheduler = self.life.scheduler
        queue, now_s = scheduler._machine.queue, asyncio.get_running_loop().time() + self.leapt_s
        queue._max_in_unschedulable_s, queue._last_flush_tick = 0.0, -1
        queue.flush(now_s)
        queue._backlog.finish()
        queue._max_in_unschedulable_s = _NEVER_FLUSHED_S
        scheduler._inbox.nudge()

    async def live(self) -> None:
        """Run lives one after the other until cancelled."""
        while True:
            await self.wire.start()
            try:
                await self._live_once()
            finally:
                await self.wire.stop()
            await asyncio.sleep(self.restart_after_s)

    async def _live_once(self) -> None:
        self.n_lives += 1
        loop = asyncio.get_running_loop()

        def now_s() -> float:
            return loop.time() + self.leapt_s

        def clock_s() -> float:
            return DAY_S + loop.time() + self.wall_offset_s

        stream = io.StringIO()
        logger = logging.Logger(self.identity, level=logging.DEBUG)
        logger.addHandler(logging.StreamHandler(stream))
        log = Logger(logger)
        credentials = await load_credentials(
            kubeconfig=None, master=f"http://127.0.0.1:{self.wire.port}", environ={"HOME": "/nonexistent"}
        )
        metrics = Metrics(version="chaos")
        settings = default_settings()
        profile = replace(settings.profiles[0], scheduler_name=self.scheduler_name)
        options = Options(
            settings=replace(settings, profiles=(profile,)),
            election=self._election if self.elected else None,
            master=None,
            serving=ServingOptions("127.0.0.1", self._status_port, insecure_http=True),
            max_in_unschedulable_s=_NEVER_FLUSHED_S,
            seed=self._chance.getrandbits(32),
            verbosity=2,
            log_format="text",
        )
        chance = random.Random(self._chance.getrandbits(32))
        agent = self.identity
        async with contextlib.AsyncExitStack() as stack:
            client = await stack.enter_async_context(KubeClient(credentials, user_agent=agent, now_s=now_s))
            leadership = None
            if self.elected:
                own = await stack.enter_async_context(KubeClient(credentials, user_agent=agent, now_s=now_s))
                leadership = LeaderElector(
                    own, self._election, agent, log=log, clock_s=clock_s, now_s=now_s, jitter=chance.random
                )
            connection = Connection(client, log, elector=leadership)
            scheduler = Scheduler(options, metrics, connection, clock_s=clock_s, now_s=now_s)
            told = Told(self._journal, agent, scheduler._machine)
            self._hear_writes(client, agent, told)
            self._listen(scheduler._machine, agent, told)
            task = asyncio.create_task(scheduler.run(), name=agent)
            self.life = Life(self.n_lives, scheduler, task, stream)
            self._journal.tell(f"{agent} is born")
            try:
                await asyncio.wait({task})
            finally:
                task.cancel()
                (ended,) = await asyncio.gather(task, return_exceptions=True)
                self.life = None
                gc.unfreeze()
        if isinstance(ended, int):
            self._journal.tell(f"{agent} ended with {ended}")
        elif not isinstance(ended, asyncio.CancelledError):
            self.crashes.append("".join(traceback.format_exception(ended)))

    def kill(self) -> None:
        """End its life as SIGKILL does: it sends no further byte and cleans nothing up."""
        self.doom = None
        if self.life is not None:
            self.wire.cut(refuse=True)
            self.life.task.cancel()

    def reach(self, point: str) -> None:
        """Note that the instance passes a kill point."""
        if self.doom is not None and self.doom[0] == point:
            left = self.doom[1] - 1
            self.doom = (point, left)
            if left < 0:
                self._journal.tell(f"{self.identity} dies where a bind was {point}")
                self.kill()

    def _hear_writes(self, client: KubeClient, agent: str, told: Told) -> None:
        """Record every bind and every request of an eviction that it sends in the journal."""
        transport = client._transport
        send = transport.send

        async def listening(request: Request, authorization: str | None, timeout_s: float) -> Response:
            eviction = _eviction(request, agent, told, self._journal)
            if eviction is not None or request.path.endswith("/binding"):
                self._journal.send(Sent(self._journal.now_s(), agent, request.path, self._holder()))
            if eviction is None:
                return await send(request, authorization, timeout_s)
            self._journal.evictions.append(eviction)
            response = await send(request, authorization, timeout_s)
            eviction.code = response.status
            return response

        transport.send = listening  # type: ignore[method-assign]  # an ear, not a replacement

    def _listen(self, machine: Machine, agent: str, told: Told) -> None:
        """Record the machine's decisions in the journal, and note the kill points that it passes."""
        handle: Callable[[Stimulus, float], list[Instruction]] = machine.handle
        step: Callable[[], list[Instruction]] = machine.step
        began_s = 0.0

        def listening(stimulus: Stimulus, now_s: float) -> list[Instruction]:
            nonlocal began_s
            began_s = now_s
            told.hear(stimulus, now_s)
            match stimulus:
                case PodSeen(pod):
                    if pod.node_name and machine.state.is_assumed(pod.uid):
                        self.reach("confirmed")
                    if pod.terminating and pod.is_preempted:
                        self.reach("victim leaves")
                case BindDone():
                    self.reach("answered")
                case ReservationWritten():
                    self.reach("reservation answered")
                case EvictionEnded():
                    self.reach("deletion answered")
                case CycleDue():
                    told.begin_cycle()
            instructions = noted(handle(stimulus, now_s))
            if isinstance(stimulus, NodeGone) and (kept := machine.state.nominated.on(stimulus.name)):
                told_of = f"{agent} keeps {[one.key for one in kept]} for {stimulus.name}, which is gone"
                self._journal.outlived.append((self._journal.now_s(), told_of))
            return instructions

        def going_on() -> list[Instruction]:
            return noted(step())

        def noted(instructions: list[Instruction]) -> list[Instruction]:
            told.note(instructions, began_s)
            for instruction in instructions:
                match instruction:
                    case EvictVictim():
                        self.reach("eviction ordered")
                    case WriteReservation():
                        self.reach("reserved")
                    case Bind():
                        self.reach("decided")
            return instructions

        machine.handle = listening  # type: ignore[method-assign]  # an ear, not a replacement
        machine.step = going_on  # type: ignore[method-assign]


@contextlib.asynccontextmanager
async def living(instances: Sequence[Instance]) -> AsyncIterator[None]:
    """Let the instances live for the duration of the block."""
    lives = [asyncio.create_task(one.live(), name=one.name) for one in instances]
    yield
    for life in lives:
        life.cancel()
    await asyncio.gather(*lives, return_exceptions=True)


def few_instances(port: int, journal: Journal, holder: Callable[[], str], *, elected: bool) -> list[Instance]:
    """Return one instance, or two on one Lease."""
    return [
        Instance(name, elected=elected, server_port=port, journal=journal, holder=holder)
        for name in (("first", "second") if elected else ("one",))
    ]


def _eviction(request: Request, agent: str, told: Told, journal: Journal) -> Eviction | None:
    """Return the record of a request of an eviction; None for any other one."""
    if request.method == "DELETE" and "/pods/" in request.path:
        step, uid = Step.DELETION, msgspec.json.decode(request.body)["preconditions"]["uid"]
    elif request.method == "PATCH" and b'"DisruptionTarget"' in request.body:
        step, uid = Step.CONDITION, msgspec.json.decode(request.body)["metadata"]["uid"]
    else:
        return None
    return Eviction(journal.now_s(), agent, step, uid, told.is_ending(uid), told.view())

"""
Carries out the machine's instructions: each bind, reservation and eviction in a task whose result is a stimulus,
conditions and events queued. Logs the writes that fail.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from typing import Any, Final, assert_never

from scheduler.daemon.kube.event_series import EventKey
from scheduler.daemon.loop.connection import Connection
from scheduler.daemon.loop.slices import until_settled
from scheduler.daemon.metrics.metrics import Metrics
from scheduler.daemon.writes.binder import Binder
from scheduler.daemon.writes.concurrency_limit import BindLimit
from scheduler.daemon.writes.conditions import ConditionWriter
from scheduler.daemon.writes.inbox import Inbox
from scheduler.daemon.writes.recorder import EventRecorder, pod_reference
from scheduler.daemon.writes.reservation_writer import ReservationWriter
from scheduler.daemon.writes.sending import Sender
from scheduler.daemon.writes.victims import VictimEvictor
from scheduler.engine.core.machine import Machine
from scheduler.engine.model.instructions import (
    Attempted,
    Bind,
    ClearNomination,
    DevicesAwaited,
    EmitEvent,
    Evicted,
    EvictVictim,
    GroupAttempted,
    Instruction,
    PatchCondition,
    PatchPodGroup,
    ProceedWithEviction,
    SpareVictim,
    WriteObjects,
    WriteReservation,
)
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import BindDone, BindFailed, EvictionDue, EvictionEnded, VictimFate

#: Evictions at a time, of one request each: enough for a thousand a second where a request takes 15 ms.
MAX_EVICTIONS: Final = 32


class Writers:
    """
    The writers of one scheduler, what executes instructions with them, and the limit on its binds.

    `group` has a task for each bind, reservation and eviction. `leads` returns whether this instance may write.
    `clock_s` is the time since the epoch, `now_s` a monotonic clock.
    """

    def __init__(
        self,
        connection: Connection,
        machine: Machine,
        inbox: Inbox,
        metrics: Metrics,
        group: asyncio.TaskGroup,
        *,
        leads: Callable[[], bool],
        on_attempt: Callable[[Attempted], None],
        on_evicted: Callable[[Pod], None],
        clock_s: Callable[[], float],
        now_s: Callable[[], float],
    ) -> None:
        client, log = connection.client, connection.log
        self._inbox, self._metrics, self._group, self._log = inbox, metrics, group, log
        self._on_attempt, self._on_evicted, self._now_s = on_attempt, on_evicted, now_s
        self._hostname = socket.gethostname()
        self.limit = BindLimit(now_s=now_s)
        self.recorder = EventRecorder(
            client, clock_s=clock_s, now_s=now_s, on_dropped=metrics.events_dropped.add, leads=leads
        )
        sender = Sender(client, may_write=leads, on_throttled=self._on_throttled, now_s=now_s)
        self._binder = Binder(
            sender,
            on_answer=self.limit.on_answer,
            watched_node=machine.observed_node_name,
            on_unreadable=self._on_unreadable_bind,
        )
        self._reservations = ReservationWriter(
            sender, clock_s=clock_s, on_claim_created=metrics.claim_creations.add
        )

        async def put(due: EvictionDue) -> list[Instruction]:
            await until_settled(machine.state)
            return machine.handle(due, now_s())

        self._victims = VictimEvictor(sender, clock_s=clock_s, put=put)
        #: Evictions that wait: for the most important pod first, then as they were decided. So the first of many
        #: preemptors gets its place early, and its bind does not wait behind the evictions of all others.
        self._evictions: list[tuple[int, int, int, EvictVictim]] = []
        self._n_asked = self._n_evicting = 0
        self._conditions = ConditionWriter(sender, clock_s=clock_s, log=log, is_ending=machine.is_ending)
        #: Binds, writes of reservations and evictions in flight, and the pod of each.
        self._in_flight: dict[asyncio.Task[None], str] = {}

    def start(self, start: Callable[[str, Coroutine[Any, Any, None]], None]) -> None:
        """Start the tasks of the writers that have a queue."""
        start("events", self.recorder.run())
        start("conditions", self._conditions.run())

    def execute(self, instruction: Instruction) -> None:
        """Start the instruction; never blocks."""
        match instruction:
            case Bind():
                self._start("bind", self._bind(instruction), instruction.pod.key)
            case WriteReservation():
                if instruction.nominates:
                    self._conditions.write(instruction)
                self._start("reservation", self._reserve(instruction), instruction.pod.key)
            case WriteObjects():
                self._start("writes", self._write_objects(instruction), instruction.pod.key)
            case EvictVictim():
                self._n_asked += 1
                rank = (-instruction.preemptor.priority, instruction.number, self._n_asked)
                heappush(self._evictions, (*rank, instruction))
                self._start_evictions()
            case ProceedWithEviction() | SpareVictim():
                # The evictor puts EvictionDue to the machine itself, right before it sends, and has the answer.
                pass
            case PatchCondition() | ClearNomination() | PatchPodGroup():
                self._conditions.write(instruction)
            case EmitEvent():
                self._emit(instruction)
            case Attempted():
                self._on_attempt(instruction)
            case Evicted(pod):
                self._on_evicted(pod)
            case GroupAttempted():
                self._metrics.on_group_attempt(instruction, self._now_s())
            case DevicesAwaited():
                self._metrics.on_devices_awaited(instruction)
            case _:
                assert_never(instruction)

    def abandon(self) -> list[str]:
        """Cancel the writes in flight and return their pods. The next process reads what was written."""
        self._evictions.clear()
        for task in self._in_flight:
            task.cancel()
        return list(self._in_flight.values())

    def _start(self, what: str, write: Coroutine[Any, Any, None], pod: str) -> None:
        task = self._group.create_task(write, name=f"{what} {pod}")
        self._in_flight[task] = pod
        self.recorder.defer_to_binds()
        task.add_done_callback(self._end_bind)

    def _end_bind(self, task: asyncio.Task[None]) -> None:
        del self._in_flight[task]
        if not self._in_flight:
            self.recorder.resume()

    async def _bind(self, instruction: Bind) -> None:
        pod = instruction.pod
        await self._conditions.cancel(pod.uid)
        problem = await self._binder.bind(instruction)
        self._inbox.put_now(BindFailed(pod.uid, problem) if problem else BindDone(pod.uid))

    async def _reserve(self, instruction: WriteReservation) -> None:
        if instruction.nominates:
            # First, so that the room of what is written is kept also if this process ends in between.
            await self._conditions.hasten(instruction.pod.uid)
        self._inbox.put_now(await self._reservations.write(instruction))

    async def _write_objects(self, instruction: WriteObjects) -> None:
        text = "Failed to release or deallocate a claim of a pod"
        for problem in await self._reservations.write_all(instruction):
            self._log.error(text, pod=instruction.pod.key, err=problem)

    def _start_evictions(self) -> None:
        while self._evictions and self._n_evicting < MAX_EVICTIONS:
            *_, instruction = heappop(self._evictions)
            self._n_evicting += 1
            self._start("eviction", self._evict(instruction), instruction.victim.key)

    async def _evict(self, instruction: EvictVictim) -> None:
        fate, problem = await self._victims.evict(instruction)
        self._n_evicting -= 1
        self._start_evictions()
        preemptor, victim = instruction.preemptor, instruction.victim
        if fate is VictimFate.DELETED:
            # In upstream's words (framework/preemption/executor.go, kubernetes 1.36).
            pods = {"preemptor": preemptor.key, "victim": victim.key}
            self._log.info(2, "Preemptor Pod preempted victim Pod", **pods, node=victim.node_name)
        elif fate is VictimFate.FAILED:
            self._log.error("Failed to evict a pod for one of higher priority", pod=victim.key, err=problem)
        self._inbox.put_now(EvictionEnded(preemptor.uid, victim.uid, fate))

    def _emit(self, instruction: EmitEvent) -> None:
        controller = instruction.reported_by or instruction.pod.scheduler_name
        key = EventKey(
            type=instruction.type,
            action=instruction.action,
            reason=instruction.reason,
            reporting_controller=controller,
            reporting_instance=f"{controller}-{self._hostname}",
            regarding=pod_reference(instruction.pod),
        )
        self.recorder.record(key, instruction.note)

    def _on_throttled(self, pause_s: float) -> None:
        self.recorder.drop_for(pause_s)
        self.limit.on_overload()

    def _on_unreadable_bind(self, pod: str, cause: str) -> None:
        self._metrics.unreadable_binds.add()
        self._log.error("No right to read a pod whose bind was not answered", pod=pod, err=cause)

"""Executes the machine's instructions: each bind in a task whose result is a stimulus, conditions and events queued."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, assert_never

from scheduler.daemon.kube.event_series import EventKey
from scheduler.daemon.writes.binder import Binder, Bound, BoundElsewhere, PodNotFound, WriteFailed
from scheduler.daemon.writes.conditions import ConditionWriter
from scheduler.daemon.writes.eviction_turns import EvictionTurns
from scheduler.daemon.writes.inbox import Inbox
from scheduler.daemon.writes.pod_group_status import PodGroupStatusWriter
from scheduler.daemon.writes.recorder import EventRecorder, pod_reference
from scheduler.daemon.writes.reservation_writer import ReservationWriter
from scheduler.daemon.writes.victims import VictimEvictor
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
from scheduler.engine.model.stimuli import BindDone, BindFailed


class ClusterOutbox:
    """Executes instructions against the API server."""

    def __init__(
        self,
        *,
        binds: asyncio.TaskGroup,
        binder: Binder,
        reservations: ReservationWriter,
        victims: VictimEvictor,
        conditions: ConditionWriter,
        groups: PodGroupStatusWriter,
        recorder: EventRecorder,
        inbox: Inbox,
        hostname: str,
        on_attempt: Callable[[Attempted], None],
        on_evicted: Callable[[Pod], None],
        on_group_attempt: Callable[[GroupAttempted], None] = lambda _: None,
        on_devices_awaited: Callable[[DevicesAwaited], None] = lambda _: None,
        on_write_failed: Callable[[Pod, str], None] = lambda _pod, _problem: None,
    ) -> None:
        self._binds = binds
        self._binder = binder
        self._reservations = reservations
        self._victims = victims
        self._eviction_turns = EvictionTurns()
        self._conditions = conditions
        self._groups = groups
        self._recorder = recorder
        self._inbox = inbox
        self._hostname = hostname
        self._on_attempt = on_attempt
        self._on_evicted = on_evicted
        self._on_group_attempt = on_group_attempt
        self._on_devices_awaited = on_devices_awaited
        self._on_write_failed = on_write_failed
        #: Binds, writes of reservations and evictions in flight, and the pod of each.
        self._in_flight: dict[asyncio.Task[None], str] = {}

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
                self._start("eviction", self._evict(instruction), instruction.victim.key)
            case ProceedWithEviction() | SpareVictim():
                # The evictor puts EvictionDue to the machine itself, right before it sends, and has the answer.
                pass
            case PatchCondition() | ClearNomination():
                self._conditions.write(instruction)
            case PatchPodGroup():
                self._groups.write(instruction)
            case EmitEvent():
                self._emit(instruction)
            case Attempted():
                self._on_attempt(instruction)
            case Evicted(pod):
                self._on_evicted(pod)
            case GroupAttempted():
                self._on_group_attempt(instruction)
            case DevicesAwaited():
                self._on_devices_awaited(instruction)
            case _:
                assert_never(instruction)

    def abandon_binds(self) -> list[str]:
        """Cancel the writes in flight and return their pods, of which the next process reads what was written."""
        for task in self._in_flight:
            task.cancel()
        return list(self._in_flight.values())

    def _start(self, what: str, write: Coroutine[Any, Any, None], pod: str) -> None:
        task = self._binds.create_task(write, name=f"{what} {pod}")
        self._in_flight[task] = pod
        self._recorder.defer_to_binds()
        task.add_done_callback(self._end_bind)

    def _end_bind(self, task: asyncio.Task[None]) -> None:
        del self._in_flight[task]
        if not self._in_flight:
            self._recorder.resume()

    async def _bind(self, instruction: Bind) -> None:
        pod = instruction.pod
        await self._conditions.cancel(pod.uid)
        outcome = await self._binder.bind(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            node_name=instruction.node_name,
            annotations=instruction.annotations,
        )
        match outcome:
            case Bound():
                self._inbox.put_now(BindDone(pod.uid))
            case BoundElsewhere(node_name):
                text = f'pod {pod.name} is already assigned to node "{node_name}"'
                conflict = f'Operation cannot be fulfilled on pods/binding "{pod.name}": {text}'
                self._inbox.put_now(BindFailed(pod.uid, conflict))
            case PodNotFound():
                self._inbox.put_now(BindFailed(pod.uid, f'pods "{pod.name}" not found'))
            case WriteFailed(_, message):
                self._inbox.put_now(BindFailed(pod.uid, message))
            case _:
                assert_never(outcome)

    async def _reserve(self, instruction: WriteReservation) -> None:
        if instruction.nominates:
            # First, so that the room of what is written is kept also if this process ends in between.
            await self._conditions.hasten(instruction.pod.uid)
        self._inbox.put_now(await self._reservations.write(instruction))

    async def _write_objects(self, instruction: WriteObjects) -> None:
        for problem in await self._reservations.write_all(instruction):
            self._on_write_failed(instruction.pod, problem)

    async def _evict(self, instruction: EvictVictim) -> None:
        async with self._eviction_turns.turn(instruction.preemptor.priority, instruction.number):
            ended = await self._victims.evict(instruction)
        self._inbox.put_now(ended)

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
        self._recorder.record(key, instruction.note)

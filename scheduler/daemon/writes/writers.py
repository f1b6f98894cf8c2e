"""Builds what a scheduler writes to the API server with, and logs the writes that fail."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from scheduler.daemon.loop.connection import Connection
from scheduler.daemon.loop.slices import off_trial
from scheduler.daemon.metrics.metrics import Metrics
from scheduler.daemon.writes.binder import Binder
from scheduler.daemon.writes.concurrency_limit import BindLimit
from scheduler.daemon.writes.conditions import ConditionWriter
from scheduler.daemon.writes.inbox import Inbox
from scheduler.daemon.writes.outbox import ClusterOutbox
from scheduler.daemon.writes.pod_group_status import PodGroupStatusWriter
from scheduler.daemon.writes.recorder import EventRecorder
from scheduler.daemon.writes.reservation_writer import ReservationWriter
from scheduler.daemon.writes.victims import VictimEvictor
from scheduler.engine.core.machine import Machine
from scheduler.engine.model.instructions import Attempted, EvictVictim, GroupAttempted, Instruction
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import EvictionDue


class Writers:
    """
    The writers of one scheduler, and the limit on its binds.

    `leads` returns True while this instance may write. `clock_s` is the time since the epoch, `now_s` a monotonic
    clock.
    """

    def __init__(
        self,
        connection: Connection,
        machine: Machine,
        inbox: Inbox,
        metrics: Metrics,
        *,
        leads: Callable[[], bool],
        clock_s: Callable[[], float],
        now_s: Callable[[], float],
    ) -> None:
        client, self._log = connection.client, connection.log
        self._inbox, self._metrics = inbox, metrics
        self.limit = BindLimit(now_s=now_s)
        self.recorder = EventRecorder(
            client, clock_s=clock_s, now_s=now_s, on_dropped=metrics.events_dropped.add, leads=leads
        )
        self._binder = Binder(
            client,
            on_throttled=self._on_throttled,
            on_answer=self.limit.on_answer,
            may_write=leads,
            watched_node=machine.observed_node_name,
            on_unreadable=self._on_unreadable_bind,
            now_s=now_s,
        )
        self._reservations = ReservationWriter(
            client,
            pause=self._binder.pause,
            may_write=leads,
            clock_s=clock_s,
            on_claim_created=metrics.claim_creations.add,
        )

        async def put(due: EvictionDue) -> list[Instruction]:
            await off_trial(machine.state)
            return machine.handle(due, now_s())

        self._victims = VictimEvictor(
            client,
            clock_s=clock_s,
            pause=self._binder.pause,
            put=put,
            may_write=leads,
            on_failed=self._on_eviction_failed,
            on_deleted=self._on_evicted,
        )
        self._conditions = ConditionWriter(
            client,
            clock_s=clock_s,
            log=self._log,
            on_throttled=self._on_throttled,
            may_write=leads,
            is_ending=machine.is_ending,
        )
        self._groups = PodGroupStatusWriter(client, clock_s=clock_s, log=self._log, may_write=leads)

    def start(self, start: Callable[[str, Coroutine[Any, Any, None]], None]) -> None:
        """Start the tasks of the writers that have a queue."""
        start("events", self.recorder.run())
        start("conditions", self._conditions.run())
        start("PodGroup statuses", self._groups.run())

    def new_outbox(
        self,
        group: asyncio.TaskGroup,
        *,
        on_attempt: Callable[[Attempted], None],
        on_evicted: Callable[[Pod], None],
        on_group_attempt: Callable[[GroupAttempted], None],
    ) -> ClusterOutbox:
        """Return what executes instructions with these writers, each bind as a task of the group."""
        return ClusterOutbox(
            binds=group,
            binder=self._binder,
            reservations=self._reservations,
            victims=self._victims,
            conditions=self._conditions,
            groups=self._groups,
            recorder=self.recorder,
            inbox=self._inbox,
            hostname=socket.gethostname(),
            on_attempt=on_attempt,
            on_evicted=on_evicted,
            on_group_attempt=on_group_attempt,
            on_devices_awaited=self._metrics.on_devices_awaited,
            on_write_failed=self._on_write_failed,
        )

    def _on_throttled(self, pause_s: float) -> None:
        self.recorder.drop_for(pause_s)
        self.limit.on_overload()

    def _on_eviction_failed(self, victim: Pod, message: str) -> None:
        self._log.error("Failed to evict a pod for one of higher priority", pod=victim.key, err=message)

    def _on_write_failed(self, pod: Pod, problem: str) -> None:
        self._log.error("Failed to release or deallocate a claim of a pod", pod=pod.key, err=problem)

    def _on_evicted(self, done: EvictVictim) -> None:
        # In upstream's words (framework/preemption/executor.go, kubernetes 1.36).
        self._log.info(
            2,
            "Preemptor Pod preempted victim Pod",
            preemptor=done.preemptor.key,
            victim=done.victim.key,
            node=done.victim.node_name,
        )

    def _on_unreadable_bind(self, pod: str, cause: str) -> None:
        self._metrics.unreadable_binds.add()
        self._log.error("No right to read a pod whose bind was not answered", pod=pod, err=cause)

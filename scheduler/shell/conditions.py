"""
Writes PodScheduled conditions: per pod only the newest, in order, and never after the pod's bind.

A waiting condition is replaced by a newer one of its pod; the queue is bounded by the number of pending pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from scheduler.kube.requests import PodCondition, second_time
from scheduler.model.instructions import PatchCondition
from scheduler.shell.binder import Binder, WriteFailed

#: Conditions written at a time; fewer than binds, which matter more on a busy server.
_WRITERS: Final = 8


class ConditionWriter:
    """A queue of conditions by pod, and the tasks that write them."""

    def __init__(
        self,
        binder: Binder,
        *,
        clock_s: Callable[[], float],
        on_failed: Callable[[PatchCondition, str], None],
    ) -> None:
        self._binder = binder
        self._clock_s = clock_s
        self._on_failed = on_failed
        self._waiting: dict[str, PatchCondition] = {}
        self._in_flight: dict[str, asyncio.Event] = {}
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._in_flight)

    def write(self, order: PatchCondition) -> None:
        """Queue the condition. It is written unless a newer one or a bind of the pod comes first."""
        self._waiting[order.pod.uid] = order
        self._arrived.set()

    async def cancel(self, uid: str) -> None:
        """Drop the pod's waiting condition and wait for the one in flight, so that neither overtakes a later bind."""
        self._waiting.pop(uid, None)
        in_flight = self._in_flight.get(uid)
        if in_flight is not None:
            await in_flight.wait()

    async def run(self) -> None:
        """Write conditions until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(_WRITERS):
                group.create_task(self._work(), name=f"condition writer {number}")

    async def _work(self) -> None:
        while True:
            order = self._pop_next()
            if order is None:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            finished = self._in_flight[order.pod.uid] = asyncio.Event()
            try:
                await self._write(order)
            finally:
                del self._in_flight[order.pod.uid]
                finished.set()
                self._arrived.set()

    def _pop_next(self) -> PatchCondition | None:
        """Remove and return the oldest waiting condition whose pod has none in flight, None if there is none."""
        for uid in self._waiting:
            if uid not in self._in_flight:
                return self._waiting.pop(uid)
        return None

    async def _write(self, order: PatchCondition) -> None:
        pod = order.pod
        previous = pod.scheduled_condition
        is_transition = previous is None or previous.status != "False"
        condition = PodCondition(
            type="PodScheduled",
            status="False",
            reason=order.reason,
            message=order.message,
            last_transition_time=second_time(self._clock_s()) if is_transition else None,
            observed_generation=pod.generation,
        )
        outcome = await self._binder.patch_condition(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            condition=condition,
            nominated_node_name="" if order.clear_nomination else None,
        )
        if isinstance(outcome, WriteFailed):
            self._on_failed(order, outcome.message)

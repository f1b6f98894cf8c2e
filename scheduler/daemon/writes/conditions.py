"""
Writes conditions and nominations of pods without a node: per pod only the newest, in order, and never after its bind.

A waiting condition is replaced by a newer one of its pod; the queue is bounded by the number of pending pods.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeAlias

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.requests import PodCondition, Request, patch_pod_status, second_time
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.writes.binder import requested_pause_s
from scheduler.engine.model.instructions import (
    ClearNomination,
    PatchCondition,
    WriteReservation,
)
from scheduler.errors import ApiError, Conflict, Invalid, NotFound, ServerFault, Throttled, Unreachable

#: Conditions written at a time, and where many wait. On a busy server each that is in flight delays binds, which matter
#: more: beside 100 conditions and events a second, two at a time instead of eight halve p99 of binds.
_WRITERS: Final = 2
_MOST_WRITERS: Final = 8
_MANY: Final = 1000
_TIMEOUT_S: Final = 10.0
#: client-go util/retry, DefaultBackoff (1.36), used by PatchPodStatus.
_MAX_ATTEMPTS: Final = 4
_BACKOFF_S: Final = 0.010
_BACKOFF_FACTOR: Final = 5.0
_BACKOFF_JITTER: Final = 0.1

#: What writes a nomination alone; of a reservation the nomination is all that is written here.
_Nominating: TypeAlias = ClearNomination | WriteReservation


class ConditionWriter:
    """
    A queue of conditions by pod, and the tasks that write them.

    `on_throttled` is called with the seconds of every pause that the server asks for. `may_write` returns True while
    this instance may write. `is_ending` returns whether the pod with a UID is known to end: unlike upstream, nothing is
    written about it then. Failures are logged, unless the pod is gone.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        clock_s: Callable[[], float],
        log: Logger,
        on_throttled: Callable[[float], None] = lambda _: None,
        may_write: Callable[[], bool] = lambda: True,
        is_ending: Callable[[str], bool] = lambda _: False,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._client, self._clock_s = client, clock_s
        self._log, self._on_throttled, self._may_write = log, on_throttled, may_write
        self._is_ending = is_ending
        self._sleep, self._jitter = sleep, jitter
        self._waiting: dict[str, PatchCondition | _Nominating] = {}
        self._in_flight: dict[str, asyncio.Event] = {}
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._in_flight)

    def write(self, instruction: PatchCondition | _Nominating) -> None:
        """
        Queue the condition, or the nomination.

        It is written unless a newer one or a bind of the pod comes first.
        """
        uid = instruction.pod.uid
        waiting = self._waiting.get(uid)
        if isinstance(instruction, _Nominating) and isinstance(waiting, PatchCondition):
            self._waiting[uid] = replace(waiting, nominated_node_name=_nomination(instruction))
        elif isinstance(instruction, PatchCondition) and instruction.nominated_node_name is None:
            # The nomination that the older one would have written is still to be written.
            self._waiting[uid] = replace(instruction, nominated_node_name=_nomination(waiting))
        else:
            self._waiting[uid] = instruction
        self._arrived.set()

    async def hasten(self, uid: str) -> None:
        """Write what waits of the pod before all others, and return once it is written or given up."""
        while (in_flight := self._in_flight.get(uid)) is not None:
            await in_flight.wait()
        if (instruction := self._waiting.pop(uid, None)) is not None:
            await self._write_alone(instruction)

    async def cancel(self, uid: str) -> None:
        """Drop the pod's waiting condition and wait for the one in flight, so that neither overtakes a later bind."""
        self._waiting.pop(uid, None)
        in_flight = self._in_flight.get(uid)
        if in_flight is not None:
            await in_flight.wait()

    async def run(self) -> None:
        """Write conditions until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(_MOST_WRITERS):
                least = 0 if number < _WRITERS else _MANY
                group.create_task(self._work(least), name=f"condition writer {number}")

    async def _work(self, least: int) -> None:
        """Write conditions while more than `least` wait."""
        while True:
            instruction = self._pop_next() if len(self._waiting) > least else None
            if instruction is None:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            await self._write_alone(instruction)

    async def _write_alone(self, instruction: PatchCondition | _Nominating) -> None:
        """Send the patch while no other one of its pod is sent."""
        finished = self._in_flight[instruction.pod.uid] = asyncio.Event()
        try:
            await self._write(instruction)
        finally:
            del self._in_flight[instruction.pod.uid]
            finished.set()
            self._arrived.set()

    def _pop_next(self) -> PatchCondition | _Nominating | None:
        """Remove and return the oldest waiting condition whose pod has none in flight, None if there is none."""
        uid = next((uid for uid in self._waiting if uid not in self._in_flight), None)
        return None if uid is None else self._waiting.pop(uid)

    async def _write(self, instruction: PatchCondition | _Nominating) -> None:
        """
        Send the patch; repeat it as upstream does, and after 429 as client-go's transport does.

        Source: pkg/scheduler/util/utils.go, PatchPodStatus (1.36).
        """
        request = self._request(instruction)
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            if self._is_ending(instruction.pod.uid):
                return
            try:
                await self._client.request(request, timeout_s=_TIMEOUT_S, may_send=self._may_write)
            except ApiError as error:
                if is_pod_gone(error):
                    return
                if attempt == _MAX_ATTEMPTS or not _is_retried(error):
                    pod = instruction.pod.key
                    self._log.error("Failed to write the PodScheduled condition", pod=pod, err=error.message)
                    return
                if isinstance(error, Throttled):
                    self._on_throttled(error.retry_after_s or 0.0)
                backoff_s = _BACKOFF_S * _BACKOFF_FACTOR ** (attempt - 1)
                backoff_s *= 1.0 + _BACKOFF_JITTER * self._jitter()
                await self._sleep(max(backoff_s, requested_pause_s(error, self._jitter())))
            else:
                return

    def _request(self, instruction: PatchCondition | _Nominating) -> Request:
        pod = instruction.pod
        return patch_pod_status(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            condition=None if isinstance(instruction, _Nominating) else self._condition(instruction),
            nominated_node_name=_nomination(instruction),
        )

    def _condition(self, instruction: PatchCondition) -> PodCondition:
        pod = instruction.pod
        previous = pod.scheduled_condition
        is_transition = previous is None or previous.status != "False"
        return PodCondition(
            type="PodScheduled",
            status="False",
            reason=instruction.reason,
            message=instruction.message,
            last_transition_time=second_time(self._clock_s()) if is_transition else None,
            observed_generation=pod.generation,
        )


def _nomination(instruction: PatchCondition | _Nominating | None) -> str | None:
    """Return the nomination that the instruction writes, None if it leaves it."""
    match instruction:
        case None:
            return None
        case ClearNomination():
            return ""
        case WriteReservation():
            return instruction.node_name
        case PatchCondition():
            return instruction.nominated_node_name


def is_pod_gone(error: ApiError) -> bool:
    """Return True if the patched pod does not exist. For another uid the server says that the uid can't be changed."""
    return isinstance(error, NotFound) or (isinstance(error, Invalid) and "metadata.uid" in error.message)


def _is_retried(error: ApiError) -> bool:
    match error:
        case ServerFault(reason="InternalError") | ServerFault(status=503) | Conflict() | Throttled():
            return True
        case Unreachable(reason="ConnectionRefused"):
            return True
    return False

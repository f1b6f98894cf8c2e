"""
Writes conditions and nominations of pods without a node: per pod only the newest, in order, and never after its bind.

Conditions of PodGroups are written beside them. One that fails is not repeated: the next attempt at placing the group
writes again. A group whose condition is True needs no further write. The queue is bounded by the number of pending pods
and their groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Final, TypeAlias

import msgspec

from scheduler.daemon.kube.requests import (
    ConditionPatch,
    Request,
    patch_pod_group_status,
    patch_pod_status,
    second_time,
)
from scheduler.daemon.metrics.logs import Logger
from scheduler.daemon.writes.sending import CONDITION, Sender
from scheduler.engine.model.instructions import (
    ClearNomination,
    PatchCondition,
    PatchPodGroup,
    WriteReservation,
)
from scheduler.engine.model.pod_groups import CONDITION_TYPES
from scheduler.errors import ApiError, Conflict, Invalid, NotFound

#: Conditions written at a time, and where many wait. On a busy server each that is in flight delays binds, which matter
#: more: beside 100 conditions and events a second, two at a time instead of eight halve p99 of binds.
_WRITERS: Final = 2
_MOST_WRITERS: Final = 8
_MANY: Final = 1000

#: What writes a nomination alone; of a reservation the nomination is all that is written here.
_Nominating: TypeAlias = ClearNomination | WriteReservation
_OfPod: TypeAlias = PatchCondition | _Nominating
_Instruction: TypeAlias = _OfPod | PatchPodGroup


class ConditionWriter:
    """
    A queue of conditions by pod or group, and the tasks that write them.

    `is_ending` returns whether the pod with a UID is known to end: unlike upstream, nothing is written about it then.
    Failures are logged, unless the pod or group is gone, or the group has changed.
    """

    def __init__(
        self,
        sender: Sender,
        *,
        clock_s: Callable[[], float],
        log: Logger,
        is_ending: Callable[[str], bool],
    ) -> None:
        self._sender, self._clock_s = sender, clock_s
        self._log, self._is_ending = log, is_ending
        #: By UID of a pod, or by group and type of condition.
        self._waiting: dict[Hashable, _Instruction] = {}
        #: The writes in flight, by the same keys; set at the end of the write.
        self._in_flight: dict[Hashable, asyncio.Event] = {}
        self._arrived = asyncio.Event()

    def write(self, instruction: _Instruction) -> None:
        """Queue the condition, or the nomination. It is written unless a newer one or a bind of the pod comes first."""
        key: Hashable
        if isinstance(instruction, PatchPodGroup):
            key = (instruction.group.key, instruction.condition_type)
        else:
            key = instruction.pod.uid
            waiting = self._waiting.get(key)
            if isinstance(instruction, _Nominating) and isinstance(waiting, PatchCondition):
                instruction = replace(waiting, nominated_node_name=_nomination(instruction))
            elif isinstance(instruction, PatchCondition) and instruction.nominated_node_name is None:
                # The nomination that the older one would have written is still to be written.
                instruction = replace(instruction, nominated_node_name=_nomination(waiting))
        self._waiting[key] = instruction
        self._arrived.set()

    async def hasten(self, uid: str) -> None:
        """Write the pod's waiting condition before all others, and return once it is written or given up."""
        await self._finish(uid)
        if uid in self._waiting:
            await self._write_alone(uid)

    async def cancel(self, uid: str) -> None:
        """Drop the pod's waiting condition and wait for the one in flight, so that neither overtakes a later bind."""
        self._waiting.pop(uid, None)
        await self._finish(uid)

    async def run(self) -> None:
        """Write conditions until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(_MOST_WRITERS):
                least = 0 if number < _WRITERS else _MANY
                group.create_task(self._work(least), name=f"condition writer {number}")

    async def _work(self, least: int) -> None:
        """Write conditions while more than `least` wait, the oldest first."""
        while True:
            free = (key for key in self._waiting if key not in self._in_flight)
            key = next(free, None) if len(self._waiting) > least else None
            if key is None:
                self._arrived.clear()
                await self._arrived.wait()
            else:
                await self._write_alone(key)

    async def _write_alone(self, key: Hashable) -> None:
        """Write the instruction that waits for this key. No other of the key is written meanwhile."""
        finished = self._in_flight[key] = asyncio.Event()
        try:
            await self._write(self._waiting.pop(key))
        finally:
            del self._in_flight[key]
            finished.set()
            self._arrived.set()

    async def _finish(self, key: Hashable) -> None:
        while (in_flight := self._in_flight.get(key)) is not None:
            await in_flight.wait()

    async def _write(self, instruction: _Instruction) -> None:
        """Write the condition or the nomination. Source: pkg/scheduler/util/utils.go, PatchPodStatus (1.36)."""
        if isinstance(instruction, PatchPodGroup):
            await self._write_group(instruction)
            return
        pod, request = instruction.pod, self._request(instruction)

        async def attempt(_number: int) -> None:
            if not self._is_ending(pod.uid):
                await self._sender.request(request)

        error = await self._sender.repeat(CONDITION, attempt)
        if error is not None and not is_pod_gone(error):
            self._log.error("Failed to write the PodScheduled condition", pod=pod.key, err=error.message)

    async def _write_group(self, instruction: PatchPodGroup) -> None:
        try:
            await self._sender.request(_group_request(instruction, self._clock_s()))
        except (NotFound, Conflict):
            return
        except ApiError as error:
            group = instruction.group.key.text
            self._log.error("Failed to write the condition of a PodGroup", group=group, err=error.message)

    def _request(self, instruction: _OfPod) -> Request:
        pod = instruction.pod
        condition: ConditionPatch | None = None
        if isinstance(instruction, PatchCondition):
            previous = pod.scheduled_condition
            is_transition = previous is None or previous.status != "False"
            condition = ConditionPatch(
                type="PodScheduled",
                status="False",
                reason=instruction.reason,
                message=instruction.message,
                last_transition_time=second_time(self._clock_s()) if is_transition else None,
                observed_generation=pod.generation or None,
            )
        nominated = _nomination(instruction)
        return patch_pod_status(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            condition=condition,
            nominated_node_name=nominated,
        )


def _nomination(instruction: _Instruction | None) -> str | None:
    """Return the nomination that the instruction writes, None if it changes none."""
    match instruction:
        case ClearNomination():
            return ""
        case WriteReservation():
            return instruction.node_name
        case PatchCondition():
            return instruction.nominated_node_name
        case _:
            return None


def _group_request(instruction: PatchPodGroup, epoch_s: float) -> Request:
    """Return the request that sets the condition and keeps the others; for the version on which it was decided."""
    group, status = instruction.group, "True" if instruction.is_true else "False"
    before, now = group.condition_of(instruction.condition_type), second_time(epoch_s)
    time: str | None = now
    if before is None:
        kind = instruction.condition_type or CONDITION_TYPES[group.api_version]
    else:
        kind, time = before.type, before.last_transition_time if before.status == status else now
    own = ConditionPatch(
        type=kind,
        status=status,
        reason=instruction.reason,
        message=instruction.message,
        last_transition_time=time,
        observed_generation=group.generation,
    )
    others = (
        msgspec.convert(other, ConditionPatch, from_attributes=True)
        for other in group.conditions
        if other is not before
    )
    return patch_pod_group_status(
        namespace=group.key.namespace,
        name=group.key.name,
        api_version=group.api_version,
        resource_version=group.resource_version,
        conditions=(*others, own),
    )


def is_pod_gone(error: ApiError) -> bool:
    """Return True if the patched pod does not exist. For another uid the server says that the uid can't be changed."""
    return isinstance(error, NotFound) or (isinstance(error, Invalid) and "metadata.uid" in error.message)

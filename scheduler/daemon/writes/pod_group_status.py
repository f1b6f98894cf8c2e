"""
Writes conditions of PodGroups: per group and type only the newest, one at a time.

A write that fails is not repeated: the next attempt at placing the group writes again. A group whose condition is True
needs no further write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.requests import GroupCondition, Request, patch_pod_group_status, second_time
from scheduler.daemon.metrics.logs import Logger
from scheduler.engine.model.instructions import PatchPodGroup
from scheduler.engine.model.pod_groups import CONDITION_TYPES, GroupKey
from scheduler.errors import ApiError, Conflict, NotFound

_TIMEOUT_S: Final = 10.0


class PodGroupStatusWriter:
    """
    A queue of conditions by group, and the task that writes them.

    `may_write` returns True while this instance may write. Failures are logged, unless the group is gone or has
    changed.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        clock_s: Callable[[], float],
        log: Logger,
        may_write: Callable[[], bool],
    ) -> None:
        self._client, self._clock_s = client, clock_s
        self._log, self._may_write = log, may_write
        self._waiting: dict[tuple[GroupKey, str], PatchPodGroup] = {}
        self._arrived = asyncio.Event()

    def write(self, instruction: PatchPodGroup) -> None:
        """Queue the condition in place of an older one of its group."""
        self._waiting[instruction.group.key, instruction.condition_type] = instruction
        self._arrived.set()

    async def run(self) -> None:
        """Write conditions until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._waiting:
                key = next(iter(self._waiting))
                await self._write(self._waiting.pop(key))

    async def _write(self, instruction: PatchPodGroup) -> None:
        try:
            await self._client.request(
                self._request(instruction), timeout_s=_TIMEOUT_S, may_send=self._may_write
            )
        except (NotFound, Conflict):
            return
        except ApiError as error:
            group = instruction.group.key.text
            self._log.error("Failed to write the condition of a PodGroup", group=group, err=error.message)

    def _request(self, instruction: PatchPodGroup) -> Request:
        group, status = instruction.group, "True" if instruction.is_true else "False"
        before = group.condition_of(instruction.condition_type)
        is_transition = before is None or before.status != status
        own = GroupCondition(
            type=instruction.condition_type or CONDITION_TYPES[group.api_version]
            if before is None
            else before.type,
            status=status,
            reason=instruction.reason,
            message=instruction.message,
            last_transition_time=second_time(self._clock_s())
            if before is None or is_transition
            else before.last_transition_time,
            observed_generation=group.generation,
        )
        others = (
            msgspec.convert(other, GroupCondition, from_attributes=True)
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

"""
Writes what is reserved for a pod. Outcomes are values.

Every write names the resourceVersion on which it was decided, so that another scheduler's write is never overwritten.
A write that was given up and takes effect later does no harm: watches will show it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from scheduler.daemon.kube import requests
from scheduler.daemon.kube.requests import Request
from scheduler.daemon.kube.responses import WrittenObject, decode_written
from scheduler.daemon.writes.claim_writer import ClaimWriter
from scheduler.daemon.writes.sending import Doubt, Sender, Write
from scheduler.engine.model.claim_writes import (
    ClaimDeallocation,
    ClaimDeletion,
    ClaimRelease,
    ClaimReservation,
)
from scheduler.engine.model.instructions import WriteObjects, WriteReservation
from scheduler.engine.model.object_writes import NodeSelection, StoredObject, VolumePromise
from scheduler.engine.model.stimuli import ReservationWritten
from scheduler.engine.model.volumes import BOUND_BY_CONTROLLER, SELECTED_NODE
from scheduler.errors import ApiError, Forbidden, Invalid, InvariantViolation, NotFound


class ReservationWriter:
    """
    Writes what is reserved for a pod before its bind: claims and volumes.

    `clock_s`: returns Unix time. `on_claim_created`: `on_created` of `ClaimWriter`.
    """

    def __init__(
        self,
        sender: Sender,
        *,
        clock_s: Callable[[], float] = time.time,
        on_claim_created: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._sender = sender
        self._claims = ClaimWriter(sender, clock_s=clock_s, on_created=on_claim_created)
        #: By UID of a pod: set once the last of its writes is made.
        self._turns: dict[str, asyncio.Event] = {}

    async def write(self, instruction: WriteReservation) -> ReservationWritten:
        """Make the writes in order up to the first that fails, and return their versions."""
        versions: list[str] = []
        objects: list[StoredObject] = []
        problem = ""
        async with self._turn(instruction.pod.uid):
            for write in instruction.writes:
                match write:
                    case ClaimReservation():
                        claim, problem = await self._claims.reserve(write)
                        objects += [] if claim is None else [claim]
                        version = "" if claim is None else claim.resource_version
                    case VolumePromise():
                        version, problem = await self._promise(write)
                    case NodeSelection():
                        version, problem = await self._select(write)
                    case _:
                        raise InvariantViolation(f"no reservation has {write}")
                if problem:
                    break
                versions.append(version)
        uid, number = instruction.pod.uid, instruction.number
        return ReservationWritten(uid, tuple(versions), problem, number, tuple(objects))

    async def write_all(self, instruction: WriteObjects) -> list[str]:
        """Make each of the writes, and return what failed, one line each."""
        problems: list[str] = []
        async with self._turn(instruction.pod.uid):
            for write in instruction.writes:
                match write:
                    case ClaimRelease():
                        problem = await self._claims.release(write)
                    case ClaimDeallocation():
                        problem = await self._claims.deallocate(write)
                    case ClaimDeletion():
                        problem = await self._claims.delete(write, instruction.pod)
                    case _:
                        raise InvariantViolation(f"nothing writes {write} but a reservation")
                if problem:
                    problems.append(f"{write.obj.kind} {write.obj.key}: {problem}")
        return problems

    @asynccontextmanager
    async def _turn(self, uid: str) -> AsyncIterator[None]:
        """Make the writes for a pod wait for each other: a late undo must not undo a newer reservation."""
        before, own = self._turns.get(uid), asyncio.Event()
        self._turns[uid] = own
        try:
            if before is not None:
                await before.wait()
            yield
        finally:
            own.set()
            if self._turns.get(uid) is own:
                del self._turns[uid]

    async def _promise(self, promise: VolumePromise) -> tuple[str, str]:
        """
        Let a volume refer to the claim; return as `_make`.

        Source: component-helpers storage/volume/pv_helpers.go, GetBindVolumeToClaim (kubernetes 1.36).
        """
        volume, claim = promise.obj, promise.claim
        wanted = (claim.namespace, claim.name, claim.uid)
        patch = requests.promise_volume(
            volume.key,
            resource_version=volume.resource_version,
            claim=requests.VolumeClaimRef(*wanted, claim.resource_version),
            # Without it, the PV controller keeps the volume for the claim's name when the claim is gone.
            annotations={} if volume.is_for(claim) else {BOUND_BY_CONTROLLER: "yes"},
        )

        def is_done(found: WrittenObject) -> bool:
            reference = found.spec.claim_ref
            return reference is not None and (reference.namespace, reference.name, reference.uid) == wanted

        return await self._make(patch, requests.get_volume(volume.key), volume.resource_version, is_done)

    async def _select(self, selection: NodeSelection) -> tuple[str, str]:
        """
        Name the selected node in the claim; return as `_make`.

        Source: plugins/volumebinding/binder.go, AssumePodVolumes (kubernetes 1.36).
        """
        claim, node_name = selection.obj, selection.node_name
        patch = requests.annotate_claim(
            claim.namespace,
            claim.name,
            resource_version=claim.resource_version,
            annotations={SELECTED_NODE: node_name},
        )

        def is_done(found: WrittenObject) -> bool:
            selected = (found.metadata.annotations or {}).get(SELECTED_NODE)
            return found.metadata.uid == claim.uid and selected == node_name

        read = requests.get_claim(claim.namespace, claim.name)
        return await self._make(patch, read, claim.resource_version, is_done)

    async def _make(
        self, patch: Request, reading: Request, version_before: str, is_done: Callable[[WrittenObject], bool]
    ) -> tuple[str, str]:
        """
        Return the written version, '' if the write is given up, and why it is.

        `is_done`: whether the object, as `reading` reads it, was written.
        """

        async def read(doubt: Doubt) -> str | ApiError | None:
            try:
                stored = _decode(await self._sender.read(reading))
            except NotFound as gone:
                return gone
            except (Forbidden, Invalid):
                return doubt.error
            version = stored.metadata.resource_version
            if is_done(stored):
                return version
            return None if version == version_before else doubt.error

        outcome = await self._sender.send(Write(patch, _version, read))
        return ("", outcome.message) if isinstance(outcome, ApiError) else (outcome, "")


def _decode(body: bytes) -> WrittenObject:
    return decode_written(body, "a PersistentVolume or a claim")


def _version(body: bytes) -> str:
    return _decode(body).metadata.resource_version

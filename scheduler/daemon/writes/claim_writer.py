"""
Writes ResourceClaims for a pod. Outcomes are values, with upstream's words.

    (create) --> [finalizer] --> status --written--> (pod status)
                     ^   `- 409, lost, 5xx, 429 - GET --- reserved as wanted --> written
                     `-----------------------------'  `-- gone, replaced, allocated elsewhere, deallocated --> failed

Every try after the first begins with a read, so that a write whose answer was lost is not made twice. So does the first
try of a claim that is reserved for the pod already, of which usually nothing is left to write. A claim that is created
has a name that follows from its pod, so that one whose creation lost its answer is found again.

The pods of one claim take turns, since each write names the version that it changes. A pod whose turn it is writes for
all pods that wait for theirs and want the same.

Source: plugins/dynamicresources/dynamicresources.go, bindClaim and Unreserve; extendeddynamicresources.go, deleteClaim
(kubernetes 1.36).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec

from scheduler.daemon.kube import claim_requests
from scheduler.daemon.kube.requests import Request, second_time
from scheduler.daemon.writes.conditions import is_pod_gone
from scheduler.daemon.writes.sending import CLAIM, Sender
from scheduler.engine.model.allocations import Allocation
from scheduler.engine.model.claim_writes import (
    ClaimDeallocation,
    ClaimDeletion,
    ClaimRelease,
    ClaimReservation,
    ContainerRequest,
    consumer,
    is_reserved_for,
)
from scheduler.engine.model.device_requests import CLAIM_FINALIZER, DEVICES, ResourceClaim
from scheduler.engine.model.devices import MAX_CONSUMERS, DeviceKind
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.resource_versions import is_older
from scheduler.errors import ApiError, Conflict, NotFound

#: The newest state of a claim, None if nothing was written, and why the next write failed, '' if no write failed.
ClaimOutcome: TypeAlias = tuple[ResourceClaim | None, str]


@dataclass(slots=True)
class _Turns:
    """The turns of the pods that reserve one claim."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: The reservations that are not answered, by UID of the pod.
    waiting: dict[str, ClaimReservation] = field(default_factory=dict)
    #: The outcomes of what was written for pods whose turn has not come, by their UID.
    answered: dict[str, ClaimOutcome] = field(default_factory=dict)
    #: The claim as last written; None before that.
    newest: ResourceClaim | None = None

    def joining(self, claim: ResourceClaim, write: ClaimReservation) -> list[ClaimReservation]:
        """Return the reservations to put into one write: this one, and waiting ones with the same devices."""
        joined = [write]
        allocation = claim.allocation or write.allocation
        for uid, other in self.waiting.items():
            if len(claim.reserved_for) + len(joined) >= MAX_CONSUMERS:
                break
            if uid == write.pod.uid or uid in self.answered or is_reserved_for(claim, other.pod):
                continue
            if allocation is not None and _has_decided_devices(allocation, other):
                joined.append(other)
        return joined


class ClaimWriter:
    """Writes to the API server. `on_created` gets "success" or "failure" after each request that creates a claim."""

    def __init__(
        self, sender: Sender, *, clock_s: Callable[[], float], on_created: Callable[[str], None]
    ) -> None:
        self._sender, self._clock_s = sender, clock_s
        self._on_created = on_created
        #: By UID of a claim.
        self._turns: dict[str, _Turns] = {}

    async def reserve(self, write: ClaimReservation) -> ClaimOutcome:
        """
        Reserve the claim for the pod, and store its allocation; create it before if it does not exist.

        Difference: the pod names a created claim before the claim is reserved for it; upstream's names it afterwards.
        The controller that takes the pod out of the claim, once the pod is gone, finds the claim by that name.
        """
        claim, pod = write.obj, write.pod
        is_new = not claim.resource_version
        if is_new:
            try:
                claim = await self._create_claim(claim, pod)
            except ApiError as error:
                # As upstream prints the name that the claim does not have yet.
                return None, f"create claim for extended resources {pod.namespace}/: {error.message}"
            if write.mappings and (problem := await self._name_in_pod(pod, (claim.name, write.mappings))):
                return claim, problem
        reserved, problem = await self._in_turn(claim, write)
        if is_new and not write.mappings and not problem:
            problem = f"nil or empty request mappings, no update of pod {pod.key} ExtendedResourceClaimStatus"
        return reserved or (claim if is_new else None), problem

    async def release(self, write: ClaimRelease) -> str:
        """Take the pod out of the claim. Return why that failed, empty if it did not."""
        return await self._repeat(lambda _: claim_requests.release_claim(write.obj, write.pod.uid), write.obj)

    async def deallocate(self, write: ClaimDeallocation) -> str:
        """Take the allocation from the claim, unless that has changed, or another pod has it. Return as `release`."""
        # Difference: upstream's next attempt does so if a driver has told of the devices meanwhile.
        decided = write.obj

        def is_as_decided(claim: ResourceClaim) -> bool:
            devices = [each.allocation and _devices(each.allocation) for each in (claim, decided)]
            return devices[0] == devices[1] and set(claim.reserved_for) <= set(decided.reserved_for)

        return await self._repeat(claim_requests.deallocate_claim, decided, is_as_decided)

    async def delete(self, write: ClaimDeletion, pod: Pod) -> str:
        """
        Delete the claim that was created for the pod. Return why that failed, empty if it did not.

        Difference: the pod names it no more. Upstream's does, and a kubelet with a device plugin waits for that claim.
        """
        return await self._delete(write) or await self._name_in_pod(pod, None)

    async def _delete(self, write: ClaimDeletion) -> str:
        """Delete the claim, which nothing protects any more. Return why that failed, empty if it did not."""

        def unprotect(claim: ResourceClaim) -> Request:
            left = [each for each in claim.finalizers if each != CLAIM_FINALIZER]
            return claim_requests.set_finalizers(claim, left)

        return await self._repeat(unprotect, write.obj) or await self._repeat(
            lambda _: claim_requests.delete_resource_claim(write.obj), write.obj
        )

    async def _create_claim(self, wanted: ResourceClaim, pod: Pod) -> ResourceClaim:
        """Return the claim for the pod's extended resources, created now or by an earlier request."""
        request = claim_requests.create_resource_claim(wanted, pod)
        try:
            claim = await self._send(request)
        except ApiError as error:
            self._on_created("failure")
            if not (isinstance(error, Conflict) or error.took_effect_unknown):
                raise
            key = f"{pod.namespace}/{wanted.created_name}"
            try:
                claim = await self._send(claim_requests.get_resource_claim(replace(wanted, key=key)))
            except NotFound:
                raise error from None
            if claim.controller is None or claim.controller.uid != pod.uid:
                raise
            if claim.requests == wanted.requests and not claim.terminating:
                return claim
            # Of an attempt on another kind of node.
            if await self._delete(ClaimDeletion(claim)):
                raise
            claim = await self._send(request)
        self._on_created("success")
        return claim

    async def _in_turn(self, claim: ResourceClaim, write: ClaimReservation) -> ClaimOutcome:
        """Reserve the claim when it is this pod's turn, unless an earlier pod's write has included this pod."""
        key, uid = claim.uid, write.pod.uid
        turns = self._turns.setdefault(key, _Turns())
        turns.waiting[uid] = write
        try:
            async with turns.lock:
                if (answered := turns.answered.pop(uid, None)) is not None:
                    return answered
                if turns.newest is not None and is_older(
                    claim.resource_version, turns.newest.resource_version
                ):
                    claim = turns.newest
                outcome, joined = await self._reserve_claim(claim, write, turns)
                turns.answered |= {each.pod.uid: outcome for each in joined if each is not write}
                return outcome
        finally:
            turns.waiting.pop(uid, None)
            if not turns.waiting:
                self._turns.pop(key, None)

    async def _reserve_claim(
        self, claim: ResourceClaim, write: ClaimReservation, turns: _Turns
    ) -> tuple[ClaimOutcome, Sequence[ClaimReservation]]:
        """Return the outcome, and the reservations that share it."""
        alone, joined, key = [write], [write], claim.key
        changed: ResourceClaim | None = None
        doing = ""

        async def attempt(number: int) -> tuple[ClaimOutcome, Sequence[ClaimReservation]]:
            nonlocal claim, changed, doing, joined
            if number > 1 or is_reserved_for(claim, write.pod):
                doing = f"get updated claim {key} after conflict"
                found = await self._send(claim_requests.get_resource_claim(claim))
                if found.uid != claim.uid:
                    return (changed, _deleted(claim)), alone
                claim = found
                if _is_done(claim, write):
                    turns.newest = claim
                    return (claim, ""), alone
            contradiction = _contradiction(claim, write)
            if _lacks_finalizer(claim, write) and not contradiction:
                doing = f"add finalizer to claim {key}"
                finalizers = (*claim.finalizers, CLAIM_FINALIZER)
                claim = changed = await self._send(claim_requests.set_finalizers(claim, finalizers))
                contradiction = _contradiction(claim, write)
            if contradiction:
                return (changed, contradiction), alone
            doing = f"add reservation to claim {key}"
            if write.allocation is not None:
                doing = f"add allocation and reservation to claim {key}"
            joined = turns.joining(claim, write)
            turns.newest = await self._send(self._status_request(claim, write, joined))
            return (turns.newest, ""), joined

        reserved = await self._sender.repeat(CLAIM, attempt)
        if not isinstance(reserved, ApiError):
            return reserved
        problem = f"{doing}: {reserved.message}"
        # After the last try the reservations in the same request fail too, without tries of their own.
        return (changed, problem), joined if CLAIM.repeats(reserved) else alone

    def _status_request(
        self, claim: ResourceClaim, write: ClaimReservation, joined: Sequence[ClaimReservation]
    ) -> Request:
        """
        Return the request. An allocation gets a time, from which the timeout of binding conditions counts.

        Quirk: so does a stored allocation without a time, which the API server refuses.
        """
        changed = write.allocation if claim.allocation is None else None
        allocation = claim.allocation or changed
        if allocation is not None and allocation.allocation_timestamp is None:
            now = second_time(self._clock_s())
            changed = msgspec.structs.replace(allocation, allocation_timestamp=now)
        consumers = (consumer(each.pod) for each in joined)
        return claim_requests.reserve_claim(claim, changed, (*claim.reserved_for, *consumers))

    async def _name_in_pod(self, pod: Pod, named: tuple[str, Sequence[ContainerRequest]] | None) -> str:
        """Write the claim's name into the pod's status, or remove it. Return why that failed, '' if it did not."""
        request = claim_requests.patch_extended_claim_status(pod, named)
        outcome = await self._sender.repeat(CLAIM, lambda _: self._sender.request(request))
        if not isinstance(outcome, ApiError) or (named is None and is_pod_gone(outcome)):
            return ""
        return f"update pod {pod.key} ExtendedResourceClaimStatus: {outcome.message}"

    async def _repeat(
        self,
        request_for: Callable[[ResourceClaim], Request],
        claim: ResourceClaim,
        is_needed: Callable[[ResourceClaim], bool] = lambda _: True,
    ) -> str:
        """Send a request that may take effect twice, and is not needed for a claim that is gone. Return as `delete`."""

        async def attempt(number: int) -> None:
            newest = claim if number == 1 else await self._send(claim_requests.get_resource_claim(claim))
            if newest.uid == claim.uid and is_needed(newest):
                await self._sender.request(request_for(newest))

        error = await self._sender.repeat(CLAIM, attempt)
        return "" if error is None or isinstance(error, NotFound) else error.message

    async def _send(self, request: Request) -> ResourceClaim:
        """Send a write or a read of a claim, and return the claim in the answer. Raises ApiError."""
        claim: ResourceClaim = DEVICES[DeviceKind.CLAIM].decode(
            DeviceKind.CLAIM, await self._sender.request(request)
        )
        return claim


def _is_done(claim: ResourceClaim, write: ClaimReservation) -> bool:
    """Return whether a write whose answer was lost has taken effect."""
    if not is_reserved_for(claim, write.pod) or claim.allocation is None:
        return False
    return _has_decided_devices(claim.allocation, write)


def _has_decided_devices(allocation: Allocation, write: ClaimReservation) -> bool:
    """
    Return whether these are the devices with which the pod was decided.

    Difference: upstream reserves a claim that was allocated at the decision whatever its allocation has become, on
    another node too.
    """
    decided = write.allocation or write.obj.allocation
    return decided is None or _devices(allocation) == _devices(decided)


def _devices(allocation: Allocation) -> list[tuple[str | None, ...]]:
    results = allocation.devices.results
    return [(each.request, each.driver, each.pool, each.device, each.share_id) for each in results]


def _lacks_finalizer(claim: ResourceClaim, write: ClaimReservation) -> bool:
    will_be_allocated = write.allocation is not None and claim.allocation is None
    return will_be_allocated and CLAIM_FINALIZER not in claim.finalizers


def _contradiction(claim: ResourceClaim, write: ClaimReservation) -> str:
    """Return what another client has done that leaves no room for the write; empty if nothing."""
    if claim.terminating:
        return _deleted(claim)
    if claim.allocation is None:
        is_as_wanted = write.allocation is not None
        return "" if is_as_wanted else f"claim {claim.key} got deallocated elsewhere in the meantime"
    # Another member of the pod's group may have stored the same.
    if not _has_decided_devices(claim.allocation, write):
        return f"claim {claim.key} got allocated elsewhere in the meantime"
    return ""


def _deleted(claim: ResourceClaim) -> str:
    return f"claim {claim.key} got deleted in the meantime"

"""
Writes of ResourceClaims: before a pod is bound, to undo that, and to free devices for a pod that fits nowhere.

Source: plugins/dynamicresources/dynamicresources.go, bindClaim, Unreserve, PostFilter (kubernetes 1.36).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from scheduler.engine.model.allocations import Allocation, Consumer
from scheduler.engine.model.device_requests import CLAIM_FINALIZER, ResourceClaim
from scheduler.engine.model.object_writes import ObjectWrite
from scheduler.engine.model.pods import Pod


def consumer(pod: Pod) -> Consumer:
    """Return the pod as claims name it in `reservedFor`."""
    return Consumer(resource="pods", name=pod.name, uid=pod.uid)


def is_reserved_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Return whether the claim is reserved for the pod."""
    return any(each.uid == pod.uid for each in claim.reserved_for)


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """Which request of a claim serves an extended resource of a container (`status.extendedResourceClaimStatus`)."""

    container_name: str
    resource_name: str
    request_name: str


@dataclass(frozen=True, slots=True)
class ClaimReservation(ObjectWrite[ResourceClaim]):
    """
    Reserves the claim for the pod, and stores the allocation in it, if there is one.

    `mappings`: of a claim that is created for the pod's extended resources; None for all others.
    """

    obj: ResourceClaim
    pod: Pod
    allocation: Allocation | None
    mappings: tuple[ContainerRequest, ...] | None = None

    @property
    def value(self) -> Allocation | None:
        """Return the allocation; several pods may reserve an allocated claim."""
        return self.allocation

    def applied_to(self, seen: ResourceClaim) -> ResourceClaim:
        """Return the claim as allocated, and reserved for the pod."""
        reserved = (
            seen.reserved_for if is_reserved_for(seen, self.pod) else (*seen.reserved_for, consumer(self.pod))
        )
        finalizers = (
            seen.finalizers if CLAIM_FINALIZER in seen.finalizers else (*seen.finalizers, CLAIM_FINALIZER)
        )
        allocation = self.allocation or seen.allocation
        return replace(seen, allocation=allocation, reserved_for=reserved, finalizers=finalizers)

    def is_settled_in(self, seen: ResourceClaim) -> bool:
        """Return whether the claim is allocated."""
        return seen.allocation is not None


@dataclass(frozen=True, slots=True)
class ClaimRelease(ObjectWrite[ResourceClaim]):
    """Takes the pod out of the pods for which the claim is reserved."""

    obj: ResourceClaim
    pod: Pod


@dataclass(frozen=True, slots=True)
class ClaimDeallocation(ObjectWrite[ResourceClaim]):
    """Removes the claim's allocation and everything that depends on it."""

    obj: ResourceClaim


@dataclass(frozen=True, slots=True)
class ClaimDeletion(ObjectWrite[ResourceClaim]):
    """Deletes the claim that was created for a pod's extended resources."""

    obj: ResourceClaim

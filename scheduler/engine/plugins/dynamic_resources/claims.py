"""
Which claims a pod uses, and whether its devices could be allocated at all.

Source: plugins/dynamicresources/dynamicresources.go, foreachPodResourceClaim and PreFilter;
dynamic-resource-allocation/resourceclaim, Name and IsForPod (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from scheduler.engine.framework.status import Status, failed, unresolvable
from scheduler.engine.model.claim_writes import is_reserved_for
from scheduler.engine.model.device_requests import DeviceQuery, ResourceClaim
from scheduler.engine.model.node_selector import NodeSelector
from scheduler.engine.model.pod_wire import PodResourceClaim
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.devices import Devices

ClaimOf = Callable[[str], ResourceClaim | None]


@dataclass(frozen=True, slots=True)
class DeviceClaims:
    """
    The claims of a pod.

    Attributes:
        of_user: the claims that the pod names, each once.
        special: the claim for its extended resources, created or not; None if it has none.
        selectors: by key of an allocated claim, the nodes where its devices are available.
        pending: by key, claims whose allocation is being written for members of the pod's group, as watches show them.
    """

    of_user: tuple[ResourceClaim, ...]
    special: ResourceClaim | None
    selectors: dict[str, NodeSelector] = field(default_factory=dict)
    pending: dict[str, ResourceClaim] = field(default_factory=dict)

    @property
    def all(self) -> tuple[ResourceClaim, ...]:
        """All claims, the special one last."""
        return self.of_user if self.special is None else (*self.of_user, self.special)

    @property
    def unallocated(self) -> tuple[ResourceClaim, ...]:
        """The claims without an allocation, in order."""
        return tuple(claim for claim in self.all if claim.allocation is None)


def resolved(pod: Pod, claim_of: ClaimOf) -> tuple[ResourceClaim, ...] | str:
    """Return the claims that the pod names, or why they are not known. `claim_of`: takes `namespace/name`."""
    # Difference: upstream takes a claim that is named twice for two, and fails to write the second one.
    claims: dict[str, ResourceClaim] = {}
    for entry in pod.spec.resource_claims:
        name = _claim_name(pod, entry)
        if name is None:
            continue
        if not name:
            if entry.template_name is not None:
                return f'pod "{pod.key}": ResourceClaim not created yet'
            problem = "none of the supported fields are set"
            return f'pod "{pod.key}", spec.resourceClaim "{entry.name}": {problem}'
        claim = claim_of(f"{pod.namespace}/{name}")
        if claim is None:
            return f'could not find ResourceClaim "{pod.namespace}/{name}"'
        if claim.terminating:
            return f'resourceclaim "{name}" is being deleted'
        if entry.claim_name is None and (claim.controller is None or claim.controller.uid != pod.uid):
            return f"ResourceClaim {claim.key} was not created for Pod {pod.key} (Pod is not owner)"
        claims[claim.key] = claim
    return tuple(claims.values())


def held_in_deletion(pod: Pod, claim_of: ClaimOf) -> Iterator[ResourceClaim]:
    """Yield the pod's claims that are being deleted and that are reserved for the pod, which is not bound."""
    # A scheduler that died before it bound the pod left them. The pod cannot run with them, and they cannot be deleted.
    for entry in pod.spec.resource_claims:
        name = _claim_name(pod, entry)
        claim = claim_of(f"{pod.namespace}/{name}") if name else None
        if claim is not None and claim.terminating and is_reserved_for(claim, pod):
            yield claim


def _claim_name(pod: Pod, entry: PodResourceClaim) -> str | None:
    """Return the name of the entry's claim; None if it needs none, empty if the name is not known."""
    if entry.claim_name is not None or entry.template_name is None:
        return entry.claim_name or ""
    return next((claim_name for name, claim_name in pod.generated_claims if name == entry.name), "")


def checked(
    pod: Pod, of_user: tuple[ResourceClaim, ...], special: ResourceClaim | None, view: ClusterView
) -> DeviceClaims | Status:
    """Return the claims as a filter needs them, or the status with which the pod is rejected on all nodes."""
    # Members of a group share a claim whose allocation is being written for one of them.
    devices = view.devices
    claims = DeviceClaims(of_user, special)
    for claim in claims.all:
        if devices.is_pending(claim.key):
            shown = devices.seen(claim.kind, claim.key)
            if shown is None or not view.are_of_its_group(devices.pending_for(claim.key), pod):
                return unresolvable(f"resource claim {claim.key} is in the process of being allocated")
            claims.pending[claim.key] = shown
        if claim.allocation is None:
            status = None if claim is special else unknown_class(claim, devices)
            if status is not None:
                return status
        elif claim.allocation.node_selector is not None:
            selector = claim.allocation.node_selector
            if selector.problem is not None:
                return failed(selector.problem)
            claims.selectors[claim.key] = selector
    return claims


def queries_of(claims: Iterable[ResourceClaim]) -> Iterator[DeviceQuery]:
    """Yield what the requests of the claims ask for, every alternative included."""
    for claim in claims:
        for request in claim.requests:
            yield from (
                request.first_available
                if request.exactly is None
                else (request.exactly, *request.first_available)
            )


def unknown_class(claim: ResourceClaim, devices: Devices) -> Status | None:
    """Return why devices cannot be searched for the claim: a request names no class, or one that does not exist."""
    for request in claim.requests:
        named = [(f"{request.name}/{query.name}", query) for query in request.first_available]
        if request.exactly is not None:
            named = [(request.name, request.exactly)]
        if not named:
            return unresolvable(f"resource claim {claim.key}, request {request.name}: unknown request type")
        for name, query in named:
            if not query.class_name:
                return failed(f"request {name}: unsupported request type")
            if query.class_name not in devices.classes:
                return unresolvable(f"request {name}: device class {query.class_name} does not exist")
    return None

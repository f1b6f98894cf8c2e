"""
Extended resources of a pod, such as `nvidia.com/gpu: 1`, that device classes provide: the claim made for them.

A node that offers the resource itself serves it through its device plugin; on any other node the claim has a request
for it. So each node has a variant of the claim.

Source: plugins/dynamicresources/extendeddynamicresources.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from scheduler.engine.framework.status import Status, unresolvable
from scheduler.engine.model.claim_writes import ContainerRequest
from scheduler.engine.model.device_requests import (
    SPECIAL_NAME,
    DeviceQuery,
    DeviceRequest,
    ResourceClaim,
)
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.pods import Container, Pod
from scheduler.engine.model.requests import filter_request
from scheduler.engine.model.wire import OwnerReference
from scheduler.engine.state.devices import Devices
from scheduler.engine.state.extended_resources import ExtendedResources, is_provided_by_classes
from scheduler.engine.syntax.names import MAX_SUBDOMAIN_BYTES

#: Base-3 digits that fit in 63 bits.
_MAX_DIGITS: Final = 39
#: Billionths in a unit.
_WHOLE: Final = 10**9
#: Between the pod's name and the digest in the name of a claim.
_SUFFIX: Final = "-extended-resources-"
_DIGEST_LENGTH: Final = 10

STALE: Final = unresolvable("cannot schedule extended resource claim")
CANNOT_FIT: Final = unresolvable("cannot fit resource")


@dataclass(frozen=True, slots=True)
class Variant:
    """The claim for one node, and which request of it serves which container."""

    claim: ResourceClaim
    mappings: tuple[ContainerRequest, ...]


def extended_request(pod: Pod) -> dict[str, int]:
    """Return the extended resources that the pod requests, and how much of each."""
    return {
        name: amount
        for name, amount in filter_request(pod).items()
        if amount and is_provided_by_classes(name)
    }


def special_claim(pod: Pod, request: dict[str, int], devices: Devices) -> ResourceClaim | None:
    """Return the claim that was created for the pod, or one to be created; None if no class provides what it needs."""
    if not any(devices.extended_resources.class_of(name) for name in request):
        return None
    existing = devices.extended_claim(pod.uid)
    return existing if existing is not None else _new_claim(pod)


def _new_claim(pod: Pod) -> ResourceClaim:
    return ResourceClaim(
        key=f"{pod.namespace}/{SPECIAL_NAME}",
        uid=f"{SPECIAL_NAME} {pod.uid}",
        resource_version="",
        owners=(OwnerReference("v1", "Pod", pod.name, uid=pod.uid, controller=True),),
        is_special=True,
        finalizers=(),
        terminating=False,
        requests=(),
        constraints=(),
        config=(),
        created_name=_created_name(pod),
    )


def _created_name(pod: Pod) -> str:
    """Return the name of the pod's claim: the same for each attempt, so that a claim is not created twice."""
    # Difference: upstream lets the API server generate what follows the prefix.
    digest = sha256(pod.uid.encode()).hexdigest()[:_DIGEST_LENGTH]
    prefix = pod.name[: MAX_SUBDOMAIN_BYTES - len(_SUFFIX) - _DIGEST_LENGTH].rstrip("-.")
    return f"{prefix}{_SUFFIX}{digest}"


class Variants:
    """The variants of a pod's special claim. Nodes that serve the same resources themselves share one."""

    def __init__(self, pod: Pod, special: ResourceClaim, request: dict[str, int], devices: Devices) -> None:
        self._pod, self._special, self._request = pod, special, request
        self._classes = devices.extended_resources
        self._by_resources: dict[frozenset[str], Variant] = {}
        #: The names of all requested resources.
        self.resources = tuple(sorted(request))

    def at(self, node: Node, *, is_only_claim: bool) -> Variant | Status | None:
        """Return the variant, None if the node serves all that is requested, or why it cannot be served."""
        if self._special.requests:
            return STALE
        from_claim: list[str] = []
        for name in self._request:
            if not node.allocatable.get(name) and self._classes.class_of(name) is not None:
                from_claim.append(name)
            elif name not in node.allocatable:
                return CANNOT_FIT
        if (is_only_claim and not from_claim) or self._special.allocation is not None:
            return None
        resources = frozenset(from_claim)
        variant = self._by_resources.get(resources)
        if variant is None:
            variant = self._by_resources[resources] = self._variant(sorted(resources))
        return variant

    def _variant(self, resources: Sequence[str]) -> Variant:
        requests: list[DeviceRequest] = []
        mappings: list[ContainerRequest] = []
        for name in resources:
            requested, mapped = _of_resource(self._pod, name, self._classes)
            requests += requested
            mappings += mapped
        requests.sort(key=lambda request: request.name)
        return Variant(replace(self._special, requests=tuple(requests)), tuple(mappings))


def supply_of(node: Node | None, resources: Sequence[str]) -> int:
    """Return a number that is equal for nodes that serve the same of these resources themselves."""
    # A base-3 digit for each: the node has it, has none of it, or does not know it. Beyond 39 resources, more than any
    # node has, it is a hash.
    if node is None:
        return -1
    digits = [0 if node.allocatable.get(name) else 1 if name in node.allocatable else 2 for name in resources]
    if len(digits) > _MAX_DIGITS:
        return hash(tuple(digits))
    return sum(digit * 3**place for place, digit in enumerate(digits))


def _of_resource(
    pod: Pod, name: str, classes: ExtendedResources
) -> tuple[list[DeviceRequest], list[ContainerRequest]]:
    """Return the requests for one resource, and which of them serves which container."""
    # Init containers that end before others start use the devices of those, and share what they need beyond them.
    provider = classes.class_of(name)
    if provider is None:
        return [], []
    spec = pod.spec
    n_init = len(spec.init_containers)
    containers = list(enumerate((*spec.init_containers, *spec.containers)))
    short_lived = [(i, each) for i, each in containers if i < n_init and not each.restart_always]
    by_container: dict[int, DeviceRequest] = {}
    mappings: list[ContainerRequest] = []
    for index, container in containers:
        if index >= n_init or container.restart_always:
            own, mapped = _of_container(index, container, name, provider.key, ())
            if own is not None:
                by_container[index] = own
            mappings += mapped
    largest: DeviceRequest | None = None
    names: set[str] = set()
    of_short_lived: list[ContainerRequest] = []
    for index, container in short_lived:
        usable = [request for other, request in by_container.items() if other >= index]
        own, mapped = _of_container(index, container, name, provider.key, usable)
        of_short_lived += mapped
        if own is not None:
            names.add(own.name)
            if largest is None or _count(largest) < _count(own):
                largest = own
    if largest is not None:
        shared = largest.name
        of_short_lived = [
            replace(each, request_name=shared) if each.request_name in names else each
            for each in of_short_lived
        ]
    first = [] if largest is None else [largest]
    return [*first, *by_container.values()], [*mappings, *of_short_lived]


def _of_container(
    index: int, container: Container, name: str, class_name: str, usable: Iterable[DeviceRequest]
) -> tuple[DeviceRequest | None, list[ContainerRequest]]:
    """Return what the container needs beyond the requests that it may use, and all requests that serve it."""
    amount = container.requests.get(name)
    if amount is None or not amount.nano or amount.nano % _WHOLE:
        return None, []
    wanted, n_served = amount.value(), 0
    mappings: list[ContainerRequest] = []
    for request in usable:
        n_served += _count(request)
        mappings.append(ContainerRequest(container.name, name, request.name))
        if n_served >= wanted:
            return None, mappings
    own = f"container-{index}-request-{sorted(container.requests).index(name)}"
    mappings.append(ContainerRequest(container.name, name, own))
    query = DeviceQuery(name=own, class_name=class_name, count=wanted - n_served)
    return DeviceRequest(own, query), mappings


def _count(request: DeviceRequest) -> int:
    return 0 if request.exactly is None else request.exactly.count

"""
ResourceClaims as their controllers make them for pods of a manifest, and free them once a pod is gone.

A template that is not in the manifest may be in the cluster, where the scheduler does not read it. Its spec is then
that of a claim that was made from it for another pod.

Source: pkg/apis/resource/v1/defaults.go, pkg/controller/resourceclaim/controller.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import msgspec

from scheduler.engine.model.claim_writes import is_reserved_for
from scheduler.engine.model.device_decoder import DeviceDecoder
from scheduler.engine.model.device_requests import EXACT_COUNT, DeviceQuery, ResourceClaim
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.match_label_keys import Json
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import ObjectGone, ObjectSeen, WatchEvent
from scheduler.engine.model.wire import MalformedObjectError, OwnerReference
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.devices import Devices

TEMPLATE: Final = "ResourceClaimTemplate"
#: Older than every version that an API server gives, or a simulation.
_VERSION: Final = "1"


def new_device_claim(document: Json) -> ResourceClaim:
    """Return the claim of a document as the API server would store it. Raises MalformedObjectError."""
    claim = DeviceDecoder().decode(DeviceKind.CLAIM, msgspec.json.encode(document))
    if not isinstance(claim, ResourceClaim):
        raise MalformedObjectError(f"{DeviceKind.CLAIM}: a {claim.kind}")
    requests = tuple(
        replace(
            request,
            exactly=None if request.exactly is None else _counted(request.exactly),
            first_available=tuple(map(_counted, request.first_available)),
        )
        for request in claim.requests
    )
    return _unused(replace(claim, requests=requests), claim.key)


def _counted(query: DeviceQuery) -> DeviceQuery:
    mode = query.mode or EXACT_COUNT
    return replace(query, mode=mode, count=query.count or int(mode == EXACT_COUNT))


def claim_of_template(document: Json) -> ResourceClaim:
    """Return the claim that a template describes, with the template's own key. Raises MalformedObjectError."""
    spec = document.get("spec")
    of_claim = spec.get("spec") if isinstance(spec, Mapping) else None
    if not isinstance(of_claim, Mapping):
        raise MalformedObjectError(f"{TEMPLATE}: no spec.spec")
    return new_device_claim({"metadata": document.get("metadata"), "spec": of_claim})


def with_claims(pod: Pod, described: Mapping[str, ResourceClaim | None]) -> tuple[Pod, list[ResourceClaim]]:
    """Return the pod and the claims that are made for it from templates; an unknown template makes none."""
    claims: list[ResourceClaim] = []
    names: list[tuple[str, str]] = []
    owner = OwnerReference("v1", "Pod", pod.name, uid=pod.uid, controller=True)
    for entry in pod.spec.resource_claims:
        template = described.get(f"{pod.namespace}/{entry.template_name}")
        if entry.template_name is not None and template is not None:
            # The end of the name stands in for a generated one.
            made = _unused(template, f"{pod.namespace}/{pod.name}-{entry.name}-new")
            claims.append(replace(made, owners=(owner,)))
            names.append((entry.name, made.name))
    return replace(pod, generated_claims=tuple(names)), claims


def claim_made_before(
    namespace: str, template_name: str, pods: Iterable[Pod], devices: Devices
) -> ResourceClaim | None:
    """Return a claim that was made from the template for one of the pods, None if there is none."""
    for pod in (pod for pod in pods if pod.namespace == namespace):
        generated = dict(pod.generated_claims)
        for entry in pod.spec.resource_claims:
            claim = devices.claim(f"{namespace}/{generated.get(entry.name) or ''}")
            if entry.template_name == template_name and claim is not None:
                return claim
    return None


def _unused(claim: ResourceClaim, key: str) -> ResourceClaim:
    """Return the claim of that key as it is when it is created."""
    return replace(
        claim,
        key=key,
        uid=f"not-created/{key}",
        resource_version=_VERSION,
        finalizers=(),
        terminating=False,
        allocation=None,
        reserved_for=(),
        devices=(),
    )


def freed_claims(pod: Pod, state: ClusterState) -> Iterator[WatchEvent]:
    """
    Yield what watches show of the pod's claims after its end.

    A claim that was made for the pod is deleted with it; of any other the last pod frees the devices.
    """
    for claim in state.devices.claims_of(pod):
        if claim.controller is not None and claim.controller.uid == pod.uid:
            yield ObjectGone(claim.kind, claim.key)
        elif is_reserved_for(claim, pod):
            left = tuple(each for each in claim.reserved_for if each.uid != pod.uid)
            released = replace(claim, reserved_for=left)
            yield ObjectSeen(released if left else replace(released, allocation=None, devices=()))


def renewed_claims(pod: Pod, state: ClusterState) -> Iterator[WatchEvent]:
    """Yield the same events, but with the claims that were made for the pod made anew for its replacement."""
    for event in freed_claims(pod, state):
        claim = state.devices.claim(event.key) if isinstance(event, ObjectGone) else None
        if claim is None or claim.is_special:
            yield event
        else:
            yield ObjectSeen(replace(claim, allocation=None, reserved_for=(), devices=()))

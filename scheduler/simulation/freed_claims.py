"""
What becomes of ResourceClaims once their pod is gone: those that were made for it are deleted, others are released.

Source: pkg/controller/resourceclaim/controller.go, syncClaim (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from scheduler.model.claim_writes import is_reserved_for
from scheduler.model.device_requests import ResourceClaim
from scheduler.model.pods import Pod
from scheduler.model.stimuli import ObjectGone, ObjectSeen, WatchEvent
from scheduler.state.cluster import ClusterState
from scheduler.state.devices import Devices


def freed_claims(pod: Pod, state: ClusterState) -> Iterator[WatchEvent]:
    """Yield what watches show of the pod's claims after its end; the last pod of a claim frees its devices."""
    for claim in _claims_of(pod, state.devices):
        if claim.controller is not None and claim.controller.uid == pod.uid:
            yield ObjectGone(claim.kind, claim.key)
        elif is_reserved_for(claim, pod):
            left = tuple(each for each in claim.reserved_for if each.uid != pod.uid)
            released = replace(claim, reserved_for=left)
            yield ObjectSeen(released if left else replace(released, allocation=None, devices=()))


def _claims_of(pod: Pod, devices: Devices) -> Iterator[ResourceClaim]:
    """Yield each claim of the pod that is known."""
    generated = dict(pod.generated_claims)
    names = dict.fromkeys(each.claim_name or generated.get(each.name) for each in pod.spec.resource_claims)
    for name in names:
        claim = devices.claim(f"{pod.namespace}/{name}") if name else None
        if claim is not None:
            yield claim
    extended = devices.extended_claim(pod.uid)
    if extended is not None:
        yield extended

"""
Changes of ResourceClaims: what proposals change of them, and what becomes of them once their pod is gone.

A claim that was made for a pod is deleted with it, any other is released.

Source: pkg/controller/resourceclaim/controller.go, syncClaim (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from scheduler.engine.model.allocations import DeviceToleration
from scheduler.engine.model.changes import DropDeviceConstraint, TolerateDeviceTaint
from scheduler.engine.model.claim_writes import is_reserved_for
from scheduler.engine.model.device_requests import DeviceQuery, DeviceRequest, ResourceClaim
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import ObjectGone, ObjectSeen, WatchEvent
from scheduler.engine.state.cluster import ClusterState


def freed_claims(pod: Pod, state: ClusterState) -> Iterator[WatchEvent]:
    """Yield what watches show of the pod's claims after its end; the last pod of a claim frees its devices."""
    for claim in state.devices.claims_of(pod):
        if claim.controller is not None and claim.controller.uid == pod.uid:
            yield ObjectGone(claim.kind, claim.key)
        elif is_reserved_for(claim, pod):
            left = tuple(each for each in claim.reserved_for if each.uid != pod.uid)
            released = replace(claim, reserved_for=left)
            yield ObjectSeen(released if left else replace(released, allocation=None, devices=()))


def renewed_claims(pod: Pod, state: ClusterState) -> Iterator[WatchEvent]:
    """Yield the same as the pod's replacement finds them: claims that were made for the pod are made anew for it."""
    for event in freed_claims(pod, state):
        claim = state.devices.claim(event.key) if isinstance(event, ObjectGone) else None
        if claim is None or claim.is_special:
            yield event
        else:
            yield ObjectSeen(replace(claim, allocation=None, reserved_for=(), devices=()))


def changed_claim(claim: ResourceClaim, change: TolerateDeviceTaint | DropDeviceConstraint) -> ResourceClaim:
    """Return the claim with one more toleration, or without its constraints on an attribute."""
    if isinstance(change, DropDeviceConstraint):
        kept = tuple(
            each
            for each in claim.constraints
            if change.attribute not in (each.match_attribute, each.distinct_attribute)
        )
        return replace(claim, constraints=kept)
    toleration = DeviceToleration(change.key, "Equal", change.value, change.effect)
    return replace(
        claim, requests=tuple(_tolerating(each, change.request, toleration) for each in claim.requests)
    )


def _tolerating(request: DeviceRequest, name: str, toleration: DeviceToleration) -> DeviceRequest:
    """Return the request with the toleration if it, or one of its alternatives, has the name `R` or `R/S`."""

    def changed(query: DeviceQuery, full_name: str) -> DeviceQuery:
        return replace(query, tolerations=(*query.tolerations, toleration)) if full_name == name else query

    return replace(
        request,
        exactly=None if request.exactly is None else changed(request.exactly, request.name),
        first_available=tuple(
            changed(each, f"{request.name}/{each.name}") for each in request.first_available
        ),
    )

"""
The claims of a pod, by what they wait for.

Source: plugins/volumebinding/{volume_binding,binder}.go, podHasPVCs and GetPodVolumeClaims (kubernetes 1.36).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from scheduler.engine.framework.status import Status, failed, unresolvable
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.volumes import (
    PersistentVolumeClaim,
    StorageClass,
    StorageKind,
    no_such,
    not_owned,
)
from scheduler.engine.state.volumes import Volumes

UNBOUND_IMMEDIATE: Final = unresolvable("pod has unbound immediate PersistentVolumeClaims")


@dataclass(slots=True)
class PodClaims:
    """`bound`: fully. `delayed`: each waits for its pod's node, with its class."""

    bound: list[PersistentVolumeClaim] = field(default_factory=list)
    delayed: list[tuple[PersistentVolumeClaim, StorageClass]] = field(default_factory=list)


def claims_of(pod: Pod, volumes: Volumes) -> PodClaims | Status:
    """Return the claims of the pod, or why it cannot be placed whatever the node."""
    claims: list[PersistentVolumeClaim] = []
    for claim_volume in pod.spec.claim_volumes:
        name = claim_volume.claim_name(pod.name)
        claim = volumes.claim(f"{pod.namespace}/{name}")
        if claim is None:
            if not claim_volume.is_ephemeral:
                return unresolvable(no_such(StorageKind.CLAIM, name))
            return unresolvable(
                f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            )
        if claim.is_lost:
            bound_to = f'bound to non-existent persistentvolume "{claim.volume_name}"'
            return unresolvable(f'persistentvolumeclaim "{name}" {bound_to}')
        if claim.terminating:
            return unresolvable(f'persistentvolumeclaim "{name}" is being deleted')
        if claim_volume.is_ephemeral and claim.owner_uid != pod.uid:
            return unresolvable(not_owned(claim, pod))
        claims.append(claim)
    return _classified(claims, volumes)


def _classified(claims: list[PersistentVolumeClaim], volumes: Volumes) -> PodClaims | Status:
    classified = PodClaims()
    immediate = False
    for claim in claims:
        if claim.is_bound:
            classified.bound.append(claim)
            continue
        storage_class = volumes.storage_class(claim.class_name) if claim.class_name else None
        if storage_class is not None and storage_class.binding_mode is None:
            return failed(f'VolumeBindingMode not set for StorageClass "{storage_class.key}"')
        if storage_class is not None and storage_class.waits and not claim.volume_name:
            classified.delayed.append((claim, storage_class))
        else:
            # Quirk: a claim that names its volume but is not bound to it yet counts as immediate.
            immediate = True
    return UNBOUND_IMMEDIATE if immediate else classified

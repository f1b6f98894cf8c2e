"""
The claims that a manifest would create, as they are when a scheduler first sees the pod that uses them; and the volumes
that provisioners make for claims.

The API server gives a claim without a class the default one. A claim whose class does not wait for a pod is bound
before: to a volume that exists, or to one that its provisioner makes where the class allows it. A claim whose class
waits is left as it is.

ResourceClaims are made for pods of a manifest, and freed once a pod is gone. A template that is not in the manifest may
be in the cluster, where the scheduler does not read it. Its spec is then that of a claim that was made from it for
another pod.

Source: plugin/pkg/admission/storage/storageclass/setdefault, pkg/controller/volume/persistentvolume,
pkg/apis/resource/v1/defaults.go, pkg/controller/resourceclaim/controller.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import msgspec

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.claim_writes import is_reserved_for
from scheduler.engine.model.device_requests import EXACT_COUNT, DeviceQuery, ResourceClaim
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.disks import MIGRATIONS
from scheduler.engine.model.node_selector import NodeSelector
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import ObjectGone, ObjectSeen, WatchEvent
from scheduler.engine.model.terms import NodeRequirement, NodeTerm
from scheduler.engine.model.volumes import (
    NO_PROVISIONER,
    READ_WRITE_ONCE_POD,
    ClaimReference,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageKind,
    VolumeSource,
)
from scheduler.engine.model.wire import MalformedObjectError, OwnerReference
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.devices import Devices
from scheduler.engine.state.volumes import Volumes
from scheduler.engine.syntax.match_label_keys import Json
from scheduler.tools.explain.formats.json_values import mapping_or_empty

TEMPLATE: Final = "ResourceClaimTemplate"
#: Older than every version that an API server gives, or a simulation.
_VERSION: Final = "1"
#: Access modes of volumes that one node attaches at a time.
_ONE_NODE: Final = frozenset({"ReadWriteOnce", READ_WRITE_ONCE_POD})


#: A claim as a watch shows it, after its volume if it is bound to one.
ClaimObjects = tuple[PersistentVolume | PersistentVolumeClaim, ...]


def add_claim(volumes: Volumes, document: Json) -> str:
    """Add a claim as its pod finds it, unless it exists. Return what is assumed, or ''. Raises MalformedObjectError."""
    claim: PersistentVolumeClaim = KINDS[StorageKind.CLAIM].decode(msgspec.json.encode(document))
    if volumes.claim(claim.key) is not None:
        return ""
    claim = replace(claim, uid=claim.uid or f"not-created/{claim.key}")
    # An empty name of a class is one, of no class.
    if mapping_or_empty(document.get("spec")).get("storageClassName") is None:
        claim = replace(claim, class_name=claim.class_name or default_class(volumes))
    objects, assumption = new_claim(claim, volumes)
    for obj in objects:
        volumes.upsert(obj)
    return assumption


def default_class(volumes: Volumes) -> str:
    """Return the class of claims that name none: the newest default one, the first by name; empty without any."""
    defaults = sorted(
        (known for known in volumes.classes() if known.default_since is not None), key=lambda known: known.key
    )
    return max(defaults, key=lambda known: known.default_since or "").key if defaults else ""


def new_claim(claim: PersistentVolumeClaim, volumes: Volumes) -> tuple[ClaimObjects, str]:
    """Return the claim as its pod finds it, and a sentence on what is assumed; '' without any."""
    storage_class = volumes.storage_class(claim.class_name) if claim.class_name else None
    if claim.volume_name or (storage_class is not None and storage_class.waits):
        return (claim,), ""
    volume = min(
        _existing(claim, volumes), key=lambda volume: (volume.capacity_bytes, volume.key), default=None
    )
    if volume is not None:
        return bound_to(claim, volume), ""
    if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER):
        return (claim,), ""
    where = "where the class allows it" if storage_class.allowed_topologies else "on any node"
    assumption = f"class {storage_class.key} makes volumes before pods are placed: assumed {where}"
    volume = _provisioned(claim, storage_class, storage_class.allowed_topologies)
    return bound_to(claim, volume), assumption


def provisioned_for(claim: PersistentVolumeClaim, node_name: str, volumes: Volumes) -> ClaimObjects:
    """
    Return the claim with the volume that its provisioner makes once this node is selected; without one if none does.

    A volume for one node at a time is taken to be reached from this node alone, any other where its class allows it.
    """
    storage_class = volumes.storage_class(claim.class_name)
    if storage_class is None:
        return (claim,)
    terms = storage_class.allowed_topologies
    if set(claim.access_modes) <= _ONE_NODE:
        terms = (NodeTerm((), (NodeRequirement("metadata.name", "In", (node_name,)),)),)
    return bound_to(claim, _provisioned(claim, storage_class, terms))


def _existing(claim: PersistentVolumeClaim, volumes: Volumes) -> Iterator[PersistentVolume]:
    """Yield the free volumes that fit, or the volumes that were made for the claim."""
    promised = [volumes.volume(name) for name in volumes.promised_to(claim.key)]
    if made_for_it := [volume for volume in promised if volume is not None and volume.is_for(claim)]:
        yield from made_for_it
        return
    for entries, start in volumes.free.at_least(claim.class_name, claim.requested_bytes):
        for _, _, volume in entries[start:]:
            is_selected = claim.selector is None or claim.selector.matches(volume.labels)
            has_modes = set(claim.access_modes) <= set(volume.access_modes)
            if is_selected and has_modes and volume.volume_mode == claim.volume_mode:
                yield volume


def bound_to(claim: PersistentVolumeClaim, volume: PersistentVolume) -> ClaimObjects:
    """Return the volume and the claim, bound to each other."""
    reference = ClaimReference(claim.key, claim.uid)
    bound = replace(claim, volume_name=volume.key, is_bind_completed=True)
    return replace(volume, claim=reference, is_available=False), bound


def _provisioned(
    claim: PersistentVolumeClaim, storage_class: StorageClass, terms: tuple[NodeTerm, ...]
) -> PersistentVolume:
    migration = MIGRATIONS.get(storage_class.provisioner)
    topology = NodeSelector(terms) if terms else None
    name = f"to-be-made-for-{claim.namespace}-{claim.name}"
    return PersistentVolume(
        key=name,
        resource_version="",
        class_name=storage_class.key,
        capacity_bytes=claim.requested_bytes,
        access_modes=claim.access_modes,
        volume_mode=claim.volume_mode,
        attributes_class=claim.attributes_class,
        claim=None,
        is_available=True,
        terminating=False,
        labels={},
        source=VolumeSource(
            topology=topology,
            driver=migration.driver if migration is not None else storage_class.provisioner,
            handle=name,
            plugin="",
            migrated_topology=topology,
        ),
    )


def new_device_claim(document: Json) -> ResourceClaim:
    """Return the claim of a document as the API server would store it. Raises MalformedObjectError."""
    claim: ResourceClaim = KINDS[DeviceKind.CLAIM].decode(msgspec.json.encode(document))
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
    of_claim = mapping_or_empty(document.get("spec")).get("spec")
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

"""
The claims that a manifest would create, as they are when a scheduler first sees the pod that uses them; and the volumes
that provisioners make for claims.

The API server gives a claim without a class the default one. A claim whose class does not wait for a pod is bound
before: to a volume that exists, or to one that its provisioner makes where the class allows it. A claim whose class
waits is left as it is.

Source: plugin/pkg/admission/storage/storageclass/setdefault, pkg/controller/volume/persistentvolume (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import msgspec

from scheduler.engine.model.disks import MIGRATIONS
from scheduler.engine.model.match_label_keys import Json
from scheduler.engine.model.terms import NodeRequirement, NodeTerm
from scheduler.engine.model.volume_decoder import StorageDecoder
from scheduler.engine.model.volumes import (
    NO_PROVISIONER,
    READ_WRITE_ONCE_POD,
    ClaimReference,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageKind,
    VolumeSource,
    VolumeTopology,
)
from scheduler.engine.state.volumes import Volumes
from scheduler.tools.explain.formats.json_values import mapping_or_empty

#: Access modes of volumes that one node attaches at a time.
_ONE_NODE: Final = frozenset({"ReadWriteOnce", READ_WRITE_ONCE_POD})


#: A claim as a watch shows it, after its volume if it is bound to one.
ClaimObjects = tuple[PersistentVolume | PersistentVolumeClaim, ...]


def add_claim(volumes: Volumes, document: Json) -> str:
    """Add a claim as its pod finds it, unless it exists. Return what is assumed, or ''. Raises MalformedObjectError."""
    claim = StorageDecoder().decode(StorageKind.CLAIM, msgspec.json.encode(document))
    if not isinstance(claim, PersistentVolumeClaim) or volumes.claim(claim.key) is not None:
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
    for entries, start in volumes.free.at_least(claim.class_name, claim.requested_bytes or 0):
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
    topology = VolumeTopology(terms) if terms else None
    name = f"to-be-made-for-{claim.namespace}-{claim.name}"
    return PersistentVolume(
        key=name,
        resource_version="",
        class_name=storage_class.key,
        capacity_bytes=claim.requested_bytes or 0,
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

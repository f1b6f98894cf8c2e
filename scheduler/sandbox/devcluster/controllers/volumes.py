"""
The volume half of the PV controller, phases and the end of volumes whose claims are gone; and the provisioner.

A class whose annotation `PROVISION_AFTER_S` names seconds is that slow; one with `PROVISION_FAILURE` fails with that
message. Storage never runs out: CSIStorageCapacity objects are data for schedulers.

Source: pkg/controller/volume/persistentvolume/pv_controller.go (syncVolume, reclaimVolume),
pkg/controller/volume/pvprotection (kubernetes 1.36), external-provisioner pkg/controller/topology.go. Difference:
Recycle retains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Final
from zlib import crc32

from scheduler.sandbox.devcluster.admission.volumes import VOLUME_PROTECTION
from scheduler.sandbox.devcluster.controllers.actions import (
    Action,
    Create,
    Delete,
    finalizer_removed,
    status_written,
)
from scheduler.sandbox.devcluster.controllers.ownership import uid
from scheduler.sandbox.devcluster.kinds import PERSISTENT_VOLUME, JsonObject

BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
PROVISION_AFTER_S: Final = "devcluster.affinity-scheduler.io/provision-after-seconds"
PROVISION_FAILURE: Final = "devcluster.affinity-scheduler.io/provision-failure"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
ZONE: Final = "topology.kubernetes.io/zone"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"

#: Topology of a volume: node label -> value.
Segment = Mapping[str, str]


def plan(volume: JsonObject, claim: JsonObject | None) -> list[Action]:
    """Return the next step of a volume; `claim` has the name in its claimRef, whatever its uid."""
    phase = (volume.get("status") or {}).get("phase", "")
    if volume["metadata"].get("deletionTimestamp") and phase != "Bound":
        return finalizer_removed(PERSISTENT_VOLUME, volume, VOLUME_PROTECTION)
    reference = volume["spec"].get("claimRef")
    if not reference or not reference.get("uid"):
        return _phase(volume, "Available")
    if claim is None or uid(claim) != reference["uid"]:
        return _reclaim(volume) if phase in ("Released", "Failed") else _phase(volume, "Released")
    named = (claim.get("spec") or {}).get("volumeName")
    if named and named != volume["metadata"]["name"]:
        return _phase(volume, "Released")
    # The claim's plan completes a binding.
    return _phase(volume, "Bound") if named else []


def annotation(obj: JsonObject, name: str) -> str:
    """Return an annotation, empty if it is absent."""
    return str((obj["metadata"].get("annotations") or {}).get(name) or "")


def _phase(volume: JsonObject, phase: str) -> list[Action]:
    return status_written(PERSISTENT_VOLUME, volume, {**(volume.get("status") or {}), "phase": phase})


def _reclaim(volume: JsonObject) -> list[Action]:
    is_ending = bool(volume["metadata"].get("deletionTimestamp"))
    deletes = volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
    # Only what a provisioner made can be deleted by one.
    if is_ending or not deletes or not annotation(volume, PROVISIONED_BY):
        return []
    return [Delete(PERSISTENT_VOLUME, volume)]


# -- provisioning --------------------------------------------------------------------------------------------


def is_delayed(storage_class: JsonObject | None) -> bool:
    """Return whether claims of the class wait for a scheduler, which chooses a volume or a node."""
    return (storage_class or {}).get("volumeBindingMode") == "WaitForFirstConsumer"


def provisions(storage_class: JsonObject | None) -> bool:
    """Return whether the class makes volumes."""
    return storage_class is not None and storage_class.get("provisioner") != _NO_PROVISIONER


def delay_s(storage_class: JsonObject) -> float:
    """Return how long a volume of this class takes to make."""
    text = annotation(storage_class, PROVISION_AFTER_S)
    return float(text) if text.replace(".", "", 1).isdecimal() else 0.0


def failure_of(storage_class: JsonObject) -> str:
    """Return why every volume of this class fails, empty if it does not."""
    return annotation(storage_class, PROVISION_FAILURE)


def provision(
    claim: JsonObject,
    storage_class: JsonObject,
    node: JsonObject | None,
    list_nodes: Callable[[], Iterable[JsonObject]],
) -> list[Action] | str:
    """
    Return the write that makes the claim's volume, or why there can be none.

    `node` is the selected one; None for an immediate claim, whose volume may be in the zone of any node.
    """
    nodes = list_nodes() if node is None else (node,)
    segments = _segments(storage_class, [one["metadata"].get("labels") or {} for one in nodes])
    if node is not None:
        segments = [one for one in segments if one.items() <= (node["metadata"].get("labels") or {}).items()]
    if not segments:
        return "error generating accessibility requirements: no topology key matches the selected node"
    # As upstream spreads the claims of a stateful set over zones: by name, each ordinal one further.
    stem, _, ordinal = claim["metadata"]["name"].rpartition("-")
    offset = crc32(stem.encode()) + int(ordinal) if ordinal.isdecimal() else crc32(ordinal.encode())
    return [Create(PERSISTENT_VOLUME, _volume(claim, storage_class, segments[offset % len(segments)]))]


def _segments(storage_class: JsonObject, labels: Iterable[Segment]) -> list[Segment]:
    """Return the topologies that the class allows, else the zones of nodes with these labels, else an empty one."""
    allowed: list[Segment] = []
    for term in storage_class.get("allowedTopologies") or ():
        expressions = term.get("matchLabelExpressions") or ()
        keys = [one["key"] for one in expressions]
        choices = product(*(one["values"] for one in expressions))
        allowed += [dict(zip(keys, values, strict=True)) for values in choices]
    zones = sorted({one[ZONE] for one in labels if ZONE in one})
    return allowed or [{ZONE: zone} for zone in zones] or [{}]


def _volume(claim: JsonObject, storage_class: JsonObject, segment: Segment) -> JsonObject:
    name, metadata, wanted = f"pvc-{uid(claim)}", claim["metadata"], claim["spec"]
    provisioner = storage_class["provisioner"]
    reference = {key: metadata[key] for key in ("namespace", "name", "uid", "resourceVersion")}
    spec: JsonObject = {
        "accessModes": wanted["accessModes"],
        "capacity": {"storage": wanted["resources"]["requests"]["storage"]},
        "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **reference},
        "csi": {"driver": provisioner.replace("/", "."), "volumeHandle": name, "fsType": "ext4"},
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
        "storageClassName": storage_class["metadata"]["name"],
        "volumeMode": wanted.get("volumeMode", "Filesystem"),
    }
    if segment:
        expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in segment.items()]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    own = {"name": name, "annotations": {PROVISIONED_BY: provisioner}, "finalizers": [VOLUME_PROTECTION]}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": own, "spec": spec}

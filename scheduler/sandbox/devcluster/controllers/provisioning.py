"""
The provisioner of every storage class that has one: makes volumes with topology.

A class whose annotation `PROVISION_AFTER_S` names seconds is that slow; one with `PROVISION_FAILURE` fails with that
message. Storage never runs out: CSIStorageCapacity objects are data for schedulers.

Source: external-provisioner pkg/controller/controller.go, topology.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Final
from zlib import crc32

from scheduler.sandbox.devcluster.admission.volumes import VOLUME_PROTECTION
from scheduler.sandbox.devcluster.controllers.actions import Action, Create
from scheduler.sandbox.devcluster.controllers.ownership import uid
from scheduler.sandbox.devcluster.kinds import PERSISTENT_VOLUME, JsonObject

PROVISION_AFTER_S: Final = "devcluster.affinity-scheduler.io/provision-after-seconds"
PROVISION_FAILURE: Final = "devcluster.affinity-scheduler.io/provision-failure"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
ZONE: Final = "topology.kubernetes.io/zone"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"

#: Topology of a volume: node label -> value.
Segment = Mapping[str, str]


def provisions(storage_class: JsonObject | None) -> bool:
    """Return whether the class makes volumes."""
    return storage_class is not None and storage_class.get("provisioner") != _NO_PROVISIONER


def delay_s(storage_class: JsonObject) -> float:
    """Return how long a volume of this class takes to make."""
    text = (storage_class["metadata"].get("annotations") or {}).get(PROVISION_AFTER_S, "")
    return float(text) if text.replace(".", "", 1).isdecimal() else 0.0


def failure_of(storage_class: JsonObject) -> str:
    """Return why every volume of this class fails, empty if it does not."""
    return str((storage_class["metadata"].get("annotations") or {}).get(PROVISION_FAILURE, ""))


def provision(
    claim: JsonObject,
    storage_class: JsonObject,
    node: JsonObject | None,
    nodes: Callable[[], Iterable[JsonObject]],
) -> list[Action] | str:
    """
    Return the write that makes the claim's volume, or why there can be none.

    Args:
        claim: as stored.
        storage_class: the claim's.
        node: the selected one; None for an immediate claim.
        nodes: lists the nodes whose zones an immediate claim may be in.
    """
    segments = _segments(storage_class, node, nodes)
    if not segments:
        return "error generating accessibility requirements: no topology key matches the selected node"
    # As upstream spreads the claims of a stateful set over zones: by name, each ordinal one further.
    stem, _, ordinal = claim["metadata"]["name"].rpartition("-")
    offset = crc32(stem.encode()) + int(ordinal) if ordinal.isdecimal() else crc32(ordinal.encode())
    segment = segments[offset % len(segments)]
    return [Create(PERSISTENT_VOLUME, _volume(claim, storage_class, segment))]


def _segments(
    storage_class: JsonObject, node: JsonObject | None, nodes: Callable[[], Iterable[JsonObject]]
) -> list[Segment]:
    """Return the topologies in which the volume may be, an empty one if topology does not matter."""
    allowed = _allowed(storage_class)
    if node is None:
        zones = {labels[ZONE] for one in nodes() if ZONE in (labels := one["metadata"].get("labels") or {})}
        return allowed or [{ZONE: zone} for zone in sorted(zones)] or [{}]
    labels = node["metadata"].get("labels") or {}
    if allowed:
        return [segment for segment in allowed if segment.items() <= labels.items()]
    return [{ZONE: labels[ZONE]} if ZONE in labels else {}]


def _allowed(storage_class: JsonObject) -> list[Segment]:
    found: list[Segment] = []
    for term in storage_class.get("allowedTopologies") or ():
        expressions = term.get("matchLabelExpressions") or ()
        keys = [one["key"] for one in expressions]
        found += [
            dict(zip(keys, values, strict=True))
            for values in product(*(one["values"] for one in expressions))
        ]
    return found


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
    if storage_class.get("mountOptions"):
        spec["mountOptions"] = storage_class["mountOptions"]
    if segment:
        expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in segment.items()]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "annotations": {PROVISIONED_BY: provisioner},
            "finalizers": [VOLUME_PROTECTION],
        },
        "spec": spec,
    }

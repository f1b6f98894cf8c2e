"""
The columns of volumes, claims and the kinds of storage.k8s.io.

Source: pkg/printers/internalversion/printers.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.sandbox.devcluster.printing.columns import (
    AGE,
    NAME,
    Cell,
    Column,
    MakeCell,
    Object,
    at,
    field,
    size,
)

#: In the order in which upstream prints them.
_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _access_modes(path: str) -> MakeCell:
    def make(obj: Object, _: float) -> Cell:
        modes = at(obj, path, ())
        return ",".join(short for mode, short in _MODES.items() if mode in modes)

    return make


def _phase(obj: Object, _: float) -> Cell:
    return "Terminating" if at(obj, "metadata.deletionTimestamp") else str(at(obj, "status.phase", ""))


def _claim(volume: Object, _: float) -> Cell:
    reference = at(volume, "spec.claimRef", {})
    return f"{reference.get('namespace', '')}/{reference.get('name', '')}" if reference else ""


def _if_bound(make_cell: MakeCell) -> MakeCell:
    return lambda claim, now_s: make_cell(claim, now_s) if at(claim, "spec.volumeName") else ""


def _class_name(storage_class: Object, _: float) -> Cell:
    annotations = at(storage_class, "metadata.annotations", {})
    is_default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    return f"{storage_class['metadata']['name']}{' (default)' if is_default else ''}"


def _token_requests(driver: Object, _: float) -> Cell:
    return ",".join(one.get("audience", "") for one in at(driver, "spec.tokenRequests", ())) or "<unset>"


_CLASS: Final = Column("StorageClass", field("spec.storageClassName"))
_ATTRIBUTES: Final = Column("VolumeAttributesClass", field("spec.volumeAttributesClassName", "<unset>"))
_VOLUME_MODE: Final = Column("VolumeMode", field("spec.volumeMode", "<unset>"), wide=True)

STORAGE: Final[Mapping[str, tuple[Column, ...]]] = {
    "PersistentVolume": (
        NAME,
        Column("Capacity", field("spec.capacity.storage")),
        Column("Access Modes", _access_modes("spec.accessModes")),
        Column("Reclaim Policy", field("spec.persistentVolumeReclaimPolicy")),
        Column("Status", _phase),
        Column("Claim", _claim),
        _CLASS,
        _ATTRIBUTES,
        Column("Reason", field("status.reason")),
        AGE,
        _VOLUME_MODE,
    ),
    "PersistentVolumeClaim": (
        NAME,
        Column("Status", _phase),
        Column("Volume", field("spec.volumeName")),
        Column("Capacity", _if_bound(field("status.capacity.storage"))),
        Column("Access Modes", _if_bound(_access_modes("status.accessModes"))),
        _CLASS,
        _ATTRIBUTES,
        AGE,
        _VOLUME_MODE,
    ),
    "StorageClass": (
        Column("Name", _class_name),
        Column("Provisioner", field("provisioner")),
        Column("ReclaimPolicy", field("reclaimPolicy", "Delete")),
        Column("VolumeBindingMode", field("volumeBindingMode", "Immediate")),
        Column("AllowVolumeExpansion", field("allowVolumeExpansion", default=False)),
        AGE,
    ),
    "CSIDriver": (
        NAME,
        Column("AttachRequired", field("spec.attachRequired", default=True), "boolean"),
        Column("PodInfoOnMount", field("spec.podInfoOnMount", default=False), "boolean"),
        Column("StorageCapacity", field("spec.storageCapacity", default=False), "boolean"),
        Column("TokenRequests", _token_requests),
        Column("RequiresRepublish", field("spec.requiresRepublish", default=False), "boolean"),
        Column("Modes", lambda driver, _: ",".join(at(driver, "spec.volumeLifecycleModes", ()))),
        AGE,
    ),
    "CSINode": (NAME, Column("Drivers", size("spec.drivers"), "integer"), AGE),
    "VolumeAttachment": (
        NAME,
        Column("Attacher", field("spec.attacher")),
        Column("PV", field("spec.source.persistentVolumeName")),
        Column("Node", field("spec.nodeName")),
        Column("Attached", field("status.attached", default=False), "boolean"),
        AGE,
    ),
}

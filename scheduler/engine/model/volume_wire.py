"""PersistentVolumes, claims and the objects of CSI drivers as they are in JSON: only the fields that are read."""

from __future__ import annotations

from typing import Annotated

import msgspec

from scheduler.engine.model.wire import (
    LabelSelector,
    Metadata,
    MigratedDisk,
    NodeSelector,
    QuantityText,
    Wire,
)


class Requests(Wire, frozen=True):
    """spec.resources of a claim."""

    requests: dict[str, QuantityText] | None = None


class ClaimSpec(Wire, frozen=True):
    """spec of a claim."""

    access_modes: tuple[str, ...] | None = None
    selector: LabelSelector | None = None
    resources: Requests = Requests()
    volume_name: str | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class Phase(Wire, frozen=True):
    """status of a claim or volume."""

    phase: str | None = None


class Claim(Wire, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: Metadata
    spec: ClaimSpec = ClaimSpec()
    status: Phase = Phase()


class ClaimReference(Wire, frozen=True):
    """spec.claimRef of a volume."""

    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


class VolumeAffinity(Wire, frozen=True):
    """spec.nodeAffinity of a volume."""

    required: NodeSelector | None = None


class CsiSource(Wire, frozen=True):
    """spec.csi of a volume."""

    driver: str = ""
    volume_handle: str = ""


class VolumeSpec(MigratedDisk, frozen=True):
    """spec of a volume."""

    capacity: dict[str, QuantityText] | None = None
    access_modes: tuple[str, ...] | None = None
    claim_ref: ClaimReference | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeAffinity | None = None
    csi: CsiSource | None = None


class Volume(Wire, frozen=True):
    """A PersistentVolume."""

    metadata: Metadata
    spec: VolumeSpec = VolumeSpec()
    status: Phase = Phase()


class TopologyRequirement(Wire, frozen=True):
    """allowedTopologies[].matchLabelExpressions[]."""

    key: str = ""
    values: tuple[str, ...] | None = None


class TopologyTerm(Wire, frozen=True):
    """allowedTopologies[] of a class."""

    match_label_expressions: tuple[TopologyRequirement, ...] | None = None


class StorageClass(Wire, frozen=True):
    """A StorageClass."""

    metadata: Metadata
    provisioner: str | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologyTerm, ...] | None = None


class Allocatable(Wire, frozen=True):
    """spec.drivers[].allocatable of a CSINode."""

    count: Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)] | None = None


class CsiNodeDriver(Wire, frozen=True):
    """spec.drivers[] of a CSINode."""

    name: str = ""
    allocatable: Allocatable | None = None


class CsiNodeSpec(Wire, frozen=True):
    """spec of a CSINode."""

    drivers: tuple[CsiNodeDriver, ...] | None = None


class CsiNode(Wire, frozen=True):
    """A CSINode."""

    metadata: Metadata
    spec: CsiNodeSpec = CsiNodeSpec()


class CsiDriverSpec(Wire, frozen=True):
    """spec of a CSIDriver."""

    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CsiDriver(Wire, frozen=True):
    """A CSIDriver."""

    metadata: Metadata
    spec: CsiDriverSpec = CsiDriverSpec()


class CsiStorageCapacity(Wire, frozen=True):
    """A CSIStorageCapacity."""

    metadata: Metadata
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: QuantityText = None
    maximum_volume_size: QuantityText = None


class AttachmentSource(Wire, frozen=True):
    """spec.source of a VolumeAttachment."""

    persistent_volume_name: str | None = None


class AttachmentSpec(Wire, frozen=True):
    """spec of a VolumeAttachment."""

    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(Wire, frozen=True):
    """A VolumeAttachment."""

    metadata: Metadata
    spec: AttachmentSpec = AttachmentSpec()

"""
PersistentVolumes, their claims, and what CSI drivers say of their nodes, as the scheduler reads them.

Source: component-helpers/storage/volume (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from scheduler.engine.model import disks
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.terms import NodeTerm
from scheduler.engine.syntax.selectors import Selector

BETA_ZONE_KEY: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION_KEY: Final = "failure-domain.beta.kubernetes.io/region"
ZONE_KEY: Final = "topology.kubernetes.io/zone"
REGION_KEY: Final = "topology.kubernetes.io/region"
#: The labels of a volume that VolumeZone reads.
TOPOLOGY_KEYS: Final = (BETA_ZONE_KEY, BETA_REGION_KEY, ZONE_KEY, REGION_KEY)

READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
#: The provisioner of classes whose volumes are made by hand.
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"

#: Between the zones of a volume that is in several.
ZONE_SEPARATOR: Final = "__"


class StorageKind(StrEnum):
    """The kinds of which volumes are made."""

    VOLUME = "PersistentVolume"
    CLAIM = "PersistentVolumeClaim"
    CLASS = "StorageClass"
    CSI_NODE = "CSINode"
    CSI_DRIVER = "CSIDriver"
    CAPACITY = "CSIStorageCapacity"
    ATTACHMENT = "VolumeAttachment"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class VolumeTopology:
    """
    The nodes that can reach a volume or a pool: all that match one of the terms.

    Compared and hashed by identity: a decoder returns the same object for equal terms.
    """

    terms: tuple[NodeTerm, ...]


@dataclass(frozen=True, slots=True)
class PersistentVolumeClaim:
    """
    One claim.

    Attributes:
        key: `namespace/name`.
        requested_bytes: None if no storage is requested, which leaves capacities unchecked.
        selector: None selects every volume.
        selected_node: the node that a scheduler chose for its volume; None without the annotation.
        owner_uid: of the controller; empty without one.
    """

    key: str
    uid: str
    resource_version: str = field(compare=False)
    class_name: str
    volume_name: str
    access_modes: tuple[str, ...]
    volume_mode: str
    attributes_class: str
    requested_bytes: int | None
    selector: Selector | None
    selected_node: str | None
    is_bind_completed: bool
    is_lost: bool
    terminating: bool
    owner_uid: str

    kind = StorageKind.CLAIM

    @property
    def namespace(self) -> str:
        """The claim's namespace."""
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        """The claim's name."""
        return self.key.partition("/")[2]

    @property
    def is_bound(self) -> bool:
        """Whether the claim is fully bound; its phase does not matter."""
        return self.is_bind_completed and self.volume_name != ""


class ClaimReference(NamedTuple):
    """The claim to which a volume is promised: `namespace/name`, and its UID, which may be empty."""

    key: str
    uid: str


@dataclass(frozen=True, slots=True)
class PersistentVolume:
    """
    One volume.

    Attributes:
        topology: None if every node can reach it.
        driver: its CSI driver, or the driver to which its in-tree plugin was migrated; empty without either.
        handle: its name at that driver.
        plugin: the in-tree plugin that it names instead of a driver.
        migrated_topology: `topology` on nodes where the in-tree plugin was migrated.
    """

    key: str
    resource_version: str = field(compare=False)
    class_name: str
    capacity_bytes: int
    access_modes: tuple[str, ...]
    volume_mode: str
    attributes_class: str
    claim: ClaimReference | None
    is_available: bool
    terminating: bool
    labels: Mapping[str, str] = field(hash=False)
    topology: VolumeTopology | None
    driver: str
    handle: str
    plugin: str
    migrated_topology: VolumeTopology | None

    kind = StorageKind.VOLUME

    @property
    def is_free(self) -> bool:
        """Whether any fitting claim may take the volume."""
        return self.claim is None and self.is_available and not self.terminating

    @property
    def is_limited(self) -> bool:
        """Whether the volume counts against the limits of its driver."""
        return self.driver != "" and (not self.plugin or disks.MIGRATIONS[self.plugin].is_limited)

    def is_for(self, claim: PersistentVolumeClaim) -> bool:
        """Return whether the volume was made for the claim, or promised to it."""
        if self.claim is None or self.claim.key != claim.key:
            return False
        return not self.claim.uid or self.claim.uid == claim.uid


@dataclass(frozen=True, slots=True)
class StorageClass:
    """
    A class.

    Attributes:
        binding_mode: None if not set.
        allowed_topologies: empty allows all nodes.
        default_since: when the class was created, if claims without a class get it; else None. No decision reads it.
    """

    key: str
    resource_version: str = field(compare=False)
    provisioner: str
    binding_mode: str | None
    allowed_topologies: tuple[NodeTerm, ...]
    default_since: str | None = field(default=None, compare=False)

    kind = StorageKind.CLASS

    @property
    def waits(self) -> bool:
        """Whether claims of the class wait for a pod that uses them."""
        return self.binding_mode == WAIT_FOR_FIRST_CONSUMER


@dataclass(frozen=True, slots=True)
class CsiNode:
    """The drivers of the node of that name. `limits`: volumes that a driver can attach, where it says so."""

    key: str
    resource_version: str = field(compare=False)
    drivers: frozenset[str]
    limits: Mapping[str, int] = field(hash=False)
    migrated_plugins: frozenset[str]

    kind = StorageKind.CSI_NODE


@dataclass(frozen=True, slots=True)
class CsiDriver:
    """A driver, whether it publishes capacities, and whether its volumes keep pods from nodes without it."""

    key: str
    resource_version: str = field(compare=False)
    tracks_capacity: bool
    is_required: bool = False

    kind = StorageKind.CSI_DRIVER


@dataclass(frozen=True, slots=True)
class CsiStorageCapacity:
    """
    The room for volumes of a class in a pool.

    Attributes:
        limit_bytes: the most that one volume may have; None if unknown, which is not enough for any volume.
        capacity_bytes: the room of the pool; 0 if unknown.
        is_accessible: False if no node can reach the pool.
        topology: None if every node can reach it.
    """

    key: str
    resource_version: str = field(compare=False)
    class_name: str
    limit_bytes: int | None
    capacity_bytes: int
    is_accessible: bool
    topology: VolumeTopology | None

    kind = StorageKind.CAPACITY


@dataclass(frozen=True, slots=True)
class VolumeAttachment:
    """A volume that a driver attaches to a node. `volume_name`: empty for an inline volume."""

    key: str
    resource_version: str = field(compare=False)
    attacher: str
    node_name: str
    volume_name: str

    kind = StorageKind.ATTACHMENT


StorageObject = (
    PersistentVolumeClaim
    | PersistentVolume
    | StorageClass
    | CsiNode
    | CsiDriver
    | CsiStorageCapacity
    | VolumeAttachment
)


def no_such(kind: StorageKind, name: str) -> str:
    """Return the message that an object does not exist."""
    group = ".storage.k8s.io" if kind is StorageKind.CLASS else ""
    return f'{kind.lower()}{group} "{name}" not found'


def not_owned(claim: PersistentVolumeClaim, pod: Pod) -> str:
    """Return the message that the claim of an ephemeral volume belongs to another pod."""
    return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"


def zones_of(label: str) -> frozenset[str]:
    """Return the values of a volume's zone or region label; none if one is empty, which makes the label void."""
    values = frozenset(part.strip() for part in label.split(ZONE_SEPARATOR))
    return frozenset() if "" in values else values

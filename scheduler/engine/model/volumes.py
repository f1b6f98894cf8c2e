"""Volumes, claims, and what CSI drivers say of nodes. Source: component-helpers/storage/volume (kubernetes 1.36)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from sys import intern
from typing import Annotated, Any, Final, NamedTuple, get_args, get_type_hints

from scheduler.engine.model import disks
from scheduler.engine.model.affinity import label_selector
from scheduler.engine.model.disks import BETA_REGION_KEY, BETA_ZONE_KEY, REGION_KEY, ZONE_SEPARATOR
from scheduler.engine.model.json_fields import (
    UNREAD,
    At,
    Name,
    NamespacedKey,
    Reader,
    ResourceVersion,
    Terminating,
    Uid,
    annotation,
    is_given,
)
from scheduler.engine.model.node_selector import NodeSelector
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.semantics import Gate, Semantics
from scheduler.engine.model.terms import ZONE_KEY, NodeRequirement, NodeTerm
from scheduler.engine.model.wire import (
    Int32,
    LabelSelector,
    MalformedObjectError,
    MigratedDisk,
    QuantityText,
    Wire,
)
from scheduler.engine.syntax.quantity import parse_quantity
from scheduler.engine.syntax.selectors import Selector

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


class StorageKind(StrEnum):
    """The kinds of object that describe volumes."""

    VOLUME = "PersistentVolume"
    CLAIM = "PersistentVolumeClaim"
    CLASS = "StorageClass"
    CSI_NODE = "CSINode"
    CSI_DRIVER = "CSIDriver"
    CAPACITY = "CSIStorageCapacity"
    ATTACHMENT = "VolumeAttachment"


@lru_cache(maxsize=4096)
def _topology(terms: tuple[NodeTerm, ...] | None) -> NodeSelector | None:
    """Return the selector with these terms, the same for equal ones: thousands of volumes have a few. None for all."""
    return None if terms is None else NodeSelector(terms)


def _class_name(annotated: str | None, name: str) -> str:
    return intern(name if annotated is None else annotated)


def _modes(modes: tuple[str, ...]) -> tuple[str, ...]:
    return _shared_modes(tuple(sorted(set(modes))))


@lru_cache(maxsize=64)
def _shared_modes(modes: tuple[str, ...]) -> tuple[str, ...]:
    """Return one list for each set of the four modes: a server stores any list of these."""
    return modes


def _mode(mode: str) -> str:
    return intern(mode or "Filesystem")


@lru_cache(maxsize=1024)
def _n_bytes(amount: QuantityText) -> int:
    """Return the number of bytes; equal amounts share one number, so that 50,000 volumes of a few sizes take few."""
    return parse_quantity(0 if amount is None else amount).value()


def _storage(amounts: Mapping[str, QuantityText]) -> int:
    return _n_bytes(amounts.get("storage"))


class Controller(Wire, frozen=True):
    """metadata.ownerReferences[] of a claim."""

    uid: str = ""
    controller: bool | None = None


def _controller(owners: tuple[Controller, ...]) -> str:
    return next((owner.uid for owner in owners if owner.controller), "")


_ClassName = Annotated[
    str,
    At(annotation(CLASS_ANNOTATION), ("spec.storageClassName",), of=(str | None, str), parse=_class_name),
]
_Modes = Annotated[tuple[str, ...], At("spec.accessModes", parse=_modes)]
_Mode = Annotated[str, At("spec.volumeMode", parse=_mode)]
_AttributesClass = Annotated[str, At("spec.volumeAttributesClassName", parse=intern)]


@dataclass(frozen=True, slots=True)
class PersistentVolumeClaim:
    """
    One claim.

    Attributes:
        requested_bytes: 0 if no storage is requested, which leaves capacities unchecked.
        selector: None selects every volume.
        selected_node: the node that a scheduler chose for its volume; None without the annotation.
        owner_uid: of the controller; empty without one.
    """

    key: NamespacedKey
    uid: Uid
    resource_version: ResourceVersion = field(compare=False)
    class_name: _ClassName
    volume_name: Annotated[str, At("spec.volumeName", parse=intern)]
    access_modes: _Modes
    volume_mode: _Mode
    attributes_class: _AttributesClass
    requested_bytes: Annotated[int, At("spec.resources.requests", of=dict[str, QuantityText], parse=_storage)]
    selector: Annotated[Selector | None, At("spec.selector", of=LabelSelector, parse=label_selector)]
    selected_node: Annotated[str | None, At(annotation(SELECTED_NODE), parse=intern)]
    is_bind_completed: Annotated[bool, At(annotation(BIND_COMPLETED), of=str | None, parse=is_given)]
    is_lost: Annotated[bool, At("status.phase", of=str, parse="Lost".__eq__)]
    terminating: Terminating
    owner_uid: Annotated[str, At("metadata.ownerReferences", of=tuple[Controller, ...], parse=_controller)]

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


def _claim(name: str, namespace: str, uid: str) -> ClaimReference | None:
    return ClaimReference(intern(f"{namespace}/{name}"), intern(uid)) if name else None


class VolumeSource(NamedTuple):
    """
    What a volume is at its driver, and where it can be reached.

    Attributes:
        topology: None if every node can reach it.
        driver: its CSI driver, or the driver to which its in-tree plugin was migrated; empty without either.
        plugin: the in-tree plugin that it names instead of a driver.
        migrated_topology: `topology` on nodes where the in-tree plugin was migrated.
    """

    topology: NodeSelector | None
    driver: str
    handle: str
    plugin: str
    migrated_topology: NodeSelector | None


def _source(
    csi_driver: str,
    csi_handle: str,
    required: NodeSelector | None,
    labels: Mapping[str, str],
    *in_tree: Any,  # noqa: ANN401 - as fields of MigratedDisk
) -> VolumeSource:
    terms = None if required is None else required.terms
    topology = _topology(terms)
    if csi_driver:
        return VolumeSource(topology, intern(csi_driver), csi_handle, "", topology)
    disk = disks.migrated_disk(MigratedDisk(*in_tree))
    if disk is None:
        return VolumeSource(topology, "", "", "", topology)
    return VolumeSource(
        topology,
        disks.MIGRATIONS[disk.plugin].driver,
        disks.migrated_handle(disk, labels),
        disk.plugin,
        _topology(disks.migrated_terms(disk.plugin, terms, labels)),
    )


_SOURCE: Final = At(
    "spec.csi.driver",
    (
        "spec.csi.volumeHandle",
        "spec.nodeAffinity.required",
        "metadata.labels",
        "spec.gcePersistentDisk",
        "spec.awsElasticBlockStore",
        "spec.azureDisk",
        "spec.cinder",
        "spec.portworxVolume",
    ),
    of=(
        str,
        str,
        NodeSelector | None,
        dict[str, str],
        *get_type_hints(MigratedDisk).values(),
    ),
    parse=_source,
)


@dataclass(frozen=True, slots=True)
class PersistentVolume:
    """One volume; `claim`: to which it is promised."""

    key: Name
    resource_version: ResourceVersion = field(compare=False)
    class_name: _ClassName
    capacity_bytes: Annotated[int, At("spec.capacity", of=dict[str, QuantityText], parse=_storage)]
    access_modes: _Modes
    volume_mode: _Mode
    attributes_class: _AttributesClass
    claim: Annotated[
        ClaimReference | None,
        At("spec.claimRef.name", ("spec.claimRef.namespace", "spec.claimRef.uid"), parse=_claim),
    ]
    is_available: Annotated[bool, At("status.phase", of=str, parse="Available".__eq__)]
    terminating: Terminating
    labels: Annotated[Mapping[str, str], At("metadata.labels")] = field(hash=False)
    source: Annotated[VolumeSource, _SOURCE]

    kind = StorageKind.VOLUME

    @property
    def is_free(self) -> bool:
        """Whether any fitting claim may take the volume."""
        return self.claim is None and self.is_available and not self.terminating

    @property
    def is_limited(self) -> bool:
        """Whether the volume counts against the limits of its driver."""
        driver, plugin = self.source.driver, self.source.plugin
        return driver != "" and (not plugin or disks.MIGRATIONS[plugin].is_limited)

    def is_for(self, claim: PersistentVolumeClaim) -> bool:
        """Return whether the volume was made for the claim, or promised to it."""
        if self.claim is None or self.claim.key != claim.key:
            return False
        return not self.claim.uid or self.claim.uid == claim.uid


class TopologyRequirement(Wire, frozen=True):
    """allowedTopologies[].matchLabelExpressions[] of a class."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(Wire, frozen=True):
    """allowedTopologies[] of a class."""

    match_label_expressions: tuple[TopologyRequirement, ...] = ()


def _allowed(terms: tuple[TopologyTerm, ...]) -> tuple[NodeTerm, ...]:
    return tuple(
        NodeTerm(
            tuple(NodeRequirement(each.key, "In", each.values) for each in term.match_label_expressions), ()
        )
        for term in terms
    )


def _default_since(is_default: str, created: str) -> str | None:
    return created if is_default == "true" else None


@dataclass(frozen=True, slots=True)
class StorageClass:
    """
    A class.

    Attributes:
        allowed_topologies: empty allows all nodes.
        default_since: when the class was created, if claims without a class get it; else None. No decision reads it.
    """

    key: Name
    resource_version: ResourceVersion = field(compare=False)
    provisioner: str
    binding_mode: Annotated[str | None, At("volumeBindingMode")]
    allowed_topologies: Annotated[tuple[NodeTerm, ...], At(of=tuple[TopologyTerm, ...], parse=_allowed)]
    default_since: Annotated[
        str | None, At(annotation(DEFAULT_CLASS), ("metadata.creationTimestamp",), parse=_default_since)
    ] = field(default=None, compare=False)

    kind = StorageKind.CLASS

    @property
    def waits(self) -> bool:
        """Whether claims of the class wait for a pod that uses them."""
        return self.binding_mode == WAIT_FOR_FIRST_CONSUMER


@dataclass(frozen=True, slots=True)
class CsiNodeDriver:
    """spec.drivers[] of a CSINode. `limit`: of volumes; None if it says none."""

    name: Annotated[str, At(parse=intern)]
    limit: Annotated[Int32 | None, At("allocatable.count")]


def _names(drivers: tuple[CsiNodeDriver, ...]) -> frozenset[str]:
    return frozenset(driver.name for driver in drivers)


def _limits(drivers: tuple[CsiNodeDriver, ...]) -> Mapping[str, int]:
    return {driver.name: driver.limit for driver in drivers if driver.limit is not None}


def _plugins(names: str) -> frozenset[str]:
    return frozenset(names.split(",")) if names else frozenset()


@dataclass(frozen=True, slots=True)
class CsiNode:
    """The drivers of the node of that name. `limits`: volumes that a driver can attach, where it says so."""

    key: Name
    resource_version: ResourceVersion = field(compare=False)
    drivers: Annotated[frozenset[str], At("spec.drivers", of=tuple[CsiNodeDriver, ...], parse=_names)]
    limits: Annotated[Mapping[str, int], At("spec.drivers", of=tuple[CsiNodeDriver, ...], parse=_limits)] = (
        field(hash=False)
    )
    migrated_plugins: Annotated[frozenset[str], At(annotation(MIGRATED_PLUGINS), of=str, parse=_plugins)]

    kind = StorageKind.CSI_NODE


@dataclass(frozen=True, slots=True)
class CsiDriver:
    """A driver, whether it publishes capacities, and whether its volumes keep pods from nodes without it."""

    key: Name
    resource_version: ResourceVersion = field(compare=False)
    tracks_capacity: Annotated[bool, At("spec.storageCapacity")]
    is_required: Annotated[bool, At("spec.preventPodSchedulingIfMissing")] = False

    kind = StorageKind.CSI_DRIVER


def _pool_key(namespace: str, name: str) -> str:
    if not name:
        raise MalformedObjectError("metadata.name is required")
    return f"{namespace}/{name}"


def _limit(largest: QuantityText, room: QuantityText) -> int | None:
    limit = room if largest is None else largest
    return None if limit is None else _n_bytes(limit)


def _segment(raw: LabelSelector) -> NodeSelector | None:
    requirements = label_selector(raw).requirements
    if not requirements:
        return None
    return _topology((NodeTerm(tuple(NodeRequirement(*each) for each in requirements), ()),))


@dataclass(frozen=True, slots=True)
class CsiStorageCapacity:
    """
    The room for volumes of a class in a pool.

    Attributes:
        limit_bytes: the most that one volume may have; None if unknown, which suits no volume.
        capacity_bytes: the room of the pool; 0 if unknown.
        is_accessible: False if no node can reach the pool.
        topology: None if every node can reach it.
    """

    key: Annotated[str, At("metadata.namespace", ("metadata.name",), parse=_pool_key)]
    resource_version: ResourceVersion = field(compare=False)
    class_name: Annotated[str, At("storageClassName", parse=intern)]
    limit_bytes: Annotated[int | None, At("maximumVolumeSize", ("capacity",), of=QuantityText, parse=_limit)]
    capacity_bytes: Annotated[int, At("capacity", of=QuantityText, parse=_n_bytes)]
    is_accessible: Annotated[bool, At("nodeTopology", of=LabelSelector | None, parse=is_given)]
    topology: Annotated[NodeSelector | None, At("nodeTopology", of=LabelSelector, parse=_segment)]

    kind = StorageKind.CAPACITY


@dataclass(frozen=True, slots=True)
class VolumeAttachment:
    """A volume that a driver attaches to a node. `volume_name`: empty for an inline volume."""

    key: Name
    resource_version: ResourceVersion = field(compare=False)
    attacher: Annotated[str, At("spec.attacher", parse=intern)]
    node_name: Annotated[str, At("spec.nodeName", parse=intern)]
    volume_name: Annotated[str, At("spec.source.persistentVolumeName")]

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


STORAGE: Final = {each.kind: Reader(each) for each in get_args(StorageObject)}


def storage_reader(kind: StorageKind, semantics: Semantics) -> Reader[Any]:
    """Return what decodes objects of the kind; a field whose gate is off is absent."""
    is_gated = kind is StorageKind.CSI_DRIVER and not semantics.enabled(Gate.VOLUME_LIMIT_SCALING)
    return Reader(CsiDriver, is_required=UNREAD) if is_gated else STORAGE[kind]


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

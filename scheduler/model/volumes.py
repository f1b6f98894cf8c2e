"""
PersistentVolumes, their claims, and what CSI drivers say of their nodes, as the scheduler reads them.

Source: component-helpers/storage/volume, csi-translation-lib/plugins (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from sys import intern
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from scheduler.model import disks, nesting, volume_wire, wire
from scheduler.model.affinity import label_selector, parse_node_term
from scheduler.model.pods import Pod
from scheduler.model.terms import NodeRequirement, NodeTerm
from scheduler.model.wire import MalformedObjectError, QuantityText
from scheduler.syntax.quantity import QuantityError, parse_quantity
from scheduler.syntax.selectors import Selector, SelectorError

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

_ZONE_SEPARATOR: Final = "__"

_NO_LABELS: Final[Mapping[str, str]] = {}


class StorageKind(StrEnum):
    """The kinds that volumes are made of."""

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
    The nodes that can reach a volume or a pool: those that match one of the terms.

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
        """Whether it is fully bound; its phase does not matter."""
        return self.is_bind_completed and self.volume_name != ""


class ClaimReference(NamedTuple):
    """The claim that a volume is for: `namespace/name`, and its UID or nothing."""

    key: str
    uid: str


@dataclass(frozen=True, slots=True)
class PersistentVolume:
    """
    One volume.

    Attributes:
        topology: None if every node can reach it.
        driver: its CSI driver; empty if it has none and no in-tree plugin that was migrated to one.
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
        """Whether a claim may take it that it was not made for."""
        return self.claim is None and self.is_available and not self.terminating

    @property
    def is_limited(self) -> bool:
        """Whether it counts against the limits of its driver."""
        return self.driver != "" and (not self.plugin or disks.MIGRATIONS[self.plugin].is_limited)

    def is_for(self, claim: PersistentVolumeClaim) -> bool:
        """Return whether it was made for the claim, or promised to it."""
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
        default_since: when it was created, if claims without a class get it; None if they do not. No decision reads it.
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
    limits: Mapping[str, int] = field(hash=False)
    migrated_plugins: frozenset[str]

    kind = StorageKind.CSI_NODE


@dataclass(frozen=True, slots=True)
class CsiDriver:
    """A driver, and whether it publishes capacities."""

    key: str
    resource_version: str = field(compare=False)
    tracks_capacity: bool

    kind = StorageKind.CSI_DRIVER


@dataclass(frozen=True, slots=True)
class CsiStorageCapacity:
    """
    What is left for volumes of a class in a pool.

    Attributes:
        limit_bytes: of one volume; None if unknown, which is not enough for any.
        is_accessible: False if no node can reach the pool.
        topology: None if every node can reach it.
    """

    key: str
    resource_version: str = field(compare=False)
    class_name: str
    limit_bytes: int | None
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


class StorageDecoder:
    """Decodes JSON into these objects; those of one decoder share equal topologies, so use one per process."""

    def __init__(self) -> None:
        self._claim = msgspec.json.Decoder(volume_wire.Claim)
        self._volume = msgspec.json.Decoder(volume_wire.Volume)
        self._class = msgspec.json.Decoder(volume_wire.StorageClass)
        self._csi_node = msgspec.json.Decoder(volume_wire.CsiNode)
        self._csi_driver = msgspec.json.Decoder(volume_wire.CsiDriver)
        self._capacity = msgspec.json.Decoder(volume_wire.CsiStorageCapacity)
        self._attachment = msgspec.json.Decoder(volume_wire.VolumeAttachment)
        self._topologies: WeakValueDictionary[tuple[NodeTerm, ...], VolumeTopology] = WeakValueDictionary()
        self._access_modes: dict[tuple[str, ...], tuple[str, ...]] = {}

    def decode(self, kind: StorageKind, data: bytes | msgspec.Raw) -> StorageObject:
        """Return the object of a JSON document; raise MalformedObjectError, which names field and problem."""
        try:
            match kind:
                case StorageKind.CLAIM:
                    return self._claim_of(nesting.read(self._claim.decode, data))
                case StorageKind.VOLUME:
                    return self._volume_of(nesting.read(self._volume.decode, data))
                case StorageKind.CLASS:
                    return _class_of(nesting.read(self._class.decode, data))
                case StorageKind.CSI_NODE:
                    return _csi_node_of(nesting.read(self._csi_node.decode, data))
                case StorageKind.CSI_DRIVER:
                    return _csi_driver_of(nesting.read(self._csi_driver.decode, data))
                case StorageKind.CAPACITY:
                    return self._capacity_of(nesting.read(self._capacity.decode, data))
                case StorageKind.ATTACHMENT:
                    return _attachment_of(nesting.read(self._attachment.decode, data))
        except (
            msgspec.DecodeError,
            QuantityError,
            SelectorError,
            UnicodeDecodeError,
            RecursionError,
        ) as error:
            raise MalformedObjectError(f"{kind}: {error}") from error

    def _claim_of(self, raw: volume_wire.Claim) -> PersistentVolumeClaim:
        meta, spec = raw.metadata, raw.spec
        if not meta.name or not meta.namespace:
            raise MalformedObjectError(
                "PersistentVolumeClaim: metadata.name and metadata.namespace are required"
            )
        annotations = meta.annotations or _NO_LABELS
        owners, selected_node = meta.owner_references or (), annotations.get(SELECTED_NODE)
        return PersistentVolumeClaim(
            key=f"{meta.namespace}/{meta.name}",
            uid=meta.uid or "",
            resource_version=meta.resource_version,
            class_name=_class_name(annotations, spec.storage_class_name),
            volume_name=spec.volume_name or "",
            access_modes=self._shared_modes(spec.access_modes),
            volume_mode=intern(spec.volume_mode or "Filesystem"),
            attributes_class=intern(spec.volume_attributes_class_name or ""),
            requested_bytes=_storage_bytes(spec.resources.requests),
            selector=None if spec.selector is None else label_selector(spec.selector),
            selected_node=None if selected_node is None else intern(selected_node),
            is_bind_completed=BIND_COMPLETED in annotations,
            is_lost=raw.status.phase == "Lost",
            terminating=meta.deletion_timestamp is not None,
            owner_uid=next((owner.uid for owner in owners if owner.controller), ""),
        )

    def _volume_of(self, raw: volume_wire.Volume) -> PersistentVolume:
        spec, labels = raw.spec, raw.metadata.labels or _NO_LABELS
        claim = spec.claim_ref
        required = spec.node_affinity.required if spec.node_affinity else None
        terms = None if required is None else tuple(map(parse_node_term, required.node_selector_terms or ()))
        plugin = _plugin_of(spec)
        migrated = _migrated_terms(plugin, terms, labels) if plugin else terms
        return PersistentVolume(
            key=_name(StorageKind.VOLUME, raw.metadata),
            resource_version=raw.metadata.resource_version,
            class_name=_class_name(raw.metadata.annotations or _NO_LABELS, spec.storage_class_name),
            capacity_bytes=_storage_bytes(spec.capacity) or 0,
            access_modes=self._shared_modes(spec.access_modes),
            volume_mode=intern(spec.volume_mode or "Filesystem"),
            attributes_class=intern(spec.volume_attributes_class_name or ""),
            claim=ClaimReference(f"{claim.namespace or ''}/{claim.name or ''}", claim.uid or "")
            if claim
            else None,
            is_available=raw.status.phase == "Available",
            terminating=raw.metadata.deletion_timestamp is not None,
            labels=labels,
            topology=self._shared_topology(terms),
            driver=intern(disks.MIGRATIONS[plugin].driver if plugin else spec.csi.driver if spec.csi else ""),
            handle=_migrated_handle(plugin, spec, labels)
            if plugin
            else (spec.csi.volume_handle if spec.csi else ""),
            plugin=plugin,
            migrated_topology=self._shared_topology(migrated),
        )

    def _capacity_of(self, raw: volume_wire.CsiStorageCapacity) -> CsiStorageCapacity:
        limit = raw.capacity if raw.maximum_volume_size is None else raw.maximum_volume_size
        selector = None if raw.node_topology is None else label_selector(raw.node_topology)
        terms = None
        if selector is not None and selector.requirements:
            expressions = tuple(NodeRequirement(*requirement) for requirement in selector.requirements)
            terms = (NodeTerm(expressions, ()),)
        meta = raw.metadata
        return CsiStorageCapacity(
            key=f"{meta.namespace or ''}/{_name(StorageKind.CAPACITY, meta)}",
            resource_version=meta.resource_version,
            class_name=raw.storage_class_name,
            limit_bytes=None if limit is None else parse_quantity(limit).value(),
            is_accessible=selector is not None,
            topology=self._shared_topology(terms),
        )

    def _shared_topology(self, terms: tuple[NodeTerm, ...] | None) -> VolumeTopology | None:
        if terms is None:
            return None
        shared = self._topologies.get(terms)
        if shared is None:
            shared = self._topologies[terms] = VolumeTopology(terms)
        return shared

    def _shared_modes(self, modes: tuple[str, ...] | None) -> tuple[str, ...]:
        # At most as many as there are sets of the four modes: a server stores any list of these.
        once_each = tuple(sorted(set(modes or ())))
        return self._access_modes.setdefault(once_each, once_each)


def is_older(version: str, than: str) -> bool:
    """Return whether a resourceVersion is older: they are numbers without a limit (KEP-5504, kubernetes 1.35)."""
    return (len(version), version) < (len(than), than)


def no_such(kind: StorageKind, name: str) -> str:
    """Return what is said of an object that is not there."""
    group = ".storage.k8s.io" if kind is StorageKind.CLASS else ""
    return f'{kind.lower()}{group} "{name}" not found'


def not_owned(claim: PersistentVolumeClaim, pod: Pod) -> str:
    """Return what is said of an ephemeral volume's claim that belongs to another pod."""
    return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"


def zones_of(label: str) -> frozenset[str]:
    """Return the values of a volume's zone or region label; none if one is empty, which makes the label void."""
    values = frozenset(part.strip() for part in label.split(_ZONE_SEPARATOR))
    return frozenset() if "" in values else values


def _name(kind: StorageKind, meta: wire.Metadata | volume_wire.ClassMetadata) -> str:
    if not meta.name:
        raise MalformedObjectError(f"{kind}: metadata.name is required")
    return meta.name


def _class_name(annotations: Mapping[str, str], name: str | None) -> str:
    annotated = annotations.get(CLASS_ANNOTATION)
    return intern((name or "") if annotated is None else annotated)


def _storage_bytes(amounts: Mapping[str, QuantityText] | None) -> int | None:
    if amounts is None or "storage" not in amounts:
        return None
    return _n_bytes(amounts["storage"])


@lru_cache(maxsize=1024)
def _n_bytes(amount: QuantityText) -> int:
    """Return the number: for equal amounts one object, so that 50,000 volumes of a few sizes share a few."""
    return parse_quantity(0 if amount is None else amount).value()


def _class_of(raw: volume_wire.StorageClass) -> StorageClass:
    terms = (term.match_label_expressions or () for term in raw.allowed_topologies or ())
    return StorageClass(
        key=_name(StorageKind.CLASS, raw.metadata),
        resource_version=raw.metadata.resource_version,
        provisioner=raw.provisioner or "",
        binding_mode=raw.volume_binding_mode,
        allowed_topologies=tuple(
            NodeTerm(tuple(NodeRequirement(one.key, "In", one.values or ()) for one in term), ())
            for term in terms
        ),
        default_since=raw.metadata.creation_timestamp or "" if _is_default(raw.metadata) else None,
    )


def _is_default(meta: volume_wire.ClassMetadata) -> bool:
    return (meta.annotations or _NO_LABELS).get(DEFAULT_CLASS) == "true"


def _csi_node_of(raw: volume_wire.CsiNode) -> CsiNode:
    plugins = (raw.metadata.annotations or _NO_LABELS).get(MIGRATED_PLUGINS, "")
    return CsiNode(
        key=_name(StorageKind.CSI_NODE, raw.metadata),
        resource_version=raw.metadata.resource_version,
        limits={
            intern(driver.name): driver.allocatable.count
            for driver in raw.spec.drivers or ()
            if driver.allocatable is not None and driver.allocatable.count is not None
        },
        migrated_plugins=frozenset(plugins.split(",")) if plugins else frozenset(),
    )


def _csi_driver_of(raw: volume_wire.CsiDriver) -> CsiDriver:
    name = _name(StorageKind.CSI_DRIVER, raw.metadata)
    return CsiDriver(name, raw.metadata.resource_version, raw.spec.storage_capacity is True)


def _attachment_of(raw: volume_wire.VolumeAttachment) -> VolumeAttachment:
    return VolumeAttachment(
        key=_name(StorageKind.ATTACHMENT, raw.metadata),
        resource_version=raw.metadata.resource_version,
        attacher=intern(raw.spec.attacher),
        node_name=intern(raw.spec.node_name),
        volume_name=raw.spec.source.persistent_volume_name or "",
    )


def _plugin_of(spec: volume_wire.VolumeSpec) -> str:
    """Return the in-tree plugin of the volume if a CSI driver took over from it, else nothing."""
    if spec.csi is not None:
        return ""
    sources = {
        disks.GCE_PD: spec.gce_persistent_disk,
        disks.AWS_EBS: spec.aws_elastic_block_store,
        disks.AZURE_DISK: spec.azure_disk,
        disks.CINDER: spec.cinder,
        disks.PORTWORX: spec.portworx_volume,
    }
    return next((plugin for plugin, source in sources.items() if source is not None), "")


def _migrated_handle(plugin: str, spec: volume_wire.VolumeSpec, labels: Mapping[str, str]) -> str:
    if spec.gce_persistent_disk is not None:
        return _gce_handle(spec.gce_persistent_disk.pd_name, labels)
    if spec.azure_disk is not None:
        return spec.azure_disk.disk_uri
    source = spec.aws_elastic_block_store or spec.cinder or spec.portworx_volume
    handle = source.volume_id if source else ""
    return disks.ebs_handle(handle) if plugin == disks.AWS_EBS else handle


def _gce_handle(name: str, labels: Mapping[str, str]) -> str:
    """Source: csi-translation-lib/plugins/gce_pd.go, TranslateInTreePVToCSI (kubernetes 1.36)."""
    zones = (labels.get(BETA_ZONE_KEY) or labels.get(ZONE_KEY) or "").split(_ZONE_SEPARATOR)
    if len(zones) > 1:
        region = "-".join(zones[0].split("-")[:2])
        return f"projects/UNSPECIFIED/regions/{region}/disks/{name}"
    return disks.gce_handle(name, zones[0] or "UNSPECIFIED")


def _migrated_terms(
    plugin: str, terms: tuple[NodeTerm, ...] | None, labels: Mapping[str, str]
) -> tuple[NodeTerm, ...] | None:
    """
    Return the terms on nodes whose CSINode says that the plugin was migrated.

    The zone becomes the driver's own topology key, taken from the terms or else from the volume's label.
    Source: csi-translation-lib/plugins/in_tree_volume.go, translateTopologyFromInTreeToCSI (kubernetes 1.36).
    """
    driver_key = disks.MIGRATIONS[plugin].topology_key
    if not driver_key:
        return terms
    named = {one.key for term in terms or () for one in term.expressions}
    is_beta = ZONE_KEY not in named and (
        BETA_ZONE_KEY in named or (ZONE_KEY not in labels and BETA_ZONE_KEY in labels)
    )
    zone_key = BETA_ZONE_KEY if is_beta else ZONE_KEY
    renamed = {BETA_REGION_KEY: REGION_KEY} if is_beta else {}
    has_zones = any(one.values for term in terms or () for one in term.expressions if one.key == zone_key)
    if has_zones:
        renamed[zone_key] = driver_key
    zones = tuple(
        sorted({zone for part in labels.get(zone_key, "").split(_ZONE_SEPARATOR) if (zone := part.strip())})
    )
    added = (NodeRequirement(driver_key, "In", zones),) if zones and not has_zones else ()
    if terms is None and not added:
        return None

    def migrated(term: NodeTerm) -> NodeTerm:
        expressions = tuple(
            NodeRequirement(renamed.get(one.key, one.key), one.operator, one.values)
            for one in term.expressions
        )
        return NodeTerm((*expressions, *added), term.names, term.problem)

    if added and not terms:
        terms = (NodeTerm((), ()),)
    return tuple(map(migrated, terms or ()))

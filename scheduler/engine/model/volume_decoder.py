"""
Decoding of volumes, claims and the other kinds of storage from JSON.

Only the fields that a scheduler reads are decoded; equal topologies, lists of modes and amounts are one object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from sys import intern
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from scheduler.engine.model import disks, volume_wire, wire
from scheduler.engine.model.affinity import label_selector, parse_node_term
from scheduler.engine.model.disks import migrated_disk
from scheduler.engine.model.migrated_volumes import migrated_handle, migrated_terms
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Gate, Semantics
from scheduler.engine.model.terms import NodeRequirement, NodeTerm
from scheduler.engine.model.volumes import (
    BIND_COMPLETED,
    CLASS_ANNOTATION,
    DEFAULT_CLASS,
    MIGRATED_PLUGINS,
    SELECTED_NODE,
    ClaimReference,
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageKind,
    StorageObject,
    VolumeAttachment,
    VolumeTopology,
)
from scheduler.engine.model.wire import MalformedObjectError, QuantityText
from scheduler.engine.syntax.quantity import QuantityError, parse_quantity
from scheduler.engine.syntax.selectors import SelectorError

_NO_LABELS: Final[Mapping[str, str]] = {}
_Maker = Callable[[Any], StorageObject]


class StorageDecoder:
    """
    Decodes JSON into storage objects. Objects of one decoder share equal topologies, so use one per process.

    Fields whose gate is off are absent.
    """

    def __init__(self, semantics: Semantics = DEFAULT_SEMANTICS) -> None:
        self._reads_required_drivers = semantics.enabled(Gate.VOLUME_LIMIT_SCALING)
        decoder = msgspec.json.Decoder
        #: The decoder of each kind, and what makes an object of the struct that it returns.
        self._by_kind: Mapping[StorageKind, tuple[msgspec.json.Decoder[Any], _Maker]] = {
            StorageKind.CLAIM: (decoder(volume_wire.Claim), self._claim_of),
            StorageKind.VOLUME: (decoder(volume_wire.Volume), self._volume_of),
            StorageKind.CLASS: (decoder(volume_wire.StorageClass), _class_of),
            StorageKind.CSI_NODE: (decoder(volume_wire.CsiNode), _csi_node_of),
            StorageKind.CSI_DRIVER: (decoder(volume_wire.CsiDriver), self._csi_driver_of),
            StorageKind.CAPACITY: (decoder(volume_wire.CsiStorageCapacity), self._capacity_of),
            StorageKind.ATTACHMENT: (decoder(volume_wire.VolumeAttachment), _attachment_of),
        }
        self._topologies: WeakValueDictionary[tuple[NodeTerm, ...], VolumeTopology] = WeakValueDictionary()
        self._access_modes: dict[tuple[str, ...], tuple[str, ...]] = {}

    def decode(self, kind: StorageKind, data: bytes | msgspec.Raw) -> StorageObject:
        """Return the object of a JSON document; raise MalformedObjectError, which names field and problem."""
        decoder, make = self._by_kind[kind]
        try:
            return make(wire.decoded(decoder, kind, data))
        except (QuantityError, SelectorError) as error:
            raise MalformedObjectError(f"{kind}: {error}") from error

    def _claim_of(self, raw: volume_wire.Claim) -> PersistentVolumeClaim:
        meta, spec = raw.metadata, raw.spec
        namespace, name = wire.namespace_and_name(StorageKind.CLAIM, meta)
        annotations = meta.annotations or _NO_LABELS
        owners, selected_node = meta.owner_references or (), annotations.get(SELECTED_NODE)
        return PersistentVolumeClaim(
            key=intern(f"{namespace}/{name}"),
            uid=intern(meta.uid or ""),
            resource_version=meta.resource_version,
            class_name=_class_name(annotations, spec.storage_class_name),
            volume_name=intern(spec.volume_name or ""),
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
        disk = migrated_disk(spec) if spec.csi is None else None
        plugin = "" if disk is None else disk.plugin
        migrated = migrated_terms(plugin, terms, labels) if plugin else terms
        return PersistentVolume(
            key=intern(wire.name_of(StorageKind.VOLUME, raw.metadata)),
            resource_version=raw.metadata.resource_version,
            class_name=_class_name(raw.metadata.annotations or _NO_LABELS, spec.storage_class_name),
            capacity_bytes=_storage_bytes(spec.capacity) or 0,
            access_modes=self._shared_modes(spec.access_modes),
            volume_mode=intern(spec.volume_mode or "Filesystem"),
            attributes_class=intern(spec.volume_attributes_class_name or ""),
            claim=ClaimReference(
                intern(f"{claim.namespace or ''}/{claim.name or ''}"), intern(claim.uid or "")
            )
            if claim
            else None,
            is_available=raw.status.phase == "Available",
            terminating=raw.metadata.deletion_timestamp is not None,
            labels=labels,
            topology=self._shared_topology(terms),
            driver=intern(disks.MIGRATIONS[plugin].driver if plugin else spec.csi.driver if spec.csi else ""),
            handle=migrated_handle(disk, labels) if disk else spec.csi.volume_handle if spec.csi else "",
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
            key=f"{meta.namespace or ''}/{wire.name_of(StorageKind.CAPACITY, meta)}",
            resource_version=meta.resource_version,
            class_name=raw.storage_class_name,
            limit_bytes=None if limit is None else parse_quantity(limit).value(),
            capacity_bytes=0 if raw.capacity is None else parse_quantity(raw.capacity).value(),
            is_accessible=selector is not None,
            topology=self._shared_topology(terms),
        )

    def _csi_driver_of(self, raw: volume_wire.CsiDriver) -> CsiDriver:
        name, spec = wire.name_of(StorageKind.CSI_DRIVER, raw.metadata), raw.spec
        is_required = self._reads_required_drivers and spec.prevent_pod_scheduling_if_missing is True
        return CsiDriver(name, raw.metadata.resource_version, spec.storage_capacity is True, is_required)

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


def _class_name(annotations: Mapping[str, str], name: str | None) -> str:
    annotated = annotations.get(CLASS_ANNOTATION)
    return intern((name or "") if annotated is None else annotated)


def _storage_bytes(amounts: Mapping[str, QuantityText] | None) -> int | None:
    if amounts is None or "storage" not in amounts:
        return None
    return _n_bytes(amounts["storage"])


@lru_cache(maxsize=1024)
def _n_bytes(amount: QuantityText) -> int:
    """Return the number of bytes; equal amounts share one number, so that 50,000 volumes of a few sizes take few."""
    return parse_quantity(0 if amount is None else amount).value()


def _class_of(raw: volume_wire.StorageClass) -> StorageClass:
    terms = (term.match_label_expressions or () for term in raw.allowed_topologies or ())
    return StorageClass(
        key=wire.name_of(StorageKind.CLASS, raw.metadata),
        resource_version=raw.metadata.resource_version,
        provisioner=raw.provisioner or "",
        binding_mode=raw.volume_binding_mode,
        allowed_topologies=tuple(
            NodeTerm(
                tuple(NodeRequirement(expression.key, "In", expression.values or ()) for expression in term),
                (),
            )
            for term in terms
        ),
        default_since=raw.metadata.creation_timestamp or "" if _is_default(raw.metadata) else None,
    )


def _is_default(meta: wire.Metadata) -> bool:
    return (meta.annotations or _NO_LABELS).get(DEFAULT_CLASS) == "true"


def _csi_node_of(raw: volume_wire.CsiNode) -> CsiNode:
    plugins = (raw.metadata.annotations or _NO_LABELS).get(MIGRATED_PLUGINS, "")
    return CsiNode(
        key=wire.name_of(StorageKind.CSI_NODE, raw.metadata),
        resource_version=raw.metadata.resource_version,
        drivers=frozenset(intern(driver.name) for driver in raw.spec.drivers or ()),
        limits={
            intern(driver.name): driver.allocatable.count
            for driver in raw.spec.drivers or ()
            if driver.allocatable is not None and driver.allocatable.count is not None
        },
        migrated_plugins=frozenset(plugins.split(",")) if plugins else frozenset(),
    )


def _attachment_of(raw: volume_wire.VolumeAttachment) -> VolumeAttachment:
    return VolumeAttachment(
        key=wire.name_of(StorageKind.ATTACHMENT, raw.metadata),
        resource_version=raw.metadata.resource_version,
        attacher=intern(raw.spec.attacher),
        node_name=intern(raw.spec.node_name),
        volume_name=raw.spec.source.persistent_volume_name or "",
    )

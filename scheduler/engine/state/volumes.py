"""
PersistentVolumes, claims, classes, and what CSI drivers say about nodes; which of them placed pods use.

A pod without volumes costs nothing here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from scheduler.engine.model import disks
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.volumes import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageKind,
    StorageObject,
    VolumeAttachment,
)
from scheduler.engine.state.assumed_objects import StoredObjects
from scheduler.engine.state.attached_volumes import AttachedVolume, AttachedVolumes
from scheduler.engine.state.batches import batches
from scheduler.engine.state.change_log import ChangeLog, RowChange
from scheduler.engine.state.free_volumes import FreeVolumes
from scheduler.engine.state.node_table import NodeTable
from scheduler.engine.state.partitioned_dict import PartitionedDict
from scheduler.engine.state.rule_guard import refuse_rule
from scheduler.engine.state.sparse_dicts import Holders, set_entry

_NO_LIMITS: Final[Mapping[str, int]] = {}
_NO_CAPACITIES: Final[Mapping[str, CsiStorageCapacity]] = {}


class Volumes(StoredObjects):
    """Everything known of volumes. Exactly one writer: ClusterState. No pod waits for the answer to a write."""

    def __init__(self, nodes: NodeTable, log: ChangeLog) -> None:
        self._nodes = nodes
        self._log = log
        self._claims: PartitionedDict[PersistentVolumeClaim] = PartitionedDict()
        self._volumes: PartitionedDict[PersistentVolume] = PartitionedDict()
        self._classes: dict[str, StorageClass] = {}
        self._csi_drivers: dict[str, CsiDriver] = {}
        self.csi_nodes: dict[str, CsiNode] = {}
        self._attachments: PartitionedDict[VolumeAttachment] = PartitionedDict()
        super().__init__(
            {
                StorageKind.CLAIM: self._claims,
                StorageKind.VOLUME: self._volumes,
                StorageKind.CLASS: self._classes,
                StorageKind.CSI_NODE: self.csi_nodes,
                StorageKind.CSI_DRIVER: self._csi_drivers,
                StorageKind.CAPACITY: {},
                StorageKind.ATTACHMENT: self._attachments,
            }
        )
        #: By class, then by namespace and name.
        self._capacities_of: dict[str, dict[str, CsiStorageCapacity]] = {}
        #: Volume name -> claims that name it.
        self._naming_claims = Holders()
        #: Claim -> volumes that were made for it or promised to it.
        self._promised = Holders()
        #: Volume name -> its attachments.
        self._attachments_of = Holders()
        #: Claim -> nodes with pods that use it.
        self._users = Holders()
        #: Driver -> node -> limit.
        self._limits: dict[str, dict[str, int]] = {}
        #: Driver -> nodes that have the driver.
        self.installed: dict[str, set[str]] = {}
        #: In-tree plugin -> nodes where it was migrated.
        self.migrated: dict[str, set[str]] = {}
        self.free = FreeVolumes()
        self.attached = AttachedVolumes(self._note)

    # Questions of plugins.

    def claim(self, key: str) -> PersistentVolumeClaim | None:
        """Return the claim of `namespace/name`, None if it is not known."""
        return self._claims.get(key)

    def volume(self, name: str) -> PersistentVolume | None:
        """Return the volume, None if it is not known."""
        return self._volumes.get(name)

    def storage_class(self, name: str) -> StorageClass | None:
        """Return the class, None if it is not known."""
        return self._classes.get(name)

    def classes(self) -> Collection[StorageClass]:
        """Return all classes."""
        return self._classes.values()

    def tracks_capacity(self, driver: str) -> bool:
        """Return whether the driver publishes capacities."""
        known = self._csi_drivers.get(driver)
        return known is not None and known.tracks_capacity

    def is_required(self, driver: str) -> bool:
        """Return whether a node without the driver refuses pods with its volumes."""
        known = self._csi_drivers.get(driver)
        return known is not None and known.is_required

    def capacities(self, class_name: str) -> Collection[CsiStorageCapacity]:
        """Return the capacities for volumes of the class."""
        return self._capacities_of.get(class_name, _NO_CAPACITIES).values()

    def promised_to(self, claim_key: str) -> Collection[str]:
        """Return the names of volumes that refer to the claim."""
        return self._promised.of(claim_key).keys()

    def users(self, claim_key: str) -> Collection[str]:
        """Return the names of nodes with pods that use the claim."""
        return self._users.of(claim_key).keys()

    def limits(self, driver: str) -> Mapping[str, int]:
        """Return how many volumes of the driver a node can attach, by node name; nodes without a limit are left out."""
        return self._limits.get(driver, _NO_LIMITS)

    def attached_as(self, claim_key: str) -> AttachedVolume | None:
        """
        Return the claim as limits count it, None if they do not count it.

        A claim without a volume, or whose volume is not known, counts through its class.
        Source: plugins/nodevolumelimits/csi.go, getCSIDriverInfo (kubernetes 1.36).
        """
        claim = self._claims.get(claim_key)
        if claim is None:
            return None
        volume = self._volumes.get(claim.volume_name) if claim.volume_name else None
        if volume is not None:
            return _attached(volume.source.driver, volume.source.handle) if volume.is_limited else None
        storage_class = self._classes.get(claim.class_name)
        if storage_class is None or not storage_class.provisioner:
            return None
        migration = disks.MIGRATIONS.get(storage_class.provisioner)
        migrates = migration is not None and migration.is_limited
        driver = migration.driver if migration is not None and migrates else storage_class.provisioner
        return _attached(driver, f"pending {claim_key}")

    def attached_by(self, pod: Pod) -> Iterator[AttachedVolume]:
        """Yield each volume of the pod as limits count it, as often as the pod names it."""
        for claim_volume in pod.spec.claim_volumes:
            attached = self.attached_as(f"{pod.namespace}/{claim_volume.claim_name(pod.name)}")
            if attached is not None:
                yield attached
        for disk in pod.spec.disks:
            if (named := disks.csi_volume(disk)) is not None:
                yield _attached(*named)

    # Changes, from ClusterState.

    def count_pod(self, pod: Pod, node_name: str, delta: int) -> None:
        """Count the volumes of a pod that came to the node (delta 1), or left it (-1)."""
        refuse_rule("count_pod")
        for claim_volume in pod.spec.claim_volumes:
            key = f"{pod.namespace}/{claim_volume.claim_name(pod.name)}"
            if delta < 0:
                self._users.discard(key, node_name)
            else:
                claim = self._claims.get(key)
                # The claim's own text, which is kept anyway.
                self._users.add(key if claim is None else claim.key, node_name)
        for attached in self.attached_by(pod):
            self.attached.count(self.attached.by_pods, attached, node_name, delta)

    def _set(self, kind: StorageKind, key: str, new: StorageObject | None) -> None:
        """Keep the new object instead of the known one, and count claims in their present state."""
        objects = self._by_kind[kind]
        before = self._in_use(self._claims_counted_by(kind, key, new))
        if (old := objects.get(key)) is not None:
            self._index(old, enters=False)
        if new is None:
            del objects[key]
        else:
            objects[key] = new
            self._index(new, enters=True)
        self._recount(before)

    def _claims_counted_by(self, kind: StorageKind, key: str, new: StorageObject | None) -> Iterable[str]:
        """Return the claims that limits may count otherwise once the object is `new`."""
        match kind:
            case StorageKind.CLAIM:
                return (key,)
            case StorageKind.VOLUME:
                return self._naming_claims.of(key)
            case StorageKind.CLASS:
                old = self._classes.get(key)
                provisioner = new.provisioner if isinstance(new, StorageClass) else ""
                if (old.provisioner if old else "") == provisioner:
                    return ()
                # O(claims that pods use), since a class hardly ever changes.
                claims = map(self._claims.get, self._users.keys())
                return [claim.key for claim in claims if claim is not None and claim.class_name == key]
        return ()

    def _index(self, obj: StorageObject, *, enters: bool) -> None:
        """Add the known object to the indexes of its kind if it `enters`, else remove it."""
        hold, join = (Holders.add, set.add) if enters else (Holders.discard, set.discard)
        match obj:
            case PersistentVolumeClaim() if obj.volume_name:
                hold(self._naming_claims, obj.volume_name, obj.key)
            case PersistentVolume():
                if enters:
                    self.free.add(obj)
                else:
                    self.free.discard(obj)
                if obj.claim is not None:
                    hold(self._promised, obj.claim.key, obj.key)
                for attachment in self._attachments_of.of(obj.key):
                    self._attach(self._attachments[attachment], enters=enters)
            case CsiNode():
                for driver in obj.drivers:
                    join(self.installed.setdefault(driver, set()), obj.key)
                for driver, limit in obj.limits.items():
                    set_entry(self._limits, driver, obj.key, limit if enters else None)
                for plugin in obj.migrated_plugins:
                    join(self.migrated.setdefault(plugin, set()), obj.key)
                self._note(obj.key)
            case CsiStorageCapacity():
                set_entry(self._capacities_of, obj.class_name, obj.key, obj if enters else None)
            case VolumeAttachment() if obj.volume_name:
                hold(self._attachments_of, obj.volume_name, obj.key)
                self._attach(obj, enters=enters)

    def _attach(self, attachment: VolumeAttachment, *, enters: bool) -> None:
        """Count the attachment, or count it out."""
        if (volume := self._attachment_counts_as(attachment)) is not None:
            delta = 1 if enters else -1
            self.attached.count(self.attached.by_attachments, volume, attachment.node_name, delta)

    def _attachment_counts_as(self, attachment: VolumeAttachment) -> AttachedVolume | None:
        """Return what limits count the attachment as; None without a driver, or a volume that names one itself."""
        volume = self._volumes.get(attachment.volume_name) if attachment.volume_name else None
        source = None if volume is None else volume.source
        if source is None or source.plugin or not source.driver or not attachment.attacher:
            return None
        return _attached(attachment.attacher, source.handle)

    def _in_use(self, claim_keys: Iterable[str]) -> dict[str, AttachedVolume | None]:
        """Return, for each of these claims that a pod uses, the volume as which limits count it."""
        return {key: self.attached_as(key) for key in claim_keys if self._users.of(key)}

    def _recount(self, before: Mapping[str, AttachedVolume | None]) -> None:
        """Count each claim in its present state instead of its former one."""
        for key, old in before.items():
            new = self.attached_as(key)
            if new == old:
                continue
            for node_name, n_pods in list(self._users.of(key).items()):
                for _ in range(n_pods):
                    if old is not None:
                        self.attached.count(self.attached.by_pods, old, node_name, -1)
                    if new is not None:
                        self.attached.count(self.attached.by_pods, new, node_name, 1)

    def _note(self, node_name: str) -> None:
        """Log that the room of the node for volumes has changed."""
        row = self._nodes.row_by_name.get(node_name)
        if row is not None:
            self._log.append(RowChange(row))

    def copy_pieces(self, copy: Volumes) -> Iterator[None]:
        """Add all objects, and what is assumed of them, to the empty `copy`; yield after every few of them."""
        copy._assume_as(self)
        for few in batches([self.seen(obj.kind, obj.key) for obj in self.objects()]):
            for obj in few:
                copy.upsert(obj)
            yield


def _attached(driver: str, handle: str) -> AttachedVolume:
    return AttachedVolume(driver, f"{driver}/{handle}")

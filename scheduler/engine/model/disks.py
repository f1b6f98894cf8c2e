"""
Disks that a pod names without a claim, and the CSI drivers that took over from the in-tree plugins.

Source: staging/src/k8s.io/csi-translation-lib/plugins (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec.structs import replace

from scheduler.engine.model import pod_wire, wire
from scheduler.engine.model.terms import ZONE_KEY, NodeRequirement, NodeTerm

GCE_PD: Final = "kubernetes.io/gce-pd"
AWS_EBS: Final = "kubernetes.io/aws-ebs"
AZURE_DISK: Final = "kubernetes.io/azure-disk"
CINDER: Final = "kubernetes.io/cinder"
VSPHERE: Final = "kubernetes.io/vsphere-volume"
PORTWORX: Final = "kubernetes.io/portworx-volume"
ISCSI: Final = "kubernetes.io/iscsi"
RBD: Final = "kubernetes.io/rbd"

BETA_ZONE_KEY: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION_KEY: Final = "failure-domain.beta.kubernetes.io/region"
REGION_KEY: Final = "topology.kubernetes.io/region"
#: Between the zones of a volume that is in several.
ZONE_SEPARATOR: Final = "__"


class Migration(NamedTuple):
    """
    The CSI driver that serves the volumes of an in-tree plugin.

    `topology_key`: the driver's node label of zones, empty if it has none. `is_limited`: whether NodeVolumeLimits
    counts such volumes.
    """

    driver: str
    topology_key: str = ""
    is_limited: bool = True


#: By in-tree plugin.
MIGRATIONS: Final[Mapping[str, Migration]] = {
    GCE_PD: Migration("pd.csi.storage.gke.io", "topology.gke.io/zone"),
    AWS_EBS: Migration("ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone"),
    AZURE_DISK: Migration("disk.csi.azure.com", "topology.disk.csi.azure.com/zone"),
    CINDER: Migration("cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone"),
    PORTWORX: Migration("pxd.portworx.com"),
    # Migrated, but isCSIMigrationOn of NodeVolumeLimits does not know it.
    VSPHERE: Migration("csi.vsphere.vmware.com", is_limited=False),
}

#: Plugins whose disks pods cannot share at will.
RESTRICTED: Final = frozenset({GCE_PD, AWS_EBS, ISCSI, RBD})

#: Kubernetes' default of `rbd.pool`.
_RBD_POOL: Final = "rbd"


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk by its in-tree plugin and its name: disk, volume, IQN or image; `pool` and `monitors` of rbd alone."""

    plugin: str
    name: str
    read_only: bool = False
    pool: str = ""
    monitors: tuple[str, ...] = ()


def disk(volume: pod_wire.Volume) -> Disk | None:
    """Return the disk that a volume of a pod names without a claim, None if it names none."""
    if volume.iscsi is not None:
        return Disk(ISCSI, volume.iscsi.iqn, volume.iscsi.read_only is True)
    if (rbd := volume.rbd) is not None:
        return Disk(RBD, rbd.image, rbd.read_only is True, rbd.pool or _RBD_POOL, rbd.monitors or ())
    if volume.vsphere_volume is not None:
        return Disk(VSPHERE, volume.vsphere_volume.volume_path)
    return migrated_disk(volume)


def migrated_disk(source: wire.MigratedDisk) -> Disk | None:
    """Return the disk that a volume of a pod or a PersistentVolume names, None if it names none."""
    if (gce := source.gce_persistent_disk) is not None:
        return Disk(GCE_PD, gce.pd_name, gce.read_only is True)
    if source.azure_disk is not None:
        return Disk(AZURE_DISK, source.azure_disk.disk_uri)
    if source.aws_elastic_block_store is not None:
        return Disk(AWS_EBS, source.aws_elastic_block_store.volume_id)
    if source.cinder is not None:
        return Disk(CINDER, source.cinder.volume_id)
    return None if source.portworx_volume is None else Disk(PORTWORX, source.portworx_volume.volume_id)


def csi_volume(disk: Disk) -> tuple[str, str] | None:
    """Return the CSI driver and the handle of the disk if it counts against the limits of that driver, else None."""
    migration = MIGRATIONS.get(disk.plugin)
    if migration is None or not migration.is_limited:
        return None
    return migration.driver, migrated_handle(disk, {})


def ebs_handle(volume_id: str) -> str:
    """
    Return the volume's id without its zone: `aws://zone/vol-1` and `vol-1` name the same volume.

    Upstream ends the cycle with an error if the rest is no volume id.
    """
    if not volume_id.startswith("aws://"):
        return volume_id
    return volume_id.removeprefix("aws://").partition("/")[2].strip("/")


def disks_conflict(mounted: Disk, other: Disk) -> bool:
    """
    Return whether two pods that mount these disks cannot be on one node.

    Source: plugins/volumerestrictions/volume_restrictions.go, isVolumeConflict (kubernetes 1.36).
    """
    if mounted.plugin not in RESTRICTED or (mounted.plugin, mounted.name) != (other.plugin, other.name):
        return False
    if mounted.plugin == AWS_EBS:
        return True
    if mounted.plugin == RBD and (
        mounted.pool != other.pool or not set(mounted.monitors) & set(other.monitors)
    ):
        return False
    return not (mounted.read_only and other.read_only)


def migrated_handle(disk: Disk, labels: Mapping[str, str]) -> str:
    """Return the name of an in-tree plugin's volume at the driver that took over."""
    if disk.plugin == GCE_PD:
        return _gce_handle(disk.name, labels)
    return ebs_handle(disk.name) if disk.plugin == AWS_EBS else disk.name


def _gce_handle(name: str, labels: Mapping[str, str]) -> str:
    """Source: csi-translation-lib/plugins/gce_pd.go, TranslateInTreePVToCSI (kubernetes 1.36)."""
    zones = (labels.get(BETA_ZONE_KEY) or labels.get(ZONE_KEY) or "").split(ZONE_SEPARATOR)
    if len(zones) > 1:
        region = "-".join(zones[0].split("-")[:2])
        return f"projects/UNSPECIFIED/regions/{region}/disks/{name}"
    return f"projects/UNSPECIFIED/zones/{zones[0] or 'UNSPECIFIED'}/disks/{name}"


def migrated_terms(
    plugin: str, terms: tuple[NodeTerm, ...] | None, labels: Mapping[str, str]
) -> tuple[NodeTerm, ...] | None:
    """
    Return the terms on nodes whose CSINode says that the plugin was migrated.

    The zone becomes the driver's own topology key, taken from the terms or else from the volume's label.
    Source: csi-translation-lib/plugins/in_tree_volume.go, translateTopologyFromInTreeToCSI (kubernetes 1.36).
    """
    driver_key = MIGRATIONS[plugin].topology_key
    if not driver_key:
        return terms
    expressions = [expression for term in terms or () for expression in term.expressions]
    named = {expression.key for expression in expressions}
    is_beta = ZONE_KEY not in named and (
        BETA_ZONE_KEY in named or (ZONE_KEY not in labels and BETA_ZONE_KEY in labels)
    )
    zone_key = BETA_ZONE_KEY if is_beta else ZONE_KEY
    renamed = {BETA_REGION_KEY: REGION_KEY} if is_beta else {}
    has_zones = any(expression.values for expression in expressions if expression.key == zone_key)
    if has_zones:
        renamed[zone_key] = driver_key
    zones = tuple(
        sorted({zone for part in labels.get(zone_key, "").split(ZONE_SEPARATOR) if (zone := part.strip())})
    )
    added = (NodeRequirement(driver_key, "In", zones),) if zones and not has_zones else ()
    if terms is None and not added:
        return None

    def migrated(term: NodeTerm) -> NodeTerm:
        own = (replace(each, key=renamed.get(each.key, each.key)) for each in term.expressions)
        return NodeTerm((*own, *added), term.names)

    if added and not terms:
        terms = (NodeTerm((), ()),)
    return tuple(map(migrated, terms or ()))

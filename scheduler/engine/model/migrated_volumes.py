"""In-tree plugins' volumes as their CSI drivers see them. Source: csi-translation-lib/plugins (kubernetes 1.36)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from scheduler.engine.model import disks
from scheduler.engine.model.disks import Disk
from scheduler.engine.model.terms import NodeRequirement, NodeTerm

BETA_ZONE_KEY: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION_KEY: Final = "failure-domain.beta.kubernetes.io/region"
ZONE_KEY: Final = "topology.kubernetes.io/zone"
REGION_KEY: Final = "topology.kubernetes.io/region"
#: Between the zones of a volume that is in several.
ZONE_SEPARATOR: Final = "__"


def migrated_handle(disk: Disk, labels: Mapping[str, str]) -> str:
    """Return the name of an in-tree plugin's volume at the driver that took over."""
    if disk.plugin == disks.GCE_PD:
        return _gce_handle(disk.name, labels)
    return disks.ebs_handle(disk.name) if disk.plugin == disks.AWS_EBS else disk.name


def _gce_handle(name: str, labels: Mapping[str, str]) -> str:
    """Source: csi-translation-lib/plugins/gce_pd.go, TranslateInTreePVToCSI (kubernetes 1.36)."""
    zones = (labels.get(BETA_ZONE_KEY) or labels.get(ZONE_KEY) or "").split(ZONE_SEPARATOR)
    if len(zones) > 1:
        region = "-".join(zones[0].split("-")[:2])
        return f"projects/UNSPECIFIED/regions/{region}/disks/{name}"
    return disks.gce_handle(name, zones[0] or "UNSPECIFIED")


def migrated_terms(
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

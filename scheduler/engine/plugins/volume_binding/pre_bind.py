"""
The volumes that are promised to a pod's claims, or made for them, and whether these claims are bound.

Source: plugins/volumebinding/binder.go, AssumePodVolumes, BindPodVolumes, checkBindings (kubernetes 1.36). Difference:
a claim that was recreated or is bound to another volume ends the wait at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.engine.framework.reserving import Reservation
from scheduler.engine.model.nodes import Node
from scheduler.engine.model.object_writes import NodeSelection, VolumePromise
from scheduler.engine.model.resource_versions import is_older
from scheduler.engine.model.volumes import PersistentVolume, PersistentVolumeClaim, StorageKind
from scheduler.engine.model.wording import waits_for_volume_text
from scheduler.engine.plugins.volume_binding.matching import reached_rows
from scheduler.engine.state.cluster_view import ClusterView

NAME: Final = "VolumeBinding"


class VolumesToBind(Reservation):
    """Promises of existing volumes to claims, then selections of the node for claims that get new volumes."""

    plugin = NAME
    activity = "binding volumes"

    def notes(self) -> Sequence[str]:
        """Return which claims wait for a volume that is being made."""
        return [
            waits_for_volume_text(claim.name, claim.selected_node)
            for claim in (write.obj for write in self.writes if isinstance(write, NodeSelection))
            if claim.selected_node is not None
        ]

    def is_done(self, versions: Sequence[str], node: Node, view: ClusterView) -> bool | str:
        """Return whether every claim is bound, or why it will not be."""
        all_bound = True
        for write, version in zip(self.writes, versions, strict=True):
            if isinstance(write, VolumePromise):
                checked = _static_checked(write, version, node, view)
            else:
                checked = _dynamic_checked(write.obj, version, node, view)
            if isinstance(checked, str):
                return checked
            all_bound &= checked
        return all_bound


def _static_checked(promise: VolumePromise, version: str, node: Node, view: ClusterView) -> bool | str:
    volume, claim = _seen_volume(promise.obj.key, view), _seen_claim(promise.claim, view)
    if volume is None:
        return f'failed to check binding: could not find v1.PersistentVolume "{promise.obj.key}"'
    if claim is None:
        return f'failed to check binding: could not find v1.PersistentVolumeClaim "{promise.claim.key}"'
    if is_older(volume.resource_version, version):
        return False
    if problem := _unreachable(volume, node, view):
        return problem
    if volume.claim != (claim.key, claim.uid):
        return f'ClaimRef got reset for pv "{volume.key}"'
    if claim.volume_name not in ("", volume.key):
        return f'persistentvolumeclaim "{claim.name}" is bound to persistentvolume "{claim.volume_name}"'
    return claim.is_bound


def _dynamic_checked(
    reserved: PersistentVolumeClaim, version: str, node: Node, view: ClusterView
) -> bool | str:
    claim = _seen_claim(reserved, view)
    if claim is None:
        return f'failed to check provisioning pvc: could not find v1.PersistentVolumeClaim "{reserved.key}"'
    if is_older(claim.resource_version, version):
        return False
    if claim.selected_node != node.name:
        return f'provisioning failed for PVC "{claim.name}"'
    if claim.volume_name:
        volume = _seen_volume(claim.volume_name, view)
        if volume is None:
            return False
        if problem := _unreachable(volume, node, view):
            return problem
    return claim.is_bound


def _seen_volume(name: str, view: ClusterView) -> PersistentVolume | None:
    volume = view.volumes.seen(StorageKind.VOLUME, name)
    return volume if isinstance(volume, PersistentVolume) else None


def _seen_claim(reserved: PersistentVolumeClaim, view: ClusterView) -> PersistentVolumeClaim | None:
    """Return the claim as watches show it, None if it is gone or replaced under its name."""
    claim = view.volumes.seen(StorageKind.CLAIM, reserved.key)
    return claim if isinstance(claim, PersistentVolumeClaim) and claim.uid == reserved.uid else None


def _unreachable(volume: PersistentVolume, node: Node, view: ClusterView) -> str:
    """Return the message if the node does not reach the volume, else nothing."""
    if reached_rows(volume, view).item(view.nodes.row_by_name[node.name]):
        return ""
    mismatch = "no matching NodeSelectorTerms"
    return f'pv "{volume.key}" node affinity doesn\'t match node "{node.name}": {mismatch}'

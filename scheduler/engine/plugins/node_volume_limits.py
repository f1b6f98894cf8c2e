"""
NodeVolumeLimits: a CSI driver attaches a limited number of volumes to a node, and none where it is not installed.

A node without the driver of a volume refuses the pod if the CSIDriver asks for that (`preventPodSchedulingIfMissing`,
gate VolumeLimitScaling). A volume of an in-tree plugin counts for its CSI driver on each node with a CSINode, whatever
plugins the CSINode names as migrated.

The volumes of the node's pods count, by driver and handle, also before they are provisioned; so do volumes that are
attached without a pod. Inline `csi` volumes do not.

Source: plugins/nodevolumelimits/csi.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar, Final, NamedTuple

import numpy as np

from scheduler.engine.framework.events import (
    Action,
    ClusterEventWithHint,
    Hint,
    Resource,
    after_used_claim,
    changed_claim,
    freed_node,
    queue_if,
)
from scheduler.engine.framework.explaining import (
    ExplainContext,
    PluginExplanation,
    Repair,
    holdings,
    pods_to_remove,
    removal,
)
from scheduler.engine.framework.interface import (
    FilterPlugin,
    PodContext,
    PreFiltered,
    PreFilterExtensions,
    RuleFilter,
)
from scheduler.engine.framework.status import SKIP, Status, failed, unresolvable, unschedulable
from scheduler.engine.model.changes import Changes
from scheduler.engine.model.disks import MIGRATIONS, csi_volume
from scheduler.engine.model.pods import Pod, PodSpec
from scheduler.engine.model.volumes import (
    CsiDriver,
    CsiNode,
    PersistentVolumeClaim,
    StorageKind,
    VolumeAttachment,
    no_such,
    not_owned,
)
from scheduler.engine.state.arrays import Amounts, Mask, Rows
from scheduler.engine.state.attached_volumes import AttachedVolume
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.volumes import Volumes

TOO_MANY: Final = unschedulable("node(s) exceed max volume count")

_NO_LIMITS: Final[Mapping[str, int]] = {}


class NodeVolumeLimits(FilterPlugin):
    """The attach limits of CSI drivers."""

    name = "NodeVolumeLimits"
    extension_points: ClassVar = ("preFilter", "filter")
    storage_kinds: ClassVar = (
        StorageKind.CLAIM,
        StorageKind.VOLUME,
        StorageKind.CLASS,
        StorageKind.CSI_NODE,
        StorageKind.CSI_DRIVER,
        StorageKind.ATTACHMENT,
    )

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return higher limits, new drivers, volumes that are detached, and new claims."""
        csi_node, claim = Resource.CSI_NODE, Resource.PERSISTENT_VOLUME_CLAIM
        return (
            ClusterEventWithHint(csi_node, Action.ADD),
            ClusterEventWithHint(csi_node, Action.UPDATE, _hint_after_csi_node_update),
            ClusterEventWithHint(Resource.CSI_DRIVER, Action.UPDATE, _hint_after_csi_driver_update),
            ClusterEventWithHint(
                Resource.POD, Action.DELETE, _hint_after_pod_deletion, needs=_helped_by_deletion
            ),
            ClusterEventWithHint(claim, Action.ADD, after_used_claim, needs=changed_claim),
            ClusterEventWithHint(Resource.VOLUME_ATTACHMENT, Action.DELETE, _hint_after_detachment),
        )

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Skip a pod without volumes that count."""
        if not _may_count(context.pod.spec):
            return SKIP
        wanted = _wanted(context.pod, view)
        if isinstance(wanted, Status):
            # Upstream fails at Filter, which ends the cycle. No filter can do that here; but VolumeBinding refuses such
            # a pod before, unless it is switched off.
            return RuleFilter(view.n_rows, (np.zeros(view.n_rows, dtype=np.bool_), wanted))
        mask = np.ones(view.n_rows, dtype=np.bool_)
        for driver, volumes in wanted.by_driver.items():
            mask &= _missing(driver, volumes, view) <= 0
        return RuleFilter(
            view.n_rows,
            *_driver_rules(wanted, view),
            (mask, TOO_MANY),
            trial=partial(_VolumeTrial, wanted.by_driver, view),
            needs_pods=False,
        )

    def explain(self, context: ExplainContext) -> PluginExplanation:
        """Say which driver attaches too few volumes; propose that pods with such volumes leave."""
        wanted = _wanted(context.pod, context.view)
        if isinstance(wanted, Status):
            return PluginExplanation()
        return PluginExplanation(
            where=lambda rows: [_shortage_text(context.view, wanted.by_driver, rows)] * len(rows),
            repair=Repair(partial(_detach, context, wanted.by_driver)),
            admitted="room for its volumes",
        )


class _VolumeTrial(PreFilterExtensions):
    """The volumes of one node while pods come and go there."""

    def __init__(self, wanted: Mapping[str, set[AttachedVolume]], view: ClusterView, row: int) -> None:
        self._wanted = wanted
        self._view = view
        self._attached = view.volumes.attached
        self._node_name = view.nodes.name_of(row)
        self._room = {driver: int(view.volume_room(driver)[row]) for driver in wanted}
        #: The number of the node's pods by volume, where it changed.
        self._n_users: dict[AttachedVolume, int] = {}

    def count(self, pod: Pod, delta: int) -> None:
        """Count the pod's uses in or out; a volume leaves with its last pod, unless it is attached without one."""
        for volume in self._view.volumes.attached_by(pod):
            if volume.driver not in self._room:
                continue
            before = self._users(volume)
            self._n_users[volume] = before + delta
            if not (before and before + delta) and not self._attached.by_attachments.holds(
                volume.name, self._node_name
            ):
                self._room[volume.driver] -= delta

    def refusal(self) -> Status | None:
        """Return that the volumes of a driver are too many."""
        for driver, volumes in self._wanted.items():
            needed = sum(not self._users(volume) for volume in volumes)
            if needed and needed > self._room[driver]:
                return TOO_MANY
        return None

    def _users(self, volume: AttachedVolume) -> int:
        n = self._n_users.get(volume)
        return self._attached.by_pods.of(volume.name).get(self._node_name, 0) if n is None else n


def _may_count(spec: PodSpec) -> bool:
    return bool(spec.claim_volumes) or any(disk.plugin in MIGRATIONS for disk in spec.disks)


class _Wanted(NamedTuple):
    """The pod's volumes by driver. `of_csi`: the drivers that a volume names itself, not by an in-tree plugin."""

    by_driver: dict[str, set[AttachedVolume]]
    of_csi: set[str]


def _wanted(pod: Pod, view: ClusterView) -> _Wanted | Status:
    """Return the pod's volumes, or why they cannot be told."""
    # In-tree volumes count as migrated: upstream asks for a CSINode first, but a node without one has no limits either.
    wanted = _Wanted({}, set())
    for claim_volume in pod.spec.claim_volumes:
        name = claim_volume.claim_name(pod.name)
        key = f"{pod.namespace}/{name}"
        claim = view.volumes.claim(key)
        if claim is None:
            return unresolvable(f"looking up PVC {key}: {no_such(StorageKind.CLAIM, name)}")
        if claim_volume.is_ephemeral and claim.owner_uid != pod.uid:
            return failed(not_owned(claim, pod))
        if (volume := view.volumes.attached_as(key)) is not None:
            wanted.by_driver.setdefault(volume.driver, set()).add(volume)
            if not _is_in_tree(claim, view.volumes):
                wanted.of_csi.add(volume.driver)
    for disk in pod.spec.disks:
        if (named := csi_volume(disk)) is not None:
            wanted.by_driver.setdefault(named[0], set()).add(AttachedVolume(named[0], "/".join(named)))
    return wanted


def _is_in_tree(claim: PersistentVolumeClaim, volumes: Volumes) -> bool:
    """Return whether the claim's volume, or its class if it has none yet, is of an in-tree plugin."""
    if claim.volume_name and (volume := volumes.volume(claim.volume_name)) is not None:
        return bool(volume.source.plugin)
    storage_class = volumes.storage_class(claim.class_name)
    return storage_class is not None and storage_class.provisioner in MIGRATIONS


def _driver_rules(wanted: _Wanted, view: ClusterView) -> Iterator[tuple[Mask, Status]]:
    """Yield the rows that have each driver which the pod's volumes require, and why the others refuse the pod."""
    # Source: csi.go, checkCSIDriverOnNode (kubernetes 1.37).
    for driver in sorted(filter(view.volumes.is_required, wanted.by_driver)):
        fits = view.has_driver(driver)
        if driver not in wanted.of_csi:
            fits = fits | ~view.csi_node_rows()
        yield fits, unschedulable(f"{driver} CSI driver is not installed on the node")


def _missing(driver: str, volumes: set[AttachedVolume], view: ClusterView) -> Amounts:
    """Return how many volumes of the driver are too many for each row; 0 or less where they fit."""
    # A volume that a pod of the node uses is attached already. Quirk of kubernetes 1.36: one that is attached, but used
    # by no pod there, counts twice.
    needed = np.full(view.n_rows, len(volumes), dtype=np.int64)
    for volume in volumes:
        for node_name in view.volumes.attached.by_pods.of(volume.name):
            needed[view.nodes.row_by_name[node_name]] -= 1
    return np.where(needed > 0, needed - view.volume_room(driver), 0)


def _shortage_text(view: ClusterView, wanted: Mapping[str, set[AttachedVolume]], rows: Rows) -> str:
    """Return the first driver that is short on all rows, and the most that any of them has left."""
    for driver, volumes in sorted(wanted.items()):
        if (_missing(driver, volumes, view)[rows] > 0).all():
            most = max(0, int(view.volume_room(driver)[rows].max()))
            return f"needs {len(volumes)} more of driver {driver}, at most {most} can be attached"
    return ""


def _detach(context: ExplainContext, wanted: Mapping[str, set[AttachedVolume]], row: int) -> list[Changes]:
    """Return the removal of few pods that have enough volumes of each driver that is short; empty if there are none."""
    view = context.view
    missing = {driver: int(_missing(driver, volumes, view)[row]) for driver, volumes in wanted.items()}
    users: dict[AttachedVolume, list[Pod]] = {}
    for pod in context.pods_on(row):
        for volume in view.volumes.attached_by(pod):
            users.setdefault(volume, []).append(pod)
    held = holdings((pods, {volume.driver: 1}) for volume, pods in users.items())
    short = {driver: n for driver, n in missing.items() if n > 0}
    leaving = pods_to_remove(context, held, short)
    return [tuple(removal(pod, view.nodes.name_of(row)) for pod in leaving)] if leaving else []


def _hint_after_csi_node_update(_pod: Pod, old: CsiNode | None, new: CsiNode | None) -> Hint:
    """Return QUEUE if a limit grew (a missing limit counts as 0), or ended, or a driver was installed."""
    # Source: csi.go, isSchedulableAfterCSINodeUpdated (kubernetes 1.36). Difference: upstream overlooks a driver that
    # has no limit, or none any more.
    if old is not None and new is not None:
        ended = old.limits.keys() - new.limits
        if new.drivers - old.drivers or new.drivers & ended:
            return Hint.QUEUE
    before = _NO_LIMITS if old is None else old.limits
    after = _NO_LIMITS if new is None else new.limits
    return queue_if(any(limit > before.get(driver, 0) for driver, limit in after.items()))


def _hint_after_csi_driver_update(_pod: Pod, old: CsiDriver | None, new: CsiDriver | None) -> Hint:
    """Return QUEUE if nodes are no longer asked for the driver (not upstream, where no event says so)."""
    return queue_if(old is not None and new is not None and old.is_required and not new.is_required)


def _hint_after_pod_deletion(_pod: Pod, old: Pod | None, _new: Pod | None) -> Hint:
    """Source: csi.go, isSchedulableAfterPodDeleted (kubernetes 1.36)."""
    return queue_if(old is not None and freed_node(old) and _may_count(old.spec))


def _helped_by_deletion(old: Pod | None, _new: Pod | None) -> frozenset[str] | None:
    return None if old is not None and _may_count(old.spec) else frozenset()


def _hint_after_detachment(pod: Pod, old: VolumeAttachment | None, _new: VolumeAttachment | None) -> Hint:
    """Source: csi.go, isSchedulableAfterVolumeAttachmentDeleted (kubernetes 1.36)."""
    if old is None:
        return Hint.SKIP
    drivers = (MIGRATIONS[disk.plugin].driver for disk in pod.spec.disks if disk.plugin in MIGRATIONS)
    has_claim = next(pod.spec.claims, None) is not None
    return queue_if(has_claim or old.attacher in drivers)

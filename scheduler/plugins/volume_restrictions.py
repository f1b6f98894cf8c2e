"""
VolumeRestrictions: a disk that is written by one pod of a node cannot be mounted by another pod there.

Only disks that pods name themselves are compared, without a claim: GCE persistent disks, AWS EBS volumes, iSCSI and
RBD images.

Source: plugins/volumerestrictions/volume_restrictions.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final

import numpy as np

from scheduler.framework.events import Action, ClusterEventWithHint, Hint, Resource, never
from scheduler.framework.explaining import ExplainContext, PluginExplanation, Repair, must_stay, removal
from scheduler.framework.interface import PodContext, PreFiltered, RuleFilter
from scheduler.framework.status import SKIP, unschedulable
from scheduler.model.changes import Changes
from scheduler.model.disks import RESTRICTED, disks_conflict
from scheduler.model.pods import Pod
from scheduler.state.snapshot import Snapshot

NAME: Final = "VolumeRestrictions"

DISK_TAKEN: Final = unschedulable("node(s) had no available disk")


class VolumeRestrictions:
    """Disks that cannot be shared."""

    name = NAME
    extension_points: ClassVar = ("preFilter", "filter")

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return pods that free a disk, and new nodes."""
        return (
            ClusterEventWithHint(Resource.POD, Action.DELETE, _hint_after_pod_deletion, never),
            ClusterEventWithHint(Resource.NODE, Action.ADD),
        )

    def prefilter(self, context: PodContext, snapshot: Snapshot) -> PreFiltered:
        """Skip a pod without such a disk."""
        disks = context.pod.spec.disks
        if not any(disk.plugin in RESTRICTED for disk in disks):
            return SKIP
        mask = np.ones(snapshot.n_rows, dtype=np.bool_)
        mask[list(snapshot.with_conflicting_disks(disks))] = False
        return RuleFilter(snapshot.n_rows, (mask, DISK_TAKEN))

    def explain(self, context: ExplainContext) -> PluginExplanation:
        """Propose that the pods leave that hold a wanted disk."""
        return PluginExplanation(repair=Repair(partial(_free_disks, context)))


def _hint_after_pod_deletion(pod: Pod, old: Pod | None, _new: Pod | None) -> Hint:
    """Source: volume_restrictions.go, isSchedulableAfterPodDeleted (kubernetes 1.36): of its own namespace only."""
    if old is None or old.namespace != pod.namespace:
        return Hint.SKIP
    return Hint.QUEUE if _share_disk(pod, old) else Hint.SKIP


def _free_disks(context: ExplainContext, row: int) -> list[Changes]:
    """Return the removal of every pod that holds a wanted disk; empty if one of them must stay."""
    holding = [pod for pod in context.pods_on(row) if _share_disk(context.pod, pod)]
    if not holding or any(map(must_stay, holding)):
        return []
    node_name = context.snapshot.nodes.name_of(row)
    return [tuple(removal(pod, node_name) for pod in holding)]


def _share_disk(pod: Pod, running: Pod) -> bool:
    return any(disks_conflict(one, other) for one in pod.spec.disks for other in running.spec.disks)

"""
VolumeRestrictions: a disk that one pod of a node writes cannot be mounted by another pod there, and a claim with access
mode ReadWriteOncePod belongs to one pod of the cluster.

Only disks that pods name themselves are compared, without a claim: GCE persistent disks, AWS EBS volumes, iSCSI and
RBD images. Claims of generic ephemeral volumes do not count.

Source: plugins/volumerestrictions/volume_restrictions.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final

import numpy as np

from scheduler.engine.framework.events import (
    Action,
    ClusterEventWithHint,
    Hint,
    Resource,
    after_named_claim,
    changed_claim,
    queue_if,
)
from scheduler.engine.framework.explaining import (
    MOST_REMOVED,
    ExplainContext,
    PluginExplanation,
    Repair,
    removal,
    removal_of_all,
)
from scheduler.engine.framework.interface import (
    FilterPlugin,
    PodContext,
    PreFiltered,
    PreFilterExtensions,
    RuleFilter,
)
from scheduler.engine.framework.status import SKIP, Status, unresolvable, unschedulable
from scheduler.engine.model.disks import RESTRICTED, disks_conflict
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.volumes import READ_WRITE_ONCE_POD, StorageKind, no_such
from scheduler.engine.state.cluster_view import ClusterView

DISK_TAKEN: Final = unschedulable("node(s) had no available disk")
CLAIM_TAKEN: Final = unschedulable(
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod"
)


class VolumeRestrictions(FilterPlugin):
    """Disks and claims that cannot be shared."""

    name = "VolumeRestrictions"
    extension_points: ClassVar = ("preFilter", "filter")
    storage_kinds: ClassVar = (StorageKind.CLAIM,)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return pods that free a disk or a claim, nodes that come or go with such pods, and new claims."""
        return (
            ClusterEventWithHint(
                Resource.POD, Action.DELETE, _hint_after_pod_deletion, needs=_helped_by_deletion
            ),
            # Upstream hears of no deletion, after which the claims of the node's pods count as free there too.
            ClusterEventWithHint(Resource.NODE, Action.ADD | Action.DELETE),
            ClusterEventWithHint(
                Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, after_named_claim, needs=changed_claim
            ),
        )

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Skip a pod without such a disk and without a claim that is in use."""
        pod = context.pod
        once_per_pod = []
        # A claim that two volumes name is one claim.
        for name in dict.fromkeys(pod.spec.claims):
            claim = view.volumes.claim(f"{pod.namespace}/{name}")
            if claim is None:
                return unresolvable(no_such(StorageKind.CLAIM, name))
            if READ_WRITE_ONCE_POD in claim.access_modes:
                once_per_pod.append(claim)
        # Quirk of kubernetes 1.36: the claim is taken on every node, so that no node is better than another.
        n_taken = sum(map(view.is_claim_used, once_per_pod))
        if not n_taken and not any(disk.plugin in RESTRICTED for disk in pod.spec.disks):
            return SKIP
        mask = np.ones(view.n_rows, dtype=np.bool_)
        mask[list(view.state.disks.conflicting_rows(pod.spec.disks))] = False
        trial = partial(_SharingTrial, pod, [claim.name for claim in once_per_pod], n_taken, view)
        rules = [(mask, DISK_TAKEN)]
        if n_taken:
            rules.append((np.zeros(view.n_rows, dtype=np.bool_), CLAIM_TAKEN))
        return RuleFilter(view.n_rows, *rules, trial=trial, needs_pods=False)

    def explain(self, context: ExplainContext) -> PluginExplanation:
        """Name the pods that use a wanted claim; propose that they leave, or the pods that hold a wanted disk."""
        users = _users_of_claims(context)
        named = [f"{pod.key} on {node_name}" for pod, node_name in users]
        removals = tuple(removal(pod, node_name) for pod, node_name in users)

        def holds_disk(pod: Pod) -> bool:
            return _n_conflicts(context.pod, pod) > 0

        def holders(row: int) -> set[str]:
            """Return the pods that hold a disk. A reader of the pod may have no right to see other namespaces' pods."""
            return {
                pod.key if pod.namespace == context.pod.namespace else "pods of other namespaces"
                for pod in context.pods_on(row)
                if holds_disk(pod)
            }

        may_leave = 0 < len(users) <= MOST_REMOVED and not any(context.must_stay(pod) for pod, _ in users)
        return PluginExplanation(
            where=lambda rows: [
                f"in use by {', '.join(sorted(named or holders(row)))}" for row in rows.tolist()
            ],
            repair=Repair(removal_of_all(context, holds_disk)),
            proposals=lambda: [removals] if may_leave else [],
        )


class _SharingTrial(PreFilterExtensions):
    """The disks of one node that conflict, and the claims in use, while pods come and go there."""

    def __init__(
        self, pod: Pod, once_per_pod: Sequence[str], n_taken: int, view: ClusterView, row: int
    ) -> None:
        self._pod = pod
        self._once_per_pod = once_per_pod
        self._n_taken = n_taken
        self._n_conflicts = sum(_n_conflicts(pod, placed.pod) for placed in view.state.placed_on(row))

    def count(self, pod: Pod, delta: int) -> None:
        """Count the pod's disks and claims in or out."""
        # Quirk of kubernetes 1.36 (conflictingPVCRefCountForPod): claims are compared by name, whatever the namespace.
        self._n_conflicts += delta * _n_conflicts(self._pod, pod)
        self._n_taken += delta * sum(name in self._once_per_pod for name in pod.spec.claims)

    def refusal(self) -> Status | None:
        """Return that a disk is taken, else that a claim is."""
        if self._n_conflicts:
            return DISK_TAKEN
        return CLAIM_TAKEN if self._n_taken > 0 else None


def _hint_after_pod_deletion(pod: Pod, old: Pod | None, _new: Pod | None) -> Hint:
    """Source: volume_restrictions.go, isSchedulableAfterPodDeleted (kubernetes 1.36): of its own namespace only."""
    if old is None or old.namespace != pod.namespace:
        return Hint.SKIP
    # Quirk: whether the claim is ReadWriteOncePod does not matter.
    shares_claim = not set(pod.spec.claims).isdisjoint(old.spec.claims)
    return queue_if(shares_claim or _n_conflicts(pod, old) > 0)


def _helped_by_deletion(old: Pod | None, _new: Pod | None) -> frozenset[str] | None:
    if old is None or old.spec.disks:
        return None
    return frozenset(f"{old.namespace}/{name}" for name in old.spec.claims)


def _users_of_claims(context: ExplainContext) -> list[tuple[Pod, str]]:
    """Return the pods that use one of the pod's ReadWriteOncePod claims, and their nodes."""
    view, namespace = context.view, context.pod.namespace
    claims = [view.volumes.claim(f"{namespace}/{name}") for name in context.pod.spec.claims]
    names = {
        claim.name: view.volumes.users(claim.key)
        for claim in claims
        if claim is not None and READ_WRITE_ONCE_POD in claim.access_modes
    }
    return [
        (pod, node_name)
        for node_name in sorted(set().union(*names.values()))
        for pod in context.pods_on(view.nodes.row_by_name[node_name])
        if pod.namespace == namespace and not names.keys().isdisjoint(pod.spec.claims)
    ]


def _n_conflicts(pod: Pod, running: Pod) -> int:
    return sum(disks_conflict(disk, other) for disk in pod.spec.disks for other in running.spec.disks)

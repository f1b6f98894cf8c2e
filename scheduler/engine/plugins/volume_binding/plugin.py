"""
VolumeBinding: a pod runs where its claims' volumes can be reached, exist, or can be made.

`claims` tells the claims apart, `filtering` asks every node, `matching` finds existing volumes. `scoring` needs the
gate StorageCapacityScoring, which is on from kubernetes 1.37.

Source: plugins/volumebinding/volume_binding.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from scheduler.engine.framework.events import (
    Action,
    ClusterEventWithHint,
    Hint,
    Resource,
    after_used_claim,
    changed_claim,
    queue_if,
)
from scheduler.engine.framework.explaining import ExplainContext, PluginExplanation, Where
from scheduler.engine.framework.interface import (
    FeasibleNodes,
    FilterPlugin,
    FinalScores,
    PluginContext,
    PodContext,
    PreFiltered,
    PreScored,
    ScorePlugin,
)
from scheduler.engine.framework.shape import ShapePoint
from scheduler.engine.framework.status import SKIP, Status
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.semantics import Gate
from scheduler.engine.model.volumes import CsiDriver, CsiNode, CsiStorageCapacity, StorageClass, StorageKind
from scheduler.engine.model.wire import Int64, Wire
from scheduler.engine.plugins.volume_binding.claims import claims_of
from scheduler.engine.plugins.volume_binding.explaining import explain_claims, explain_rejection
from scheduler.engine.plugins.volume_binding.filtering import VolumeFilter
from scheduler.engine.plugins.volume_binding.pre_bind import NAME
from scheduler.engine.plugins.volume_binding.scoring import capacity_scores
from scheduler.engine.state.cluster_view import ClusterView


class VolumeBindingArgs(Wire, frozen=True):
    """
    How long a pod's volumes may take to be bound, at least 0; how the share of a pool in use scores a node.

    `shape`: empty for upstream's default; refused on reading while the gate StorageCapacityScoring is off.
    """

    bind_timeout_s: Int64 = msgspec.field(name="bindTimeoutSeconds", default=600)
    shape: tuple[ShapePoint, ...] = ()


class VolumeBinding(FilterPlugin, ScorePlugin):
    """Claims and their volumes."""

    name = NAME
    extension_points: ClassVar = ("preFilter", "filter", "preScore", "score", "reserve", "preBind")
    #: Upstream sets none, which counts as 1.
    default_weight: ClassVar = 0
    storage_kinds: ClassVar = (
        StorageKind.CLAIM,
        StorageKind.VOLUME,
        StorageKind.CLASS,
        StorageKind.CSI_NODE,
        StorageKind.CSI_DRIVER,
        StorageKind.CAPACITY,
    )
    args_type = VolumeBindingArgs

    def __init__(self, args: VolumeBindingArgs, context: PluginContext) -> None:
        self._args = args
        self._scores = context.semantics.enabled(Gate.STORAGE_CAPACITY_SCORING)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the events of all storage objects, and of nodes."""
        both, claim = Action.ADD | Action.UPDATE, Resource.PERSISTENT_VOLUME_CLAIM
        return (
            ClusterEventWithHint(Resource.STORAGE_CLASS, both, _hint_after_class_change),
            ClusterEventWithHint(claim, both, after_used_claim, needs=changed_claim),
            ClusterEventWithHint(Resource.PERSISTENT_VOLUME, both),
            ClusterEventWithHint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
            ClusterEventWithHint(Resource.CSI_NODE, both, _hint_after_csi_node_change),
            ClusterEventWithHint(Resource.CSI_DRIVER, Action.UPDATE, _hint_after_csi_driver_update),
            ClusterEventWithHint(Resource.CSI_STORAGE_CAPACITY, both, _hint_after_capacity_change),
        )

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Skip a pod without claims."""
        if not context.pod.spec.claim_volumes:
            return SKIP
        claims = claims_of(context.pod, view.volumes)
        if isinstance(claims, Status):
            return claims
        volumes = VolumeFilter(claims, view, self._args.bind_timeout_s)
        if self._scores and claims.delayed:
            context.cycle_state[NAME] = volumes
        return volumes

    def explain(self, context: ExplainContext) -> PluginExplanation:
        """Say which claims keep a node out."""
        return explain_claims(context)

    def explain_rejection(self, context: ExplainContext) -> Where:
        """Say which claims have no volume."""
        return explain_rejection(context)

    def prescore(self, context: PodContext, view: ClusterView, _feasible: FeasibleNodes) -> PreScored:
        """Score nodes by the storage that volumes take there; skip a pod without such volumes: all would get 0."""
        volumes = context.cycle_state.get(NAME)
        return SKIP if volumes is None else FinalScores(capacity_scores(volumes, self._args.shape, view))


def _hint_after_class_change(_pod: Pod, old: StorageClass | None, new: StorageClass | None) -> Hint:
    """Source: volume_binding.go, isSchedulableAfterStorageClassChange (kubernetes 1.36)."""
    return queue_if(old is None or new is None or old.allowed_topologies != new.allowed_topologies)


def _hint_after_csi_node_change(_pod: Pod, old: CsiNode | None, new: CsiNode | None) -> Hint:
    """Source: volume_binding.go, isSchedulableAfterCSINodeChange (kubernetes 1.36)."""
    return queue_if(old is None or new is None or old.migrated_plugins != new.migrated_plugins)


def _hint_after_csi_driver_update(pod: Pod, old: CsiDriver | None, new: CsiDriver | None) -> Hint:
    """Return QUEUE if the driver of an inline volume no longer publishes capacities."""
    # Quirk: drivers of the pod's claims are ignored, although only these are compared with capacities. Source:
    # volume_binding.go, isSchedulableAfterCSIDriverChange (kubernetes 1.36).
    if old is None or new is None or new.key not in pod.spec.csi_drivers:
        return Hint.SKIP
    return queue_if(old.tracks_capacity and not new.tracks_capacity)


def _hint_after_capacity_change(
    _pod: Pod, old: CsiStorageCapacity | None, new: CsiStorageCapacity | None
) -> Hint:
    """Source: volume_binding.go, isSchedulableAfterCSIStorageCapacityChange (kubernetes 1.36)."""
    if old is None or new is None:
        return Hint.QUEUE
    before, after = old.limit_bytes, new.limit_bytes
    return queue_if(after is not None and (before is None or after > before))

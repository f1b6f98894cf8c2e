"""
The nodes on which all claims of a pod are bound, or can be.

Source: plugins/volumebinding/binder.go, FindPodVolumes (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from scheduler.engine.framework.interface import NodeFilter
from scheduler.engine.framework.status import NodeStatuses, Status, unresolvable
from scheduler.engine.model.object_writes import NodeSelection, VolumePromise
from scheduler.engine.model.volumes import (
    NO_PROVISIONER,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageKind,
)
from scheduler.engine.plugins.volume_binding.claims import PodClaims
from scheduler.engine.plugins.volume_binding.matching import NO_VOLUME, StaticMatching, reached_rows
from scheduler.engine.plugins.volume_binding.pre_bind import VolumesToBind
from scheduler.engine.state.arrays import Mask, Rows
from scheduler.engine.state.cluster_view import ClusterView

NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
NO_SPACE: Final = "node(s) did not have enough free storage"
NO_VOLUME_OBJECT: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"

#: In upstream's order; a refusal's code has a bit for each of them that applies.
_REASONS: Final = (NODE_CONFLICT, BIND_CONFLICT, NO_SPACE, NO_VOLUME_OBJECT)


_STATUSES: Final[Sequence[Status]] = [
    unresolvable(*(reason for bit, reason in enumerate(_REASONS) if code >> bit & 1))
    for code in range(1, 1 << len(_REASONS))
]

_Delayed = tuple[PersistentVolumeClaim, StorageClass]


class VolumeFilter(NodeFilter):
    """What every node says to a pod's claims. Pods of a node take no volume from each other, so it has no trial."""

    def __init__(self, claims: PodClaims, view: ClusterView, bind_timeout_s: float) -> None:
        self._view = view
        self._bind_timeout_s = bind_timeout_s
        self._topologies = view.topology_rows()
        self._static = StaticMatching(view)
        n_rows = view.n_rows
        self._node_conflict, self._bind_conflict, self._no_space, self._no_volume = np.zeros(
            (len(_REASONS), n_rows), dtype=np.bool_
        )
        self._to_match: list[_Delayed] = []
        self._to_provision: list[_Delayed] = []
        self._check_bound(claims.bound)
        if claims.delayed:
            self._check_delayed(claims.delayed)

    def mask(self) -> Mask:
        """Return the rows on which every claim is bound or can be."""
        return ~(self._node_conflict | self._bind_conflict | self._no_space | self._no_volume)

    def statuses(self) -> NodeStatuses:
        """Return every reason why each refused row is refused."""
        flags = (self._node_conflict, self._bind_conflict, self._no_space, self._no_volume)
        codes = np.zeros(self._view.n_rows, dtype=np.uint16)
        for bit, flag in enumerate(flags):
            codes |= flag.astype(np.uint16) << bit
        return NodeStatuses(codes, _STATUSES)

    def reserve(self, row: int) -> VolumesToBind | None:
        """Return what binding the pod to the row needs, once for each claim; None if all its claims are bound."""
        static: dict[str, VolumePromise] = {}
        dynamic = {claim.key: claim for claim, _ in self._to_provision}
        for (claim, _), chosen in zip(self._to_match, self._static.chosen, strict=True):
            number = chosen.item(row)
            if number == NO_VOLUME:
                dynamic[claim.key] = claim
            else:
                static.setdefault(claim.key, VolumePromise(self._static.found[number], claim))
        if not static and not dynamic:
            return None
        node_name = self._view.nodes.name_of(row)
        selections = [NodeSelection(claim, node_name) for key, claim in dynamic.items() if key not in static]
        # A provisioned volume names its claim: to wait for the claim is enough.
        promised = tuple((StorageKind.CLAIM, key) for key in static)
        return VolumesToBind((*static.values(), *selections), self._bind_timeout_s, promised)

    def _check_bound(self, bound: Iterable[PersistentVolumeClaim]) -> None:
        """Flag rows by the first claim that fails there."""
        fine = np.ones(self._view.n_rows, dtype=np.bool_)
        for claim in bound:
            volume = self._view.volumes.volume(claim.volume_name)
            if volume is None:
                self._no_volume |= fine
                return
            reached = reached_rows(volume, self._view)
            self._node_conflict |= fine & ~reached
            fine &= reached

    def _check_delayed(self, delayed: Sequence[_Delayed]) -> None:
        open_ = np.ones(self._view.n_rows, dtype=np.bool_)
        for waiting in delayed:
            node_name = waiting[0].selected_node
            if node_name is None:
                self._to_match.append(waiting)
                continue
            self._to_provision.append(waiting)
            row = self._view.nodes.row_by_name.get(node_name)
            selected = np.zeros_like(open_)
            if row is not None:
                selected[row] = True
            # Quirk: other nodes are refused without looking for a volume there.
            open_ &= selected
        self._bind_conflict |= ~open_
        # The smallest claim first, so that it leaves large volumes to large claims; equal ones in the pod's order.
        self._to_match.sort(key=lambda waiting: waiting[0].requested_bytes)
        selected_here = [(waiting, open_) for waiting in self._to_provision]
        unmatched = [(waiting, open_ & ~self._static.find(waiting[0])) for waiting in self._to_match]
        self._check_provisioning([*selected_here, *unmatched], open_)

    def _check_provisioning(self, provisioned: Iterable[tuple[_Delayed, Mask]], open_: Mask) -> None:
        """Flag the rows on which no volume can be made for a claim, by the first such claim."""
        # A claim's class is known, since the claim was found to wait in the same cycle.
        fine = open_.copy()
        for (claim, storage_class), rows in provisioned:
            asked = fine & rows
            if not asked.any():
                continue
            allowed = self._allowed(storage_class)
            self._bind_conflict |= asked & ~allowed
            asked_for_space = asked & allowed
            has_space = self._has_space(claim, storage_class)
            self._no_space |= asked_for_space & ~has_space
            fine &= ~asked | (allowed & has_space)

    def _allowed(self, storage_class: StorageClass) -> Mask:
        """Return the rows on which volumes of the class can be made."""
        n_rows = self._view.n_rows
        if storage_class.provisioner in ("", NO_PROVISIONER):
            return np.zeros(n_rows, dtype=np.bool_)
        if not storage_class.allowed_topologies:
            return np.ones(n_rows, dtype=np.bool_)
        allowed = np.zeros(n_rows, dtype=np.bool_)
        for term in storage_class.allowed_topologies:
            allowed |= self._view.matching_term(term)
        return allowed

    def _has_space(self, claim: PersistentVolumeClaim, storage_class: StorageClass) -> Mask:
        """Return the rows that reach a pool which is large enough, as far as the driver says."""
        # Quirk: each claim is compared alone; neither the pod's other claims nor volumes in the making are deducted.
        pools = large_enough(claim, storage_class, self._view)
        if pools is None:
            return np.ones(self._view.n_rows, dtype=np.bool_)
        reached = np.zeros(self._view.n_rows, dtype=np.bool_)
        for pool in pools:
            rows = self._topologies.rows(pool.topology)
            if isinstance(rows, tuple):
                reached[list(rows)] = True
            else:
                reached |= rows
        return reached

    def matched(self) -> Iterator[tuple[PersistentVolumeClaim, Rows]]:
        """Yield each claim that may take an existing volume, and the number of its volume by row."""
        for (claim, _), chosen in zip(self._to_match, self._static.chosen, strict=True):
            yield claim, chosen

    @property
    def found(self) -> Sequence[PersistentVolume]:
        """Return the volumes of `matched`, by number."""
        return self._static.found

    def provisioned(self) -> Iterator[tuple[PersistentVolumeClaim, StorageClass, Mask]]:
        """Yield each claim that may need a new volume, its class, and the rows where it does."""
        for claim, storage_class in self._to_provision:
            yield claim, storage_class, np.ones(self._view.n_rows, dtype=np.bool_)
        for (claim, storage_class), chosen in zip(self._to_match, self._static.chosen, strict=True):
            yield claim, storage_class, np.equal(chosen, NO_VOLUME)


def large_enough(
    claim: PersistentVolumeClaim, storage_class: StorageClass, view: ClusterView
) -> Sequence[CsiStorageCapacity] | None:
    """Return the pools that are large enough for the claim; None if that is not known, which means everywhere."""
    requested = claim.requested_bytes
    if not requested or not view.volumes.tracks_capacity(storage_class.provisioner):
        return None
    return [
        pool
        for pool in view.volumes.capacities(storage_class.key)
        if pool.is_accessible and pool.limit_bytes is not None and pool.limit_bytes >= requested
    ]

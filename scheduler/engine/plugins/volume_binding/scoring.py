"""
The scores of nodes by how much of their storage the pod's volumes would take.

Where a claim of the pod takes an existing volume, the sizes of the claims and of the volumes count; elsewhere, the
volumes to be made and the capacity of their pools.

Source: plugins/volumebinding/{volume_binding,scorer}.go (kubernetes 1.36, gate StorageCapacityScoring). Difference: if
a node reaches several pools of a class, upstream takes any, here the largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduler.engine.framework.shape import ShapePoint, rounded_quotient, shape_table
from scheduler.engine.plugins.volume_binding.filtering import VolumeFilter, large_enough
from scheduler.engine.plugins.volume_binding.matching import NO_VOLUME
from scheduler.engine.state.arrays import Amounts, Mask, Scores
from scheduler.engine.state.cluster_view import ClusterView

#: The less of the storage is taken, the better.
DEFAULT_SHAPE: Final = (ShapePoint(0, 10), ShapePoint(100, 0))


class _ClassAmounts:
    """By row, what is requested of a class and what there is; `counts`: the rows where the class counts."""

    def __init__(self, n_rows: int) -> None:
        self.counts: Mask = np.zeros(n_rows, dtype=np.bool_)
        self.requested: Amounts = np.zeros(n_rows, dtype=np.int64)
        self.capacity: Amounts = np.zeros(n_rows, dtype=np.int64)


def capacity_scores(volumes: VolumeFilter, shape: Sequence[ShapePoint], view: ClusterView) -> Scores:
    """Return the scores from 0 to 100 by row; 0 where no volume counts. O(rows) for each claim and each pool."""
    table = shape_table(shape or DEFAULT_SHAPE)
    static = _static(volumes, view.n_rows)
    has_static = np.zeros(view.n_rows, dtype=np.bool_)
    for amounts in static.values():
        has_static |= amounts.counts
    dynamic = _dynamic(volumes, view)
    return np.where(has_static, _mean(static, table, view.n_rows), _mean(dynamic, table, view.n_rows))


def _static(volumes: VolumeFilter, n_rows: int) -> dict[str, _ClassAmounts]:
    by_class: dict[str, _ClassAmounts] = {}
    for claim, chosen in volumes.matched():
        amounts = by_class.setdefault(claim.class_name, _ClassAmounts(n_rows))
        has_volume = chosen != NO_VOLUME
        # `NO_VOLUME` is the index of the last entry.
        sizes = np.array([*(volume.capacity_bytes for volume in volumes.found), 0], dtype=np.int64)
        amounts.counts |= has_volume
        amounts.requested += has_volume * claim.requested_bytes
        amounts.capacity += sizes[chosen]
    return by_class


def _dynamic(volumes: VolumeFilter, view: ClusterView) -> dict[str, _ClassAmounts]:
    by_class: dict[str, _ClassAmounts] = {}
    topologies = view.topology_rows()
    for claim, storage_class, rows in volumes.provisioned():
        amounts = by_class.setdefault(claim.class_name, _ClassAmounts(view.n_rows))
        is_reached = np.zeros(view.n_rows, dtype=np.bool_)
        for pool in large_enough(claim, storage_class, view) or ():
            mask = topologies.mask(pool.topology)
            is_reached |= mask
            # Equal pools for all claims of the class: the capacity counts once.
            np.maximum(amounts.capacity, mask * pool.capacity_bytes, out=amounts.capacity)
        counts = rows & is_reached
        amounts.counts |= counts
        amounts.requested += counts * claim.requested_bytes
    return by_class


def _mean(by_class: dict[str, _ClassAmounts], table: Amounts, n_rows: int) -> Scores:
    total, n_classes = np.zeros(n_rows, dtype=np.int64), np.zeros(n_rows, dtype=np.int64)
    for amounts in by_class.values():
        is_over = (amounts.capacity == 0) | (amounts.requested > amounts.capacity)
        share = np.where(is_over, 100, amounts.requested * 100 // np.maximum(amounts.capacity, 1))
        total += np.where(amounts.counts, table[share], 0)
        n_classes += amounts.counts
    scores: Scores = np.asarray(rounded_quotient(total, n_classes))
    return scores

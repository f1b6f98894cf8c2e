"""The arguments of VolumeBinding, complete."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.engine.framework.shape import ShapePoint


@dataclass(frozen=True, slots=True)
class VolumeBindingArgs:
    """
    How long a pod's volumes may take to be bound, at least 0; how the share of a pool in use scores a node.

    `shape`: empty for upstream's default; refused on reading while the gate StorageCapacityScoring is off.
    """

    bind_timeout_s: int = 600
    shape: tuple[ShapePoint, ...] = ()

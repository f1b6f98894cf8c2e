"""
The arguments of VolumeBinding, complete.

`shape` is refused on reading: its gate, StorageCapacityScoring, is off (alpha in kubernetes 1.36).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VolumeBindingArgs:
    """How long a pod's volumes may take to be bound, at least 0."""

    bind_timeout_s: int = 600

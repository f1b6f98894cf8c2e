"""
The resources that the plugins of this package score.

Source: plugins/noderesources/resource_allocation.go (kubernetes 1.36).
"""

from __future__ import annotations

from typing import Final

from scheduler.model.requests import CPU, EPHEMERAL_STORAGE, MEMORY, is_scalar

PLAIN_RESOURCES: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)


def counts_in_score(resource: str, requested: int) -> bool:
    """Return whether the resource counts in a pod's score: a scalar resource only if the pod requests it."""
    return resource in PLAIN_RESOURCES or (requested != 0 and is_scalar(resource))

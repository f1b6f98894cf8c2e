"""
What both plugins of this package score by.

Source: plugins/noderesources/resource_allocation.go (kubernetes 1.36).
"""

from __future__ import annotations

from typing import Final

from scheduler.model.requests import CPU, EPHEMERAL_STORAGE, MEMORY, is_scalar

PLAIN_RESOURCES: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)


def counts_in_score(resource: str, asked: int) -> bool:
    """Return whether the resource takes part in a pod's score: a scalar resource only if the pod asks for it."""
    return resource in PLAIN_RESOURCES or (asked != 0 and is_scalar(resource))

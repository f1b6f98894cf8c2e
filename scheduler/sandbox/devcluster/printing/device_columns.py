"""
The columns of the kinds of resource.k8s.io.

Source: pkg/printers/internalversion/printers.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scheduler.sandbox.devcluster.printing.columns import AGE, NAME, Cell, Column, Object, at, field


def _claim_state(claim: Object, _: float) -> Cell:
    is_deleted = bool(at(claim, "metadata.deletionTimestamp"))
    is_allocated = at(claim, "status.allocation") is not None
    states = {
        "deleted": is_deleted,
        "pending": not is_allocated and not is_deleted,
        "allocated": is_allocated,
        "reserved": is_allocated and bool(at(claim, "status.reservedFor")),
    }
    return ",".join(state for state, holds in states.items() if holds)


DEVICES: Final[Mapping[str, tuple[Column, ...]]] = {
    "ResourceClaim": (NAME, Column("State", _claim_state), AGE),
    "ResourceClaimTemplate": (NAME, AGE),
    "ResourceSlice": (
        NAME,
        Column("Node", field("spec.nodeName")),
        Column("Driver", field("spec.driver")),
        Column("Pool", field("spec.pool.name")),
        AGE,
    ),
    "DeviceClass": (NAME, AGE),
}

"""
What a leader that stops in order leaves in the Lease: up to which version of the pods a watch shows all of its binds.

A successor whose watch has come so far knows every bind, and begins without a list of all pods. The version counts for
one release: the number of transitions beside it differs from that of a later holder which left none.
"""

from __future__ import annotations

from typing import Final

import msgspec

from scheduler.daemon.kube.responses import Lease

_ANNOTATION: Final = "affinity-scheduler.io/bound-until"


class _Metadata(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


def with_handover(lease: Lease, version: str) -> msgspec.Raw:
    """Return the metadata of the Lease as its holder releases it; without a version it stays as it is."""
    if not version:
        return lease.metadata
    metadata = msgspec.json.decode(lease.metadata, type=dict[str, object])
    annotations = msgspec.convert(metadata, _Metadata).annotations or {}
    text = f"{lease.spec.lease_transitions or 0} {version}"
    return msgspec.Raw(msgspec.json.encode({**metadata, "annotations": {**annotations, _ANNOTATION: text}}))


def handover_of(lease: Lease) -> str:
    """Return the version that the last holder left; empty if it left none, or has not released the Lease."""
    if lease.spec.holder_identity:
        return ""
    annotations = msgspec.json.decode(lease.metadata, type=_Metadata).annotations or {}
    transitions, _, version = annotations.get(_ANNOTATION, "").partition(" ")
    return version if transitions == str(lease.spec.lease_transitions or 0) else ""

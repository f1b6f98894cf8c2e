"""
What an older or newer API server serves and stores otherwise: kinds and fields, by minor version of Kubernetes.

Source: pkg/features/kube_features.go and dropDisabledFields of pkg/registry/*/strategy.go (kubernetes 1.36). A field
whose gate is off by default is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

#: The minor version whose behaviour everything else follows.
DEFAULT_MINOR: Final = 36
OLDEST_MINOR: Final = 33
NEWEST_MINOR: Final = 37

#: The first minor version that serves the group in the version that is served here.
_GROUPS: Final[Mapping[str, int]] = {"resource.k8s.io": 34}
#: The first minor version that stores a field, by kind and path.
_FIELDS: Final[Mapping[str, Sequence[tuple[int, tuple[str, ...]]]]] = {
    "Pod": (
        (34, ("spec", "resources")),
        (36, ("status", "resources")),
        (36, ("status", "allocatedResources")),
    ),
    "Node": ((36, ("status", "declaredFeatures")),),
    "PersistentVolume": ((34, ("spec", "volumeAttributesClassName")),),
    "PersistentVolumeClaim": ((34, ("spec", "volumeAttributesClassName")),),
}


def git_version(minor: int) -> str:
    """Return the name of the release; the suffix tells it from a real cluster."""
    return f"v1.{minor}.0-devcluster"


def hidden_groups(minor: int) -> frozenset[str]:
    """Return the API groups that this version does not serve."""
    return frozenset(group for group, since in _GROUPS.items() if minor < since)


def drop_fields(kind: str, obj: dict[str, Any], minor: int) -> None:
    """Remove the fields that this version does not store from a new state of an object."""
    for since, (part, name) in _FIELDS.get(kind, ()):
        if minor < since and isinstance(obj.get(part), dict):
            obj[part].pop(name, None)

"""
What an older or newer API server serves and stores otherwise: kinds and fields, by minor version of Kubernetes.

Source: pkg/features/kube_features.go and dropDisabledFields of pkg/registry/*/strategy.go (kubernetes 1.36). A field
whose gate is off by default is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The minor version whose behaviour everything else follows.
DEFAULT_MINOR: Final = 36
OLDEST_MINOR: Final = 34
NEWEST_MINOR: Final = 37

#: The first minor version that serves the kind, as `plural.group`, in the version that is served here; older ones have
#: it as alpha or beta, which are off by default. PodGroups (scheduling.k8s.io) are off in all of them.
_KINDS: Final[Mapping[str, int]] = {"devicetaintrules.resource.k8s.io": 37}
_CLAIM: Final = " ".join(
    f"spec.devices.requests[].{one}.{name}"
    for one in ("exactly", "firstAvailable[]")
    for name in ("tolerations", "capacity")
)
_DEVICE: Final = (
    "taints", "consumesCounters", "nodeName", "nodeSelector", "allNodes", "bindingConditions",
    "bindingFailureConditions", "bindsToNode", "allowMultipleAllocations",
)  # fmt: skip
#: The fields that are stored since 1.36, by kind; `[]` follows the name of a list.
_SINCE_36: Final[Mapping[str, str]] = {
    "Pod": "status.resources status.allocatedResources status.extendedResourceClaimStatus",
    "Node": "status.declaredFeatures",
    "DeviceClass": "spec.extendedResourceName",
    "ResourceClaim": _CLAIM,
    "ResourceClaimTemplate": _CLAIM.replace("spec.", "spec.spec."),
    "ResourceSlice": "spec.sharedCounters spec.perDeviceNodeSelection "
    + " ".join(f"spec.devices[].{name}" for name in _DEVICE),
}


def git_version(minor: int) -> str:
    """Return the name of the release; the suffix tells it from a real cluster."""
    return f"v1.{minor}.0-devcluster"


def hidden_kinds(minor: int) -> frozenset[str]:
    """Return the built-in kinds that this version does not serve, as `plural.group`."""
    return frozenset(kind for kind, since in _KINDS.items() if minor < since)


def dropped_fields(kind: str, minor: int) -> list[str]:
    """Return the paths of the fields that this version does not store."""
    return _SINCE_36.get(kind, "").split() if minor < 36 else []

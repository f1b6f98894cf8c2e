"""
What controllers read of a pod.

Source: pkg/api/v1/pod/util.go, pkg/controller/controller_utils.go (kubernetes 1.36). Differences: which pod goes
first is not decided by restarts, phases and how long it is ready, and its age counts to the second; a pod is available
once it is ready, whatever `minReadySeconds` says.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from scheduler.sandbox.devcluster.conditions import condition_of
from scheduler.sandbox.devcluster.kinds import JsonObject
from scheduler.sandbox.devcluster.timestamps import epoch_s

#: No leading zero or plus sign.
_COST: Final = re.compile(r"0|-?[1-9][0-9]{0,9}")


def phase(pod: JsonObject) -> str:
    """Return `status.phase`; Pending if it is absent."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_terminal(pod: JsonObject) -> bool:
    """Return True if the pod ran to its end."""
    return phase(pod) in ("Succeeded", "Failed")


def is_terminating(pod: JsonObject) -> bool:
    """Return True if the pod is deleted but not yet gone."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_active(pod: JsonObject) -> bool:
    """Return True if the pod counts as one of its controller's replicas."""
    return not is_terminal(pod) and not is_terminating(pod)


def node_name(pod: JsonObject) -> str:
    """Return the node that the pod is bound to, empty before."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def label(pod: JsonObject, name: str) -> str:
    """Return a label of the pod, empty if it is absent."""
    return str((pod["metadata"].get("labels") or {}).get(name, ""))


def claim_names(pod: JsonObject) -> list[str]:
    """Return the names of the claims that the pod's volumes are, those of ephemeral volumes included."""
    names: list[str] = []
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            names.append(volume["persistentVolumeClaim"]["claimName"])
        elif volume.get("ephemeral"):
            names.append(f"{pod['metadata']['name']}-{volume['name']}")
    return names


def ready_since_s(pod: JsonObject) -> float | None:
    """Return since when (seconds since 1970) the pod has been ready; None if it is not."""
    ready = condition_of((pod.get("status") or {}).get("conditions") or (), "Ready")
    if ready is None or ready.get("status") != "True":
        return None
    return epoch_s(ready.get("lastTransitionTime")) or 0.0


def is_available(pod: JsonObject) -> bool:
    """Return True if the pod stays and is ready."""
    return not is_terminating(pod) and ready_since_s(pod) is not None


def deletion_order(pods: Iterable[JsonObject], related: Iterable[JsonObject]) -> list[JsonObject]:
    """
    Return `pods` in deletion order: unassigned, not ready, cheap, doubled up and young ones first.

    `pods` are the active ones of one controller, `related` those of the same deployment, which make a node doubled up.
    Cost: O(n log n).
    """
    pods_on_node = Counter(node_name(pod) for pod in related)

    def order(pod: JsonObject) -> tuple[bool, bool, int, int, float, str]:
        return (
            node_name(pod) != "",
            ready_since_s(pod) is not None,
            _deletion_cost(pod),
            -pods_on_node[node_name(pod)],
            -(epoch_s(pod["metadata"].get("creationTimestamp")) or 0.0),
            str(pod["metadata"].get("uid", "")),
        )

    return sorted(pods, key=order)


def _deletion_cost(pod: JsonObject) -> int:
    """
    Return the annotated cost, 0 without one or if it is no integer of 32 bits.

    Source: pkg/apis/core/helper/helpers.go, GetDeletionCostFromPodAnnotations (kubernetes 1.36).
    """
    text = (pod["metadata"].get("annotations") or {}).get("controller.kubernetes.io/pod-deletion-cost", "")
    cost = int(text) if _COST.fullmatch(text) else 0
    return cost if -(2**31) <= cost < 2**31 else 0

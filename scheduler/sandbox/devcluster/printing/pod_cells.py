"""
The cells READY, STATUS, RESTARTS and READINESS GATES of a pod's row.

Source: pkg/printers/internalversion/printers.go, printPod (kubernetes 1.36). Difference: containers here never wait,
fail or restart, so their own reasons (CrashLoopBackOff, Init:Error, ...) are never printed.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

Object = Mapping[str, Any]


class PodCells(NamedTuple):
    """The cells of the columns READY, STATUS and RESTARTS."""

    ready: str
    status: str
    restarts: str


def pod_cells(pod: Object) -> PodCells:
    """Return READY, STATUS and RESTARTS of `pod`."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = {c.get("name") for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"}
    containers = [
        *(status.get("containerStatuses") or ()),
        *(one for one in status.get("initContainerStatuses") or () if one.get("name") in sidecars),
    ]
    n_ready = sum(bool(one.get("ready")) for one in containers)
    return PodCells(
        ready=f"{n_ready}/{len(spec.get('containers') or ()) + len(sidecars)}",
        status=_status(pod),
        restarts=str(sum(one.get("restartCount", 0) for one in containers)),
    )


def readiness_gates(pod: Object) -> str:
    """Return how many of the pod's readiness gates are true, such as `1/2`; `<none>` if it has none."""
    gates = (pod.get("spec") or {}).get("readinessGates") or ()
    met = {
        condition.get("type")
        for condition in (pod.get("status") or {}).get("conditions") or ()
        if condition.get("status") == "True"
    }
    return f"{sum(gate.get('conditionType') in met for gate in gates)}/{len(gates)}" if gates else "<none>"


def _status(pod: Object) -> str:
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp") and status.get("phase") not in ("Succeeded", "Failed"):
        return "Terminating"
    if any(condition.get("reason") == "SchedulingGated" for condition in status.get("conditions") or ()):
        return "SchedulingGated"
    if status.get("phase") == "Succeeded":
        return "Completed"
    return str(status.get("reason") or status.get("phase") or "")

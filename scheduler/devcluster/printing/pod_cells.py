"""
The cells of a pod's row: readiness, the one word of STATUS, restarts.

Source: pkg/printers/internalversion/printers.go, printPod (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.devcluster.printing.ages import epoch_s, human_duration

Object = Mapping[str, Any]


@dataclass(slots=True)
class _Restarts:
    """How often containers were restarted, and when last (seconds since 1970; 0 for never)."""

    count: int = 0
    last_s: float = 0.0

    def add(self, status: Object) -> None:
        """Count the restarts of one container."""
        self.count += status.get("restartCount", 0)
        terminated = (status.get("lastState") or {}).get("terminated") or {}
        self.last_s = max(self.last_s, epoch_s(terminated.get("finishedAt")) or 0.0)

    def text(self, now_s: float) -> str:
        """Such as `3 (4m5s ago)`."""
        if self.count and self.last_s:
            return f"{self.count} ({human_duration(now_s - self.last_s)} ago)"
        return str(self.count)


@dataclass(frozen=True, slots=True)
class PodSummary:
    """What the READY, STATUS and RESTARTS columns say."""

    ready: str
    status: str
    restarts: str


@dataclass(slots=True)
class _Progress:
    ready: int
    reason: str
    restarts: _Restarts


def pod_summary(pod: Object, now_s: float) -> PodSummary:
    """READY, STATUS and RESTARTS of `pod` at `now_s`."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = {c.get("name") for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"}
    total = len(spec.get("containers") or ()) + len(sidecars)
    progress = _Progress(ready=0, reason=_overall_reason(status), restarts=_Restarts())
    sidecar_restarts = _Restarts()
    initializing = _read_init_containers(pod, sidecars, progress, sidecar_restarts)
    if not initializing or _condition_is_true(status, "Initialized"):
        progress.restarts = sidecar_restarts
        _read_containers(status, progress)
    return PodSummary(
        ready=f"{progress.ready}/{total}",
        status=_terminating_reason(pod) or progress.reason,
        restarts=progress.restarts.text(now_s),
    )


def readiness_gates(pod: Object) -> str:
    """How many of the pod's readiness gates are true, such as `1/2`; `<none>` where it has none."""
    gates = (pod.get("spec") or {}).get("readinessGates") or ()
    status = pod.get("status") or {}
    n_true = sum(_condition_is_true(status, gate.get("conditionType", "")) for gate in gates)
    return f"{n_true}/{len(gates)}" if gates else "<none>"


def _overall_reason(status: Object) -> str:
    reason = status.get("reason") or status.get("phase") or ""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    return str(reason)


def _terminating_reason(pod: Object) -> str | None:
    status = pod.get("status") or {}
    if not pod["metadata"].get("deletionTimestamp"):
        return None
    if status.get("reason") == "NodeLost":
        return "Unknown"
    return None if status.get("phase") in ("Succeeded", "Failed") else "Terminating"


def _read_init_containers(
    pod: Object, sidecars: set[str | None], progress: _Progress, sidecar_restarts: _Restarts
) -> bool:
    """True where initialisation is under way; `progress.reason` then says how far it came."""
    status = pod.get("status") or {}
    for position, container in enumerate(status.get("initContainerStatuses") or ()):
        is_sidecar = container.get("name") in sidecars
        progress.restarts.add(container)
        if is_sidecar:
            sidecar_restarts.add(container)
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if is_sidecar and container.get("started"):
            progress.ready += bool(container.get("ready"))
            continue
        if terminated is not None:
            progress.reason = "Init:" + _exit_reason(terminated)
        elif waiting.get("reason") not in (None, "", "PodInitializing"):
            progress.reason = f"Init:{waiting['reason']}"
        else:
            progress.reason = f"Init:{position}/{len((pod.get('spec') or {}).get('initContainers') or ())}"
        return True
    return False


def _read_containers(status: Object, progress: _Progress) -> None:
    has_running, error_reason = False, ""
    for container in reversed(status.get("containerStatuses") or ()):
        progress.restarts.add(container)
        state = container.get("state") or {}
        terminated = state.get("terminated")
        if (state.get("waiting") or {}).get("reason"):
            progress.reason = state["waiting"]["reason"]
        elif terminated is not None:
            progress.reason = _exit_reason(terminated)
            if terminated.get("exitCode"):
                error_reason = progress.reason
        elif container.get("ready") and state.get("running") is not None:
            has_running = True
            progress.ready += 1
    if progress.reason == "Completed":
        if has_running and _condition_is_true(status, "Ready"):
            progress.reason = "Running"
        elif error_reason:
            progress.reason = error_reason
        elif has_running:
            progress.reason = "NotReady"


def _exit_reason(terminated: Object) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _condition_is_true(status: Object, condition_type: str) -> bool:
    for condition in status.get("conditions") or ():
        if condition.get("type") == condition_type:
            return bool(condition.get("status") == "True")
    return False

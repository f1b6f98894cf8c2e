"""
The status that the kubelet stand-in reports of a bound pod. No container ever runs.

Source: pkg/kubelet/kubelet_pods.go (kubernetes 1.36).
"""

from __future__ import annotations

from scheduler.sandbox.devcluster.conditions import condition_of
from scheduler.sandbox.devcluster.controllers.copies import replaced
from scheduler.sandbox.devcluster.kinds import JsonObject
from scheduler.sandbox.devcluster.timestamps import rfc3339


def running(pod: JsonObject, *, host_ip: str, pod_ip: str, now_s: float) -> JsonObject:
    """Return `pod` with the status of one whose containers all started and are ready at `now_s`."""
    now = rfc3339(now_s)
    status = pod.get("status") or {}
    ip = host_ip if (pod.get("spec") or {}).get("hostNetwork") else pod_ip
    spec = pod.get("spec") or {}
    reported = {
        **{key: value for key, value in status.items() if key not in ("reason", "message")},
        "phase": "Running",
        "startTime": status.get("startTime") or now,
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "conditions": _conditions(pod, now),
        "containerStatuses": [_started(container, now) for container in spec.get("containers") or ()],
    }
    if spec.get("initContainers"):
        reported["initContainerStatuses"] = [_initialised(one, now) for one in spec["initContainers"]]
    return replaced(pod, ("status",), reported)


def succeeded(pod: JsonObject, *, now_s: float) -> JsonObject:
    """Return a running `pod` with the status of one whose containers all ended well at `now_s`."""
    now, status = rfc3339(now_s), pod["status"]
    conditions = [
        {**one, "status": "False", "reason": "PodCompleted", "lastTransitionTime": now}
        if one["type"] in ("Ready", "ContainersReady")
        else one
        for one in status.get("conditions") or ()
    ]
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": status.get("startTime"), "finishedAt": now}
    containers = [
        {**one, "state": {"terminated": ended}, "ready": False, "started": False}
        for one in status.get("containerStatuses") or ()
    ]
    own = {"phase": "Succeeded", "conditions": conditions, "containerStatuses": containers}
    return replaced(pod, ("status",), {**status, **own})


def _conditions(pod: JsonObject, now: str) -> list[JsonObject]:
    """Return the kubelet's conditions, all true; an unmet readiness gate keeps the pod from being ready."""
    conditions = list((pod.get("status") or {}).get("conditions") or ())
    scheduled = condition_of(conditions, "PodScheduled")
    gates = [gate["conditionType"] for gate in (pod.get("spec") or {}).get("readinessGates") or ()]
    unmet = [gate for gate in gates if (condition_of(conditions, gate) or {}).get("status") != "True"]
    own = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    conditions = [condition for condition in conditions if condition.get("type") not in own]
    for name in own:
        added: JsonObject = {"type": name, "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
        if name == "PodScheduled" and scheduled is not None and scheduled.get("status") == "True":
            added = scheduled
        if name == "Ready" and unmet:
            unmet_text = "; ".join(
                f'corresponding condition of pod readiness gate "{g}" does not exist.' for g in unmet
            )
            added |= {"status": "False", "reason": "ReadinessGatesNotReady", "message": unmet_text}
        conditions.append(added)
    return conditions


def _container_status(container: JsonObject, state: JsonObject) -> JsonObject:
    image = container.get("image", "")
    return {
        "name": container.get("name", ""),
        "image": image,
        "imageID": f"devcluster://{image}",
        "containerID": f"devcluster://{container.get('name', '')}",
        "restartCount": 0,
        "lastState": {},
        "state": state,
    }


def _started(container: JsonObject, now: str) -> JsonObject:
    return {
        **_container_status(container, {"running": {"startedAt": now}}),
        "ready": True,
        "started": True,
    }


def _initialised(container: JsonObject, now: str) -> JsonObject:
    if container.get("restartPolicy") == "Always":
        return _started(container, now)
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
    return {**_container_status(container, {"terminated": ended}), "ready": True, "started": False}

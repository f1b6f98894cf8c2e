"""
The kubelet stand-in: what it would report of a bound pod. No container ever runs.

Source: pkg/kubelet/kubelet_pods.go, pkg/kubelet/lifecycle/predicate.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from scheduler.devcluster.admission.quantities import parse_quantity
from scheduler.devcluster.controllers.conditions import cleared, condition_of
from scheduler.devcluster.controllers.copies import replaced
from scheduler.devcluster.controllers.pods import is_terminal
from scheduler.devcluster.kinds import JsonObject
from scheduler.devcluster.printing.ages import rfc3339


def running(pod: JsonObject, *, host_ip: str, pod_ip: str, now_s: float) -> JsonObject:
    """`pod` with the status of one whose containers all started and are ready at `now_s`."""
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


def refusal(pod: JsonObject, node: JsonObject, others: Iterable[JsonObject]) -> tuple[str, str] | None:
    """
    Why the node cannot take the pod beside `others`, as (reason, message); None where it can.

    Resources are looked at by name in order, as the first one missing names the reason.
    """
    room = {
        name: _quantity(text) for name, text in ((node.get("status") or {}).get("allocatable") or {}).items()
    }
    used: dict[str, Decimal] = {}
    n_pods = 0
    for other in others:
        if is_terminal(other):
            continue
        n_pods += 1
        for name, amount in requests(other).items():
            used[name] = used.get(name, Decimal(0)) + amount
    wanted = {**requests(pod), "pods": Decimal(1)}
    used["pods"] = Decimal(n_pods)
    for name in sorted(wanted):
        capacity = room.get(name, Decimal(0))
        taken = used.get(name, Decimal(0))
        if wanted[name] > 0 and wanted[name] + taken > capacity:
            scale = 1000 if name == "cpu" else 1
            amounts = (int(amount * scale) for amount in (wanted[name], taken, capacity))
            text = "Node didn't have enough resource: {}, requested: {}, used: {}, capacity: {}"
            return f"OutOf{name}", text.format(name, *amounts)
    return None


def rejected(pod: JsonObject, reason: str, message: str, *, now_s: float) -> JsonObject:
    """`pod` with the status of one that the node refused."""
    status = {
        **(pod.get("status") or {}),
        "phase": "Failed",
        "reason": reason,
        "message": f"Pod was rejected: {message}",
        "startTime": rfc3339(now_s),
    }
    return replaced(pod, ("status",), status)


def requests(pod: JsonObject) -> dict[str, Decimal]:
    """What the pod asks for: the sum of its containers, or of one init container if that is more; plus overhead."""
    spec = pod.get("spec") or {}
    total: dict[str, Decimal] = {}
    for container in spec.get("containers") or ():
        for name, amount in _container_requests(container).items():
            total[name] = total.get(name, Decimal(0)) + amount
    for container in spec.get("initContainers") or ():
        for name, amount in _container_requests(container).items():
            if container.get("restartPolicy") == "Always":
                total[name] = total.get(name, Decimal(0)) + amount
            else:
                total[name] = max(total.get(name, Decimal(0)), amount)
    for name, text in (spec.get("overhead") or {}).items():
        total[name] = total.get(name, Decimal(0)) + _quantity(text)
    return total


def _quantity(text: object) -> Decimal:
    """A resource quantity as a number, `250m` as 0.25; 0 where it cannot be read."""
    return parse_quantity(text) or Decimal(0)


def _container_requests(container: JsonObject) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: _quantity(text) for name, text in asked.items()}


def _conditions(pod: JsonObject, now: str) -> list[JsonObject]:
    """The kubelet's conditions, all true; a readiness gate that nobody has met keeps the pod from being ready."""
    conditions = list((pod.get("status") or {}).get("conditions") or ())
    scheduled = condition_of(conditions, "PodScheduled")
    gates = [gate["conditionType"] for gate in (pod.get("spec") or {}).get("readinessGates") or ()]
    unmet = [gate for gate in gates if (condition_of(conditions, gate) or {}).get("status") != "True"]
    own = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    for name in own:
        conditions = cleared(conditions, name)
    for name in own[:4]:
        mark: JsonObject = {"type": name, "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
        if name == "Ready" and unmet:
            words = "; ".join(
                f'corresponding condition of pod readiness gate "{g}" does not exist.' for g in unmet
            )
            mark |= {"status": "False", "reason": "ReadinessGatesNotReady", "message": words}
        conditions.append(mark)
    if scheduled is not None and scheduled.get("status") == "True":
        return [*conditions, scheduled]
    mark = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    return [*conditions, mark]


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

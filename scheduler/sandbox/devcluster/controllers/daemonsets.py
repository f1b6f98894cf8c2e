"""
The DaemonSet controller: a pod for every node that takes it, which the scheduler then binds there.

Source: pkg/controller/daemon/daemon_controller.go, util/daemonset_util.go (kubernetes 1.36). Differences: no
ControllerRevision objects (the template's hash is the revision), no surge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from scheduler.engine.syntax.selectors import Requirement
from scheduler.sandbox.devcluster.controllers.actions import (
    Action,
    Create,
    Delete,
    positive,
    replaced,
    status_written,
)
from scheduler.sandbox.devcluster.controllers.ownership import (
    REVISION_LABEL,
    generation,
    pod_from_template,
    scaled,
    template_hash,
)
from scheduler.sandbox.devcluster.controllers.pods import (
    is_available,
    is_terminal,
    is_terminating,
    label,
    node_name,
    ready_since_s,
)
from scheduler.sandbox.devcluster.kinds import DAEMON_SET, POD, JsonObject

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
#: Taints that every daemon tolerates, and the effect.
_TOLERATED: Final = {
    "node.kubernetes.io/not-ready": "NoExecute",
    "node.kubernetes.io/unreachable": "NoExecute",
    "node.kubernetes.io/disk-pressure": "NoSchedule",
    "node.kubernetes.io/memory-pressure": "NoSchedule",
    "node.kubernetes.io/pid-pressure": "NoSchedule",
    "node.kubernetes.io/unschedulable": "NoSchedule",
}


def plan(daemon_set: JsonObject, pods: Iterable[JsonObject], nodes: Sequence[JsonObject]) -> list[Action]:
    """
    Return the next step towards `daemon_set`.

    Args:
        daemon_set: as stored.
        pods: under its control.
        nodes: all of the cluster.
    """
    pods_on: defaultdict[str, list[JsonObject]] = defaultdict(list)
    for pod in pods:
        pods_on[target_node(pod)].append(pod)
    wanted = {node["metadata"]["name"] for node in nodes if _takes(node, daemon_set)}
    actions: list[Action] = []
    if not daemon_set["metadata"].get("deletionTimestamp"):
        actions += _management(daemon_set, pods_on, wanted) or _update(daemon_set, pods_on, wanted)
    status = _status(daemon_set, pods_on, wanted)
    return [*actions, *status_written(DAEMON_SET, daemon_set, status)]


def target_node(pod: JsonObject) -> str:
    """Return the node that the pod runs on, or is made for."""
    affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    for term in affinity.get("nodeSelectorTerms") or ():
        for one in term.get("matchFields") or ():
            if one.get("key") == "metadata.name":
                return node_name(pod) or str(one["values"][0])
    return node_name(pod)


def _tolerations(daemon_set: JsonObject) -> list[JsonObject]:
    own = daemon_set["spec"]["template"]["spec"].get("tolerations") or []
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED.items()]
    return [*own, *added]


def _takes(node: JsonObject, daemon_set: JsonObject) -> bool:
    """Return whether the node matches the template's selector and affinity, and has no taint that keeps it out."""
    spec, labels = daemon_set["spec"]["template"]["spec"], node["metadata"].get("labels") or {}
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    if affinity is not None and not any(
        _holds(term, node, labels) for term in affinity.get("nodeSelectorTerms") or ()
    ):
        return False
    tolerations = _tolerations(daemon_set)
    taints = (node.get("spec") or {}).get("taints") or ()
    return all(
        any(_tolerates(one, taint) for one in tolerations)
        for taint in taints
        if taint.get("effect") in ("NoSchedule", "NoExecute")
    )


def _holds(term: JsonObject, node: JsonObject, labels: JsonObject) -> bool:
    fields = {"metadata.name": node["metadata"]["name"]}
    conditions = [*((one, labels) for one in term.get("matchExpressions") or ())]
    conditions += [(one, fields) for one in term.get("matchFields") or ()]
    return bool(conditions) and all(
        Requirement(one["key"], one["operator"], tuple(sorted(one.get("values") or ()))).matches(values)
        for one, values in conditions
    )


def _tolerates(toleration: JsonObject, taint: JsonObject) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    exists = toleration.get("operator") == "Exists"
    return exists or (toleration.get("value") or "") == (taint.get("value") or "")


def _management(
    daemon_set: JsonObject, pods_on: dict[str, list[JsonObject]], wanted: set[str]
) -> list[Action]:
    """Make the pod of every node that lacks one; delete pods that ended, are surplus or are misplaced."""
    actions: list[Action] = []
    for node in sorted(wanted):
        live = [pod for pod in pods_on.get(node, ()) if not is_terminating(pod)]
        actions += [Delete(POD, pod) for pod in live if is_terminal(pod)]
        running = [pod for pod in live if not is_terminal(pod)]
        running.sort(key=lambda pod: (not node_name(pod), str(pod["metadata"]["creationTimestamp"])))
        actions += [Delete(POD, pod) for pod in running[1:]]
        if not pods_on.get(node):
            actions.append(Create(POD, _pod(daemon_set, node)))
    for node in sorted(set(pods_on) - wanted):
        live = [pod for pod in pods_on[node] if not is_terminating(pod)]
        actions += [Delete(POD, pod) for pod in live]
    return actions


def _update(daemon_set: JsonObject, pods_on: dict[str, list[JsonObject]], wanted: set[str]) -> list[Action]:
    """Delete outdated pods, as many as may be unavailable at once."""
    strategy = daemon_set["spec"].get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return []
    limit = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
    room = max(scaled(limit, len(wanted), round_up=True), 1)
    newest, outdated = revision_hash(daemon_set), []
    for node in sorted(wanted):
        pod = next(iter(pods_on.get(node, ())), None)
        if pod is None or not is_available(pod):
            room -= 1
        if pod is not None and not is_terminating(pod) and label(pod, REVISION_LABEL) != newest:
            outdated.append((is_available(pod), pod))
    # Replacing an unavailable pod costs no availability.
    gone = [pod for available, pod in outdated if not available]
    gone += [pod for available, pod in outdated if available][: max(room, 0)]
    return [Delete(POD, pod) for pod in gone]


def revision_hash(daemon_set: JsonObject) -> str:
    """Return the revision label of the pods of the current template."""
    return template_hash(daemon_set["spec"]["template"])


def _pod(daemon_set: JsonObject, node: str) -> JsonObject:
    pod = pod_from_template(daemon_set, {REVISION_LABEL: revision_hash(daemon_set)})
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    spec = replaced(pod["spec"], ("affinity", "nodeAffinity", _REQUIRED), {"nodeSelectorTerms": [term]})
    spec["tolerations"] = _tolerations(daemon_set)
    return {**pod, "spec": spec}


def _status(daemon_set: JsonObject, pods_on: dict[str, list[JsonObject]], wanted: set[str]) -> JsonObject:
    here = [pods_on[node][0] for node in sorted(wanted & set(pods_on))]
    available = sum(is_available(pod) for pod in here)
    newest = revision_hash(daemon_set)
    counts = {
        "updatedNumberScheduled": sum(label(pod, REVISION_LABEL) == newest for pod in here),
        "numberAvailable": available,
        "numberUnavailable": len(wanted) - available,
    }
    return {
        "currentNumberScheduled": len(here),
        "desiredNumberScheduled": len(wanted),
        "numberMisscheduled": sum(bool(node) for node in set(pods_on) - wanted),
        "numberReady": sum(ready_since_s(pod) is not None for pod in here),
        "observedGeneration": generation(daemon_set),
        **positive(counts),
    }

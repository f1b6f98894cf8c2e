"""
The kubelet stand-in of all nodes: a pod on a node runs, one of a Job ends a second later, a deleted one goes. No
container ever runs.

Source: pkg/kubelet/kubelet_pods.go (kubernetes 1.36). Differences: readiness gates keep no pod from being ready,
init containers have no status, ended ones do not say how they ended, and pods and nodes have no addresses.
"""

from __future__ import annotations

from typing import Final

from scheduler.sandbox.devcluster.controllers.actions import Action, Delete, Revisit, status_written, without
from scheduler.sandbox.devcluster.controllers.device_claims import extended_claim, is_reserved, pod_claims
from scheduler.sandbox.devcluster.controllers.objects import (
    claim_names,
    controller_of,
    is_terminating,
    key_of,
    node_name,
    phase,
)
from scheduler.sandbox.devcluster.controllers.volumes import is_bound
from scheduler.sandbox.devcluster.kinds import (
    JOB,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    RESOURCE_CLAIM,
    JsonObject,
)
from scheduler.sandbox.devcluster.parts import with_condition
from scheduler.sandbox.devcluster.storage.store import ObjectStore

#: Seconds until a running pod of a Job succeeds.
_JOB_RUNS_S: Final = 1.0
#: Seconds until a pod without its node or its claims is looked at again.
_RETRY_S: Final = 0.2
_CONDITIONS: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


def plan(pod: JsonObject, store: ObjectStore) -> list[Action]:
    """Return the next step of a pod on a node; nothing for one that waits for a scheduler, runs or has ended."""
    if not node_name(pod):
        return []
    if is_terminating(pod):
        return [Delete(POD, pod, grace_s=0)]
    of_job = controller_of(pod).get("kind") == JOB.kind
    if phase(pod) == "Running" and of_job:
        return status_written(POD, pod, _succeeded(pod["status"]))
    if phase(pod) != "Pending":
        return []
    has_node = store.find(NODE, "", node_name(pod)) is not None
    if not has_node or not (_has_volumes(pod, store) and _has_devices(pod, store)):
        return [Revisit(_RETRY_S)]
    started = status_written(POD, pod, _running(pod, store.now()))
    return [*started, Revisit(_JOB_RUNS_S)] if of_job else started


def _has_devices(pod: JsonObject, store: ObjectStore) -> bool:
    """Return whether every device claim of the pod is reserved for it."""
    names = [*pod_claims(pod).values(), *filter(None, [extended_claim(pod)])]
    claims = (store.find(RESOURCE_CLAIM, key_of(pod)[0], name) for name in names if name)
    return None not in names and all(claim is not None and is_reserved(claim, pod) for claim in claims)


def _has_volumes(pod: JsonObject, store: ObjectStore) -> bool:
    """Return whether every claim of the pod is bound."""
    claims = (store.find(PERSISTENT_VOLUME_CLAIM, key_of(pod)[0], name) for name in claim_names(pod))
    return all(claim is not None and is_bound(claim) for claim in claims)


def _running(pod: JsonObject, now: str) -> JsonObject:
    """Return the status of a pod whose containers all started and are ready."""
    status = pod.get("status") or {}
    conditions = status.get("conditions") or []
    for name in _CONDITIONS:
        met = {"type": name, "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
        conditions = with_condition(conditions, met)
    return {
        **without(status, "reason", "message"),
        "phase": "Running",
        "startTime": status.get("startTime") or now,
        "conditions": conditions,
        "containerStatuses": [_started(container, now) for container in pod["spec"].get("containers") or ()],
    }


def _started(container: JsonObject, now: str) -> JsonObject:
    return {
        "name": container.get("name", ""),
        "image": container.get("image", ""),
        "restartCount": 0,
        "state": {"running": {"startedAt": now}},
        "ready": True,
        "started": True,
    }


def _succeeded(status: JsonObject) -> JsonObject:
    """Return the status of a running pod after all its containers ended well."""
    left = [one for one in status["conditions"] if one["type"] not in ("Ready", "ContainersReady")]
    ended = [{**one, "ready": False} for one in status["containerStatuses"]]
    return {**status, "phase": "Succeeded", "conditions": left, "containerStatuses": ended}

"""
The kubelet stand-in of all nodes: bound pods run a moment later, deleted ones are gone a moment later. No container
ever runs.

Source: pkg/kubelet/kubelet_pods.go (kubernetes 1.36). Differences: readiness gates keep no pod from being ready, and
init containers have no status.
"""

from __future__ import annotations

import ipaddress
import logging
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from typing import Final

from scheduler.sandbox.devcluster.conditions import with_condition
from scheduler.sandbox.devcluster.controllers.actions import replaced, without
from scheduler.sandbox.devcluster.controllers.claims import is_bound
from scheduler.sandbox.devcluster.controllers.device_claims import extended_claim, is_reserved, pod_claims
from scheduler.sandbox.devcluster.controllers.ownership import controller_of, key_of, uid
from scheduler.sandbox.devcluster.controllers.pods import claim_names, is_terminating, node_name, phase
from scheduler.sandbox.devcluster.controllers.queue import WorkQueue
from scheduler.sandbox.devcluster.kinds import (
    JOB,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    RESOURCE_CLAIM,
    JsonObject,
    Kind,
)
from scheduler.sandbox.devcluster.status import StatusError
from scheduler.sandbox.devcluster.storage.history import ObjectChange
from scheduler.sandbox.devcluster.storage.store import ObjectStore
from scheduler.sandbox.devcluster.timestamps import rfc3339

_LOG: Final = logging.getLogger(__name__)
#: Seconds until a bound pod runs, or a deleted one is gone; and until a running one of a Job succeeds.
_MOMENT_S: Final = 0.05
_JOB_RUNS_S: Final = 1.0
#: Seconds until a pod whose claims are not bound, or not reserved for it, is looked at again.
_CLAIM_RETRY_S: Final = 0.2
_POD_NETWORK: Final = ipaddress.ip_network("10.128.0.0/9")
_NODE_IP: Final = "172.18.0.2"
_CONDITIONS: Final = (
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
)


class KubeletLoop:
    """Reports on the pods of all nodes. Times inside are of the monotonic clock `now_s`."""

    def __init__(self, store: ObjectStore, now_s: Callable[[], float]) -> None:
        self._store, self._now_s = store, now_s
        #: (namespace, name, uid) of pods to start or remove.
        self._queue: WorkQueue[tuple[str, str, str]] = WorkQueue(now_s)
        self._ips = count(2)
        #: Node -> its pods by (namespace, name).
        self._pods_on: defaultdict[str, dict[tuple[str, str], JsonObject]] = defaultdict(dict)
        #: Stop following the store.
        self.close: Final = store.history.follow((POD,), self._note)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._queue.run(self._sync)

    def _note(self, kind: Kind, change: ObjectChange) -> None:
        if kind is NODE and change.previous is None:
            for pod in list(self._pods_on.get(change.revision.obj["metadata"]["name"], {}).values()):
                self._schedule(pod)
        if kind is not POD:
            return
        pod, previous = change.revision.obj, change.previous
        if previous is not None:
            self._pods_on[node_name(previous.obj)].pop(key_of(previous.obj), None)
        if change.type == "DELETED" or not node_name(pod):
            return
        self._pods_on[node_name(pod)][key_of(pod)] = pod
        is_news = previous is None or not node_name(previous.obj)
        if is_news or is_terminating(pod) != is_terminating(previous.obj if previous else pod):
            self._schedule(pod)

    def _schedule(self, pod: JsonObject, after_s: float = _MOMENT_S) -> None:
        self._queue.put((*key_of(pod), uid(pod)), self._now_s() + after_s)

    def _sync(self, named: tuple[str, str, str], _: float) -> None:
        """Start or remove the pod, or leave it, as the store says now."""
        pod, where = self._store.find(POD, *named[:2]), "/".join(named[:2])
        if pod is None or uid(pod) != named[2]:
            return
        try:
            of_job = (controller_of(pod) or {}).get("kind") == JOB.kind
            if is_terminating(pod):
                self._store.delete(POD, *key_of(pod), uid=uid(pod), grace_period_s=0)
            elif phase(pod) == "Pending" and not (self._has_volumes(pod) and self._has_devices(pod)):
                self._schedule(pod, _CLAIM_RETRY_S)
            elif phase(pod) == "Pending" and (node := self._store.find(NODE, "", node_name(pod))):
                self._store.update(POD, self._reported(pod, node), subresource="status")
                if of_job:
                    self._schedule(pod, _JOB_RUNS_S)
            elif phase(pod) == "Running" and of_job:
                ended = succeeded(pod, now_s=self._store.now_s())
                self._store.update(POD, ended, subresource="status")
        except (AttributeError, KeyError, TypeError, ValueError) as malformed:
            _LOG.warning("Pod %s is malformed: %r", where, malformed)
        except StatusError as refused:
            _LOG.warning("status of pod %s was refused: %s", where, refused.message)

    def _has_devices(self, pod: JsonObject) -> bool:
        """Return whether every device claim of the pod is reserved for it."""
        names = [*pod_claims(pod).values(), *filter(None, [extended_claim(pod)])]
        claims = (self._store.find(RESOURCE_CLAIM, key_of(pod)[0], name) for name in names if name)
        return None not in names and all(claim is not None and is_reserved(claim, pod) for claim in claims)

    def _has_volumes(self, pod: JsonObject) -> bool:
        """Return whether every claim of the pod is bound."""
        find, namespace = self._store.find, key_of(pod)[0]
        claims = (find(PERSISTENT_VOLUME_CLAIM, namespace, name) for name in claim_names(pod))
        return all(claim is not None and is_bound(claim) for claim in claims)

    def _reported(self, pod: JsonObject, node: JsonObject) -> JsonObject:
        addresses = (node.get("status") or {}).get("addresses") or ()
        host_ip = next((a["address"] for a in addresses if a.get("type") == "InternalIP"), _NODE_IP)
        pod_ip = str(_POD_NETWORK[next(self._ips) % (_POD_NETWORK.num_addresses - 2) + 1])
        return running(pod, host_ip=host_ip, pod_ip=pod_ip, now_s=self._store.now_s())


# -- what is reported ----------------------------------------------------------------------------------------


def running(pod: JsonObject, *, host_ip: str, pod_ip: str, now_s: float) -> JsonObject:
    """Return `pod` with the status of one whose containers all started and are ready at `now_s`."""
    now, spec, status = rfc3339(now_s), pod.get("spec") or {}, pod.get("status") or {}
    ip = host_ip if spec.get("hostNetwork") else pod_ip
    reported = {
        **without(status, "reason", "message"),
        "phase": "Running",
        "startTime": status.get("startTime") or now,
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "conditions": _conditions(pod, now),
        "containerStatuses": [_started(container, now) for container in spec.get("containers") or ()],
    }
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
    """Return the kubelet's conditions, all true, after those of others."""
    conditions = list((pod.get("status") or {}).get("conditions") or ())
    for name in _CONDITIONS:
        met = {"type": name, "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
        conditions = with_condition(conditions, met)
    return conditions


def _started(container: JsonObject, now: str) -> JsonObject:
    image, name = container.get("image", ""), container.get("name", "")
    return {
        "name": name,
        "image": image,
        "imageID": f"devcluster://{image}",
        "containerID": f"devcluster://{name}",
        "restartCount": 0,
        "lastState": {},
        "state": {"running": {"startedAt": now}},
        "ready": True,
        "started": True,
    }

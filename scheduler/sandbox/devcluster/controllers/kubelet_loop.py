"""The kubelet stand-in of all nodes: bound pods run a moment later, deleted ones are gone a moment later."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import ipaddress
import logging
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final

from scheduler.sandbox.devcluster.controllers.claims import is_bound
from scheduler.sandbox.devcluster.controllers.device_claims import extended_claim, is_reserved, pod_claims
from scheduler.sandbox.devcluster.controllers.kubelet import running, succeeded
from scheduler.sandbox.devcluster.controllers.ownership import key_of, uid
from scheduler.sandbox.devcluster.controllers.pods import claim_names, is_terminating, node_name, phase
from scheduler.sandbox.devcluster.kinds import (
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    RESOURCE_CLAIM,
    JsonObject,
    Kind,
)
from scheduler.sandbox.devcluster.status import StatusError
from scheduler.sandbox.devcluster.storage.history import Change
from scheduler.sandbox.devcluster.storage.store import Store

_LOG: Final = logging.getLogger(__name__)
#: Longest time to hold the event loop.
_SLICE_S: Final = 0.005
#: Seconds until a pod whose claims are not bound, or not reserved for it, is looked at again.
_CLAIM_RETRY_S: Final = 0.2
_POD_NETWORK: Final = ipaddress.ip_network("10.128.0.0/9")
_NODE_IP: Final = "172.18.0.2"


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """Seconds until a bound pod runs, until a running one of a Job succeeds, and until a deleted one is gone."""

    start_after_s: float = 0.05
    stop_after_s: float = 0.05
    job_runs_s: float = 1.0


class KubeletLoop:
    """Reports on the pods of all nodes. Times inside are of the monotonic clock `now_s`."""

    def __init__(
        self, store: Store, settings: KubeletSettings, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._now_s = store, now_s
        self._settings = settings
        #: Heap of (due_s, order, namespace, name, uid) of pods to start or remove.
        self._due: list[tuple[float, int, str, str, str]] = []
        self._order = count()
        self._ips = count(2)
        #: Node -> its pods by (namespace, name).
        self._pods_on: defaultdict[str, dict[tuple[str, str], JsonObject]] = defaultdict(dict)
        self._woken = asyncio.Event()
        #: Stop following the store.
        self.close: Final = store.history.follow((POD,), self._note)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._woken.clear()
            await self._work()
            wait_s = max(self._due[0][0] - self._now_s(), 0.0) if self._due else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()

    async def _work(self) -> None:
        began_s = self._now_s()
        while self._due and self._due[0][0] <= self._now_s():
            _, _, namespace, name, pod_uid = heapq.heappop(self._due)
            pod = self._store.find(POD, namespace, name)
            if pod is not None and uid(pod) == pod_uid:
                self._sync_pod(pod)
            if self._now_s() - began_s > _SLICE_S:
                await asyncio.sleep(0)
                began_s = self._now_s()

    def _note(self, kind: Kind, change: Change) -> None:
        if kind is NODE and change.previous is None:
            for pod in list(self._pods_on.get(change.revision.obj["metadata"]["name"], {}).values()):
                self._schedule(pod)
        if kind is not POD:
            return
        pod, previous = change.revision.obj, change.previous
        if previous is not None and node_name(previous.obj):
            self._remove_pod(previous.obj)
        if change.type == "DELETED" or not node_name(pod):
            return
        self._pods_on[node_name(pod)][key_of(pod)] = pod
        is_news = previous is None or not node_name(previous.obj)
        if is_news or is_terminating(pod) != is_terminating(previous.obj if previous else pod):
            self._schedule(pod)

    def _remove_pod(self, pod: JsonObject) -> None:
        pods = self._pods_on[node_name(pod)]
        pods.pop(key_of(pod), None)
        if not pods:
            del self._pods_on[node_name(pod)]

    def _has_devices(self, pod: JsonObject) -> bool:
        """Return whether every device claim of the pod is reserved for it."""
        namespace = pod["metadata"].get("namespace", "")
        names = [*pod_claims(pod).values(), *filter(None, [extended_claim(pod)])]
        claims = (self._store.find(RESOURCE_CLAIM, namespace, name) for name in names if name)
        return None not in names and all(claim is not None and is_reserved(claim, pod) for claim in claims)

    def _has_volumes(self, pod: JsonObject) -> bool:
        """Return whether every claim of the pod is bound."""
        namespace = pod["metadata"].get("namespace", "")
        claims = (self._store.find(PERSISTENT_VOLUME_CLAIM, namespace, name) for name in claim_names(pod))
        return all(claim is not None and is_bound(claim) for claim in claims)

    def _schedule(self, pod: JsonObject, after_s: float | None = None) -> None:
        if after_s is None:
            after_s = self._settings.stop_after_s if is_terminating(pod) else self._settings.start_after_s
        entry = (self._now_s() + after_s, next(self._order), *key_of(pod), uid(pod))
        heapq.heappush(self._due, entry)
        self._woken.set()

    def _sync_pod(self, pod: JsonObject) -> None:
        """Start or remove the pod, or leave it, as the store says now."""
        metadata = pod["metadata"]
        try:
            if is_terminating(pod):
                namespace, name = key_of(pod)
                self._store.delete(POD, namespace, name, uid=uid(pod), grace_period_s=0)
            elif phase(pod) == "Pending" and not (self._has_volumes(pod) and self._has_devices(pod)):
                self._schedule(pod, _CLAIM_RETRY_S)
            elif phase(pod) == "Pending" and (node := self._store.find(NODE, "", node_name(pod))):
                self._store.update(POD, self._reported(pod, node), subresource="status")
                if _is_of_job(pod):
                    self._schedule(pod, self._settings.job_runs_s)
            elif phase(pod) == "Running" and _is_of_job(pod):
                ended = succeeded(pod, now_s=self._store.now_s())
                self._store.update(POD, ended, subresource="status")
        except (AttributeError, KeyError, TypeError, ValueError) as malformed:
            _LOG.warning("Pod %s/%s is malformed: %r", metadata.get("namespace"), metadata["name"], malformed)
        except StatusError as refused:
            where = f"{metadata.get('namespace')}/{metadata['name']}"
            _LOG.warning("status of pod %s was refused: %s", where, refused.message)

    def _reported(self, pod: JsonObject, node: JsonObject) -> JsonObject:
        now_s = self._store.now_s()
        addresses = (node.get("status") or {}).get("addresses") or ()
        host_ip = next((a["address"] for a in addresses if a.get("type") == "InternalIP"), _NODE_IP)
        return running(pod, host_ip=host_ip, pod_ip=self._next_ip(), now_s=now_s)

    def _next_ip(self) -> str:
        return str(_POD_NETWORK[next(self._ips) % (_POD_NETWORK.num_addresses - 2) + 1])


def _is_of_job(pod: JsonObject) -> bool:
    """Return whether the pod is one that ends by itself."""
    references = pod["metadata"].get("ownerReferences") or ()
    return any(one.get("kind") == "Job" and one.get("controller") for one in references)

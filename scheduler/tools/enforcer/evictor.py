"""
Evicts pods, and nominates those for which room is made. Outcomes are values; no failure of the server raises.

       POST --2xx--> evicted          429 --> blocked: a disruption budget, or the server is busy
        |
        |--404--> gone                403, 4xx --> failed
        '--409, lost, 5xx--> GET --gone, or another uid--> after 409: gone; else evicted, most likely by us
                              |--terminating--> evicted
                              '--unchanged, or no answer--> failed
The caller retries later: the uid precondition makes a second eviction harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.requests import Request, escaped, get_pod, patch_pod_status
from scheduler.daemon.kube.responses import decode_written
from scheduler.engine.model.pods import Pod
from scheduler.errors import ApiError, Conflict, NotFound, Throttled
from scheduler.tools.enforcer.instructions import EvictionResult

#: Longer than the 10.5 s for which the server retries after conflicts, a wrong uid included (`EvictionsRetry`).
TIMEOUT_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class EvictionOutcome:
    """The end of an eviction, the reason if it did not succeed, and the pause that the server asked for."""

    ended: EvictionResult
    message: str = ""
    retry_after_s: float | None = None


_NO_LEADER: Final = EvictionOutcome(EvictionResult.FAILED, "this enforcer no longer leads, or stops")


def evict_pod(pod: Pod) -> Request:
    """
    Return a request that evicts this pod, and no other of its name. A PodDisruptionBudget may forbid it (429).

    Source: policy/v1 Eviction; pkg/registry/core/pod/storage/eviction.go (1.36).
    """
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    path = f"/api/v1/namespaces/{escaped(pod.namespace)}/pods/{escaped(pod.name)}/eviction"
    return Request.writing("create", path, eviction)


async def evict(client: KubeClient, pod: Pod) -> EvictionOutcome:
    """Evict the pod. Sends at most two requests."""
    try:
        await client.request(evict_pod(pod), timeout_s=TIMEOUT_S)
    except NotFound:
        return EvictionOutcome(EvictionResult.GONE)
    except Throttled as error:
        return EvictionOutcome(EvictionResult.BLOCKED, error.message, error.retry_after_s)
    except ApiError as error:
        if isinstance(error, Conflict) or error.took_effect_unknown:
            return await _settle(client, pod, error)
        return EvictionOutcome(EvictionResult.FAILED, str(error))
    return EvictionOutcome(EvictionResult.EVICTED)


async def nominate(
    client: KubeClient, nominations: Iterable[tuple[Pod, str]], *, may_act: Callable[[], bool]
) -> EvictionOutcome | None:
    """
    Nominate the pending pods to these nodes, one after the other. Return why no pod is to be evicted for them.

    `may_act` is asked before each write, and before the eviction: a search before took time.
    """
    for pod, node_name in nominations:
        if not may_act():
            return _NO_LEADER
        request = patch_pod_status(
            namespace=pod.namespace, name=pod.name, uid=pod.uid, condition=None, nominated_node_name=node_name
        )
        try:
            await client.request(request, timeout_s=TIMEOUT_S)
        except ApiError as error:
            return EvictionOutcome(EvictionResult.FAILED, f"nominate {pod.key} to {node_name}: {error}")
    return None if may_act() else _NO_LEADER


async def _settle(client: KubeClient, pod: Pod, cause: ApiError) -> EvictionOutcome:
    """Read the pod and return the outcome of an eviction that failed with `cause`."""
    vanished = EvictionOutcome(EvictionResult.EVICTED if cause.took_effect_unknown else EvictionResult.GONE)
    try:
        body = await client.request(get_pod(pod.namespace, pod.name), timeout_s=TIMEOUT_S)
        found = decode_written(body).metadata
    except NotFound:
        return vanished
    except ApiError as error:
        return EvictionOutcome(EvictionResult.FAILED, f"{cause}; then: {error}")
    if found.uid != pod.uid:
        return vanished
    if found.deletion_timestamp is not None:
        return EvictionOutcome(EvictionResult.EVICTED)
    return EvictionOutcome(EvictionResult.FAILED, str(cause), cause.retry_after_s)

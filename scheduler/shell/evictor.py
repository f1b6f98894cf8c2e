"""
Evicts pods. Answers are values; no failure of the server raises.

       POST --2xx--> evicted          429 --> blocked: a disruption budget, or the server is busy
        |
        |--404--> gone                403, 4xx --> failed
        '--409, lost, 5xx--> GET --gone, or another uid--> after 409: gone; else evicted, as far as anybody can tell
                              |--being deleted--> evicted
                              '--as before, or no answer--> failed
Whoever asked tries again later: the uid makes a second eviction harmless.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from scheduler.enforcing.instructions import EvictionResult
from scheduler.errors import ApiError, Conflict, NotFound, Throttled
from scheduler.kube.client import KubeClient
from scheduler.kube.evicting import evict, is_leaving
from scheduler.kube.requests import get_pod
from scheduler.model.pods import Pod

#: The server tries for up to 10.5 s after conflicts, another uid among them (`EvictionsRetry`); this is longer.
TIMEOUT_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an eviction ended, why where it did not succeed, and the pause that the server asked for."""

    ended: EvictionResult
    message: str = ""
    retry_after_s: float | None = None


async def evicted(client: KubeClient, pod: Pod) -> Outcome:
    """What became of evicting this pod, within two requests."""
    try:
        await client.request(evict(pod.namespace, pod.name, pod.uid), timeout_s=TIMEOUT_S)
    except NotFound:
        return Outcome(EvictionResult.GONE)
    except Throttled as error:
        return Outcome(EvictionResult.BLOCKED, error.message, error.retry_after_s)
    except ApiError as error:
        if isinstance(error, Conflict) or error.took_effect_unknown:
            return await _settled(client, pod, error)
        return Outcome(EvictionResult.FAILED, str(error))
    return Outcome(EvictionResult.EVICTED)


async def _settled(client: KubeClient, pod: Pod, cause: ApiError) -> Outcome:
    vanished = Outcome(EvictionResult.EVICTED if cause.took_effect_unknown else EvictionResult.GONE)
    try:
        body = await client.request(get_pod(pod.namespace, pod.name), timeout_s=TIMEOUT_S)
        leaving = is_leaving(body, pod.uid)
    except NotFound:
        return vanished
    except ApiError as error:
        return Outcome(EvictionResult.FAILED, f"{cause}; then: {error}")
    if leaving is None:
        return vanished
    return (
        Outcome(EvictionResult.EVICTED)
        if leaving
        else Outcome(EvictionResult.FAILED, str(cause), cause.retry_after_s)
    )

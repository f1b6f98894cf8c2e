"""
Evicts the pods that are in the way of one of higher priority. Outcomes are values; no failure of the server raises.

    wanted? --no--> spared
       |
     PATCH condition DisruptionTarget --> wanted? --no--> spared
                                             |
                                           DELETE, of this uid --2xx--> deleted       404, 409 --> gone
                                             `--429, lost, 5xx--> pause, again (bounded) --> failed

Both writes may be repeated, since a second one changes nothing. The grace period is the pod's own.

Source: framework/preemption/executor.go, PreemptPod (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from scheduler.errors import ApiError, Conflict, ServerFault, Throttled, Unreachable
from scheduler.kube.client import KubeClient
from scheduler.kube.requests import PodCondition, Request, delete_pod, patch_pod_status, second_time
from scheduler.model.instructions import EvictVictim
from scheduler.model.pods import Pod
from scheduler.model.stimuli import EvictionEnded, VictimFate
from scheduler.shell.binder import MAX_POSTS, TIMEOUT_S
from scheduler.shell.conditions import is_pod_gone


class VictimEvictor:
    """
    Evicts through the API server.

    Args:
        client: sends the requests.
        clock_s: the time since the epoch.
        pause: waits after the failed attempt of this number.
        is_wanted: returns True while a pod, by its UID, still needs the place of another one.
        may_write: returns True while this instance may write; called before a write and after the rate limit.
        on_failed: called with the victim and the error of an eviction that is given up.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        clock_s: Callable[[], float],
        pause: Callable[[int, ApiError], Awaitable[None]],
        is_wanted: Callable[[str, str], bool],
        may_write: Callable[[], bool] = lambda: True,
        on_failed: Callable[[Pod, str], None] = lambda _pod, _why: None,
    ) -> None:
        self._client, self._clock_s, self._pause = client, clock_s, pause
        self._is_wanted, self._may_write, self._on_failed = is_wanted, may_write, on_failed

    async def evict(self, instruction: EvictVictim) -> EvictionEnded:
        """Evict the victim and return its fate."""
        preemptor, victim = instruction.preemptor, instruction.victim
        for request, fate in (
            (self._condition(preemptor, victim), None),
            (delete_pod(victim.namespace, victim.name, victim.uid), VictimFate.DELETED),
        ):
            if not self._may_write() or not self._is_wanted(preemptor.uid, victim.uid):
                fate = VictimFate.SPARED
            elif (problem := await self._send(request)) is not None:
                fate = self._fate(victim, problem)
            if fate is not None:
                break
        return EvictionEnded(preemptor.uid, victim.uid, fate or VictimFate.FAILED)

    def _fate(self, victim: Pod, problem: ApiError) -> VictimFate:
        if is_pod_gone(problem) or isinstance(problem, Conflict):
            return VictimFate.GONE
        self._on_failed(victim, str(problem))
        return VictimFate.FAILED

    async def _send(self, request: Request) -> ApiError | None:
        """Send the request, again if it may have failed by chance. Return the last error."""
        last: ApiError | None = None
        for attempt in range(1, MAX_POSTS + 1):
            try:
                await self._client.request(request, timeout_s=TIMEOUT_S, may_send=self._may_write)
            except ApiError as error:
                last = error
                if not isinstance(error, (Throttled, Unreachable, ServerFault)):
                    return error
                if attempt < MAX_POSTS:
                    await self._pause(attempt, error)
            else:
                return None
        return last

    def _condition(self, preemptor: Pod, victim: Pod) -> Request:
        reason: Final = "PreemptionByScheduler"
        why = "preempting to accommodate a higher priority pod"
        if (
            victim.group is not None
            and preemptor.group is not None
            and victim.group.key == preemptor.group.key
        ):
            why = "its pod group has lost members and is placed anew"
        condition = PodCondition(
            type="DisruptionTarget",
            status="True",
            reason=reason,
            message=f"{preemptor.scheduler_name}: {why}",
            last_transition_time=second_time(self._clock_s()),
            observed_generation=victim.generation,
        )
        return patch_pod_status(
            namespace=victim.namespace, name=victim.name, uid=victim.uid, condition=condition
        )

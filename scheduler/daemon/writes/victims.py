"""
Evicts the pods that are in the way of one of higher priority. Outcomes are values; no failure of the server raises.

    EvictVictim --> EvictionDue --SpareVictim--> spared
                        | ProceedWithEviction
                    PATCH condition DisruptionTarget --> EvictionDue --SpareVictim--> spared
                        `--404--> gone; 409: again            | ProceedWithEviction
                                                          DELETE, of this uid --2xx--> deleted
                                                              |--404, another uid--> gone
                                                              `--429, lost, 5xx--> pause; EvictionDue again, bounded
                                                                   `--> failed

Before each write the machine is asked whether the place is still needed; nothing is awaited between its answer and the
write. So nothing is written about a pod that is known to end, whatever became of an earlier try. A pod that ends, or is
gone, after a DELETE without an answer was deleted by it. The grace period is the pod's own.

Source: framework/preemption/executor.go, PreemptPod (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.requests import PodCondition, Request, delete_pod, patch_pod_status, second_time
from scheduler.daemon.writes.binder import MAX_POSTS, TIMEOUT_S
from scheduler.daemon.writes.conditions import is_pod_gone
from scheduler.engine.model.instructions import EvictVictim, Instruction, SpareVictim
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import EvictionDue, EvictionEnded, EvictionStep, VictimFate
from scheduler.errors import ApiError, Conflict, ServerFault, Throttled, Unreachable


class VictimEvictor:
    """
    Evicts through the API server.

    Args:
        client: sends the requests.
        clock_s: the time since the epoch.
        pause: waits after the failed attempt of this number.
        put: puts EvictionDue to the machine, once no group is on trial, and returns its instruction at once. The
            disruption controller takes back a condition that no DELETE follows within two minutes.
        may_write: returns True while this instance may write; called before a write and after the rate limit.
        on_failed: called with the victim and the error of an eviction that is given up.
        on_deleted: called with the eviction of a pod that this deleted.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        clock_s: Callable[[], float],
        pause: Callable[[int, ApiError], Awaitable[None]],
        put: Callable[[EvictionDue], Awaitable[list[Instruction]]],
        may_write: Callable[[], bool] = lambda: True,
        on_failed: Callable[[Pod, str], None] = lambda _pod, _why: None,
        on_deleted: Callable[[EvictVictim], None] = lambda _instruction: None,
    ) -> None:
        self._client, self._clock_s, self._pause = client, clock_s, pause
        self._put, self._may_write = put, may_write
        self._on_failed, self._on_deleted = on_failed, on_deleted

    async def evict(self, instruction: EvictVictim) -> EvictionEnded:
        """Evict the victim and return its fate."""
        ended = await self._evict(instruction)
        if ended.fate is VictimFate.DELETED:
            self._on_deleted(instruction)
        return ended

    async def _evict(self, instruction: EvictVictim) -> EvictionEnded:
        preemptor, victim = instruction.preemptor, instruction.victim
        deletion = delete_pod(victim.namespace, victim.name, victim.uid)
        condition = self._condition(preemptor, victim)
        for request, step in ((condition, EvictionStep.CONDITION), (deletion, EvictionStep.DELETION)):
            if not self._may_write() or await self._spared(instruction, step) is not None:
                return EvictionEnded(preemptor.uid, victim.uid, VictimFate.SPARED)
            problem, in_doubt = await self._send(request, instruction)
            if problem is None:
                continue
            if isinstance(problem, VictimFate):
                return EvictionEnded(preemptor.uid, victim.uid, problem)
            if is_pod_gone(problem) or _is_another_pod(problem):
                fate = VictimFate.DELETED if in_doubt and request is deletion else VictimFate.GONE
                return EvictionEnded(preemptor.uid, victim.uid, fate)
            self._on_failed(victim, str(problem))
            return EvictionEnded(preemptor.uid, victim.uid, VictimFate.FAILED)
        return EvictionEnded(preemptor.uid, victim.uid, VictimFate.DELETED)

    async def _spared(self, instruction: EvictVictim, step: EvictionStep) -> SpareVictim | None:
        """Return the answer that ends the eviction, None if the write is to be sent."""
        answer = await self._put(EvictionDue(instruction.preemptor.uid, instruction.victim.uid, step))
        return next((each for each in answer if isinstance(each, SpareVictim)), None)

    async def _send(
        self, request: Request, instruction: EvictVictim
    ) -> tuple[ApiError | VictimFate | None, bool]:
        """
        Send the request, again if it may have failed by chance and the victim's place is still needed after the pause.

        Return the last error, and whether an earlier try may have taken effect without an answer. SPARED in place of
        the error if the place is not needed any more: then the pod may fit elsewhere, and need not wait for a backoff.
        DELETED if that is so because the victim ends, which a DELETE without an answer asked it to.
        """
        last: ApiError | None = None
        in_doubt = False
        for attempt in range(1, MAX_POSTS + 1):
            try:
                await self._client.request(request, timeout_s=TIMEOUT_S, may_send=self._may_write)
            except ApiError as error:
                last = error
                # A patch conflicts with other writers of the status.
                is_contention = isinstance(error, Conflict) and request.method == "PATCH"
                if not is_contention and not isinstance(error, (Throttled, Unreachable, ServerFault)):
                    break
                in_doubt |= error.took_effect_unknown
                if attempt < MAX_POSTS:
                    await self._pause(attempt, error)
                spared = await self._spared(instruction, EvictionStep.DELETION)
                if spared is not None:
                    was_deleted = spared.ends and in_doubt and request.method == "DELETE"
                    return (VictimFate.DELETED if was_deleted else VictimFate.SPARED), False
            else:
                return None, False
        return last, in_doubt

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
            # A condition of an earlier eviction, which failed, keeps its time.
            last_transition_time=None if victim.disruption else second_time(self._clock_s()),
            observed_generation=victim.generation,
        )
        return patch_pod_status(
            namespace=victim.namespace, name=victim.name, uid=victim.uid, condition=condition
        )


def _is_another_pod(error: ApiError) -> bool:
    """Return whether the name is another pod's by now; other conflicts do not say that the victim is gone."""
    return isinstance(error, Conflict) and "Precondition failed: UID" in error.message

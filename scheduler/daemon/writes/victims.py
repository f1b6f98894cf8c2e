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

from scheduler.daemon.kube.requests import ConditionPatch, Request, delete_pod, patch_pod_status, second_time
from scheduler.daemon.writes.conditions import is_pod_gone
from scheduler.daemon.writes.sending import DELETION, NOT_LEADING, VICTIM_CONDITION, Sender
from scheduler.engine.model.instructions import EvictVictim, Instruction, SpareVictim
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import EvictionDue, EvictionStep, VictimFate
from scheduler.errors import ApiError, Conflict


class VictimEvictor:
    """
    Evicts through the API server. `clock_s`: the time since the epoch.

    `put` puts EvictionDue to the machine, after the end of a cycle, and returns its instruction at once: the disruption
    controller takes back a condition that no DELETE follows within two minutes.
    """

    def __init__(
        self,
        sender: Sender,
        *,
        clock_s: Callable[[], float],
        put: Callable[[EvictionDue], Awaitable[list[Instruction]]],
    ) -> None:
        self._sender, self._clock_s, self._put = sender, clock_s, put

    async def evict(self, instruction: EvictVictim) -> tuple[VictimFate, str]:
        """Evict the victim. Return its fate, and the error of an eviction that is given up."""
        victim = instruction.victim
        condition = self._condition(instruction.preemptor, victim)
        deletion = delete_pod(victim.namespace, victim.name, victim.uid)
        for request, step in ((condition, EvictionStep.CONDITION), (deletion, EvictionStep.DELETION)):
            outcome = await self._send(request, step, instruction)
            if isinstance(outcome, ApiError):
                is_leading = outcome.message != NOT_LEADING
                return (VictimFate.FAILED, str(outcome)) if is_leading else (VictimFate.SPARED, "")
            if outcome is not None:
                return outcome, ""
        return VictimFate.DELETED, ""

    async def _send(
        self, request: Request, step: EvictionStep, instruction: EvictVictim
    ) -> VictimFate | ApiError | None:
        """
        Send the request while the victim's place is needed, again if it may have failed by chance.

        Return None once it took effect, else the error or the fate: SPARED if the place is not needed any more, as the
        pod may fit elsewhere without a backoff; DELETED if the victim ends or is gone after a DELETE without an answer.
        """
        is_deletion, in_doubt = step is EvictionStep.DELETION, False

        async def fate_if_not_due(step: EvictionStep) -> VictimFate | None:
            answer = await self._put(EvictionDue(instruction.preemptor.uid, instruction.victim.uid, step))
            for each in answer:
                if isinstance(each, SpareVictim):
                    return VictimFate.DELETED if each.ends and is_deletion and in_doubt else VictimFate.SPARED
            return None

        async def attempt(number: int) -> VictimFate | None:
            nonlocal in_doubt
            fate = await fate_if_not_due(step if number == 1 else EvictionStep.DELETION)
            if fate is None:
                try:
                    await self._sender.request(request)
                except ApiError as error:
                    in_doubt |= error.took_effect_unknown
                    raise
            return fate

        policy = DELETION if is_deletion else VICTIM_CONDITION
        outcome = await self._sender.repeat(policy, attempt)
        if not isinstance(outcome, ApiError):
            return outcome
        if is_pod_gone(outcome) or _is_another_pod(outcome):
            return VictimFate.DELETED if is_deletion and in_doubt else VictimFate.GONE
        may_have_ended = policy.repeats(outcome)
        return (await fate_if_not_due(EvictionStep.DELETION) if may_have_ended else None) or outcome

    def _condition(self, preemptor: Pod, victim: Pod) -> Request:
        why = "preempting to accommodate a higher priority pod"
        group = victim.group
        if group is not None and preemptor.group is not None and group.key == preemptor.group.key:
            why = "its pod group has lost members and is placed anew"
        condition = ConditionPatch(
            type="DisruptionTarget",
            status="True",
            reason="PreemptionByScheduler",
            message=f"{preemptor.scheduler_name}: {why}",
            # A condition of an earlier eviction, which failed, keeps its time.
            last_transition_time=None if victim.disruption else second_time(self._clock_s()),
            observed_generation=victim.generation or None,
        )
        return patch_pod_status(
            namespace=victim.namespace, name=victim.name, uid=victim.uid, condition=condition
        )


def _is_another_pod(error: ApiError) -> bool:
    """Return whether another pod has the victim's name now. Other conflicts do not mean that the victim is gone."""
    return isinstance(error, Conflict) and "Precondition failed: UID" in error.message

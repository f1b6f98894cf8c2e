"""
What follows an attempt that found no node: the pod is put back, nominated, and others are evicted for it.

    on_unfit --no victims--> reported
        `--victims--> nominated and reported --> evictions; without the gate: evictions --all answered--> reported

Source: pkg/scheduler/schedule_one.go, handleSchedulingFailure; framework/preemption (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from scheduler.core.decide import fits_only_without
from scheduler.core.group_cycle import GroupCycles, GroupResult
from scheduler.core.nominator import Nominator
from scheduler.core.outcomes import Binding, UnfitAttempt, report_unfit
from scheduler.core.preemption import Preemptions, preempted_event
from scheduler.core.reservations import Reservations
from scheduler.errors import PluginFailed
from scheduler.framework.diagnosis import FitError, PostFiltered
from scheduler.framework.profile import Profile
from scheduler.framework.status import failed
from scheduler.model.instructions import ClearNomination, Instruction
from scheduler.model.pods import Pod
from scheduler.model.stimuli import EvictionEnded
from scheduler.queueing.pod_queue import PodQueue
from scheduler.queueing.queued_pod import QueuedPod
from scheduler.state.cluster import ClusterState
from scheduler.state.cluster_view import ClusterView

#: Why a pod between Reserve and Bind is put back, in upstream's words.
_PREEMPTED: Final = "preempted by DefaultPreemption"


class UnfitPods:
    """
    Pods that fit on no node, and the evictions for them.

    Args:
        state: the machine's.
        queue: the machine's.
        profiles: by schedulerName.
        pending: the unassigned pods that watches show, by UID.
        binding: the pods that are being bound, by UID.
        preemptions: the evictions that run.
        nominator: of the machine.
        reservations: the pods between Reserve and Bind.
        groups: tells whether a group still needs room.
        fail_bind: puts back, by its UID, a pod between Reserve and Bind, with the reason.
    """

    def __init__(
        self,
        state: ClusterState,
        queue: PodQueue,
        profiles: Mapping[str, Profile],
        *,
        pending: Mapping[str, Pod],
        binding: Mapping[str, Binding],
        preemptions: Preemptions,
        nominator: Nominator,
        reservations: Reservations,
        groups: GroupCycles,
        fail_bind: Callable[[str, str, float], list[Instruction]],
    ) -> None:
        self._state, self._queue, self._profiles = state, queue, profiles
        self._view = ClusterView(state)
        self._pending, self._binding = pending, binding
        self._preemptions, self._nominator = preemptions, nominator
        self._reservations, self._groups = reservations, groups
        self._fail_bind = fail_bind
        #: The attempt that all others wait for, without the gate.
        self._unreported: UnfitAttempt | None = None

    @property
    def holds_all(self) -> bool:
        """Whether no pod is tried before an eviction is answered, without the gate SchedulerAsyncPreemption."""
        return self._unreported is not None

    def on_unfit(self, queued: QueuedPod, error: FitError, now_s: float) -> list[Instruction]:
        """Put back a pod that fits on no node; nominate it, and evict pods for it, if PostFilter found where."""
        attempt = UnfitAttempt(queued, self._state.nominated.applied_to(queued.pod), error, now_s)
        self._queue.put_back(queued, error.rejecting, now_s)
        result = error.postfilter
        are_leaving = result is not None and all(map(self._preemptions.is_leaving, result.victims))
        if result is None or not result.victims or (are_leaving and self._preemptions.is_async):
            # No victims, or all end already: the pod waits, and pods nominated to the node keep their nomination.
            # Without the gate these lose it all the same (prepareCandidate).
            return self._report_unfit(attempt, now_s)
        evictions = self._evict(queued.pod, result.nominated_node_name or "", result.victims, now_s)
        attempt.n_victims = len(result.victims)
        if not self._preemptions.is_async:
            if self._preemptions.is_running(queued.uid):
                self._unreported = attempt
                return evictions
            return [*evictions, *self._report_nominated(attempt, now_s)]
        return [*self._report_nominated(attempt, now_s), *evictions]

    def _report_unfit(self, attempt: UnfitAttempt, now_s: float) -> list[Instruction]:
        if attempt.nominated is not None and attempt.pod.uid in self._pending:
            self._nominator.nominate(attempt.pod, attempt.nominated, now_s)
        return report_unfit(attempt)

    def _report_nominated(self, attempt: UnfitAttempt, now_s: float) -> list[Instruction]:
        """Report the attempt of a pod that others leave for, and take its node from pods of lower priority."""
        return [
            *self._report_unfit(attempt, now_s),
            *self._clear_nominations(attempt.pod, [attempt.nominated or ""], now_s),
        ]

    def preempt_for_group(self, result: GroupResult, preemptor: Pod, now_s: float) -> list[Instruction]:
        """Return the instructions that make room for the group on the nodes that its members are nominated to."""
        victims, nodes = result.nominations.victims, set(result.nominations.nodes.values())
        if all(map(self._preemptions.is_leaving, victims)):
            # As in `on_unfit`.
            return []
        cleared = self._clear_nominations(preemptor, sorted(nodes), now_s, result.members)
        return [*cleared, *self._evict(preemptor, "", victims, now_s, result.members)]

    def _evict(
        self,
        pod: Pod,
        node_name: str,
        victims: Iterable[Pod],
        now_s: float,
        members: Collection[str] = (),
    ) -> list[Instruction]:
        """
        Return the instructions that make room. Victims between Reserve and Bind are put back without a call.

        `members`: the UIDs of the pod's group, whose `node_name` is empty.
        """
        told: list[Instruction] = []
        to_evict: list[Pod] = []
        for victim in victims:
            if self._reservations.holds(victim.uid):
                message = self._reservations.failure(victim.uid, _PREEMPTED)
                told += self._fail_bind(victim.uid, message, now_s)
                told.append(preempted_event(victim, pod, node_name, " (in kube-scheduler memory)."))
            elif not self._preemptions.is_leaving(victim):
                to_evict.append(victim)
        return [*told, *self._preemptions.start(pod, node_name, to_evict, members)]

    def _clear_nominations(
        self, pod: Pod, node_names: Iterable[str], now_s: float, members: Collection[str] = ()
    ) -> list[Instruction]:
        """Take the nodes from pods of lower priority that are nominated to them, and are not of the pod's group."""
        told: list[Instruction] = []
        nominated = self._state.nominated
        for other in [one for name in node_names for one in nominated.on(name)]:
            if other.priority < pod.priority and other.uid not in members:
                self._nominator.withdraw(other, now_s)
                # Also if no watch has shown it yet: it may be written.
                told.append(ClearNomination(other))
        return told

    def on_eviction_ended(self, ended: EvictionEnded, now_s: float) -> list[Instruction]:
        """Return what follows the end of an eviction; let the pods that wait for nothing else be tried again."""
        told = self._preemptions.on_ended(ended, now_s)
        attempt = self._unreported
        if attempt is not None and attempt.pod.uid == ended.preemptor_uid:
            attempt.problem = attempt.problem or ended.problem
            if self._preemptions.is_running(ended.preemptor_uid):
                return told
            self._unreported = None
            told += self._report_evicted(attempt, now_s)
        return told

    def _report_evicted(self, attempt: UnfitAttempt, now_s: float) -> list[Instruction]:
        """Return the report of an attempt whose victims are evicted, or not: then PostFilter has failed."""
        if not attempt.problem:
            return self._report_nominated(attempt, now_s)
        attempt.n_victims = 0
        why = PostFiltered(failed(f"preemption: {attempt.problem}"))
        attempt.error = replace(attempt.error, postfilter=why)
        return self._report_unfit(attempt, now_s)

    def awaits_room_of(self, preemptor_uid: str, victim_uid: str) -> bool:
        """
        Return whether the pod is still pending, and the victim still runs on its node, which exists. O(1).

        A victim that was assumed there may have been bound to another node by another scheduler.
        """
        pod, placed = self._pending.get(preemptor_uid), self._state.placed.get(victim_uid)
        if pod is None or pod.terminating or preemptor_uid in self._binding or placed is None:
            return False
        if self._preemptions.is_leaving(placed.pod) or not self._view.alive.item(placed.row):
            return False
        node_name = self._preemptions.node_for(preemptor_uid)
        return node_name in ("", self._state.nodes.name_of(placed.row))

    def wants_eviction(self, preemptor_uid: str, victim_uid: str) -> bool:
        """
        Return whether the victim's node still takes the pod without its victims; asked right before one is deleted.

        Not if `awaits_room_of` says no, if the pod fits somewhere by now, or if a plugin fails to say so. O(nodes). Of
        a group, not if the group fits by now.
        """
        if not self.awaits_room_of(preemptor_uid, victim_uid):
            return False
        pod, placed = self._pending[preemptor_uid], self._state.placed[victim_uid]
        profile = self._profiles[pod.scheduler_name]
        if pod.group is not None and (key := self._state.groups.key_of(pod)) is not None:
            return self._groups.needs_room(key, profile)
        victims = self._preemptions.victims_for(preemptor_uid)
        leaving = [
            one.pod
            for one in self._view.placed_on(placed.row)
            if one.pod.uid in victims or (one.pod.terminating and one.pod.priority < pod.priority)
        ]
        try:
            return fits_only_without(pod, leaving, placed.row, self._view, profile)
        except PluginFailed:  # its cycle, which is next, says why
            return False

    def withdraw_nominations(self, node_name: str, now_s: float) -> list[Instruction]:
        """
        Try pods at once whose nominated node is gone, and clear their nominations.

        Upstream leaves them to their next attempt; until then an autoscaler counts them as placed and adds no node.
        """
        told: list[Instruction] = []
        for pod in list(self._state.nominated.on(node_name)):
            self._state.nominate(pod, "")
            told.append(ClearNomination(pod))
            self._queue.activate(pod.uid, now_s)
        return told

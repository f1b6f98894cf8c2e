"""
What follows an attempt that found no node: the pod is put back, nominated, and others are evicted for it.

    on_unfit --no victims--> reported
        `--victims--> nominated and reported --> evictions

Source: pkg/scheduler/schedule_one.go, handleSchedulingFailure; framework/preemption (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from scheduler.engine.core.decide import fits_only_without
from scheduler.engine.core.group_cycle import GroupCycles, GroupResult
from scheduler.engine.core.nominator import Nominator
from scheduler.engine.core.outcomes import report_failed_attempt
from scheduler.engine.core.pod_lifecycle import PodLifecycle
from scheduler.engine.core.pod_records import Phase, PodRecords
from scheduler.engine.core.preemption import Preemptions, preempted_event
from scheduler.engine.core.reservations import Reservations
from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.instructions import (
    ClearNomination,
    Instruction,
    ProceedWithEviction,
    SpareVictim,
    WriteObjects,
)
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import EvictionDue, EvictionStep
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.queueing.queued_pod import QueuedPod
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.errors import PluginFailed


class UnfitPods:
    """Pods that fit on no node, and the evictions for them."""

    def __init__(
        self,
        state: ClusterState,
        queue: PodQueue,
        profiles: Mapping[str, Profile],
        *,
        records: PodRecords,
        lifecycle: PodLifecycle,
        preemptions: Preemptions,
        nominator: Nominator,
        reservations: Reservations,
        groups: GroupCycles,
    ) -> None:
        self._state, self._queue, self._profiles = state, queue, profiles
        self._view = ClusterView(state)
        self._records, self._lifecycle = records, lifecycle
        self._preemptions, self._nominator = preemptions, nominator
        self._reservations, self._groups = reservations, groups

    def on_unfit(self, queued: QueuedPod, error: FitError, now_s: float) -> list[Instruction]:
        """Put back a pod that fits on no node; nominate it, and evict pods for it, if PostFilter found where."""
        pod, result = self._state.nominated.applied_to(queued.pod), error.postfilter
        self._queue.put_back(queued, error.rejecting, now_s)
        nominated = "" if result is None else result.nominated_node_name
        writes, victims = ((), ()) if result is None else (result.writes, result.victims)
        if all(map(self._preemptions.is_terminating, victims)):
            # No victims, or all end already: the pod waits, and pods nominated to the node keep their nomination.
            victims = ()
        evictions = self._evict(queued.pod, nominated or "", victims, now_s) if victims else []
        # The pod takes its node from pods of lower priority.
        cleared = self._clear_nominations(pod, [nominated or ""], now_s) if victims else []
        if nominated is not None and self._records.shown(pod.uid) is not None:
            self._nominator.nominate(pod, nominated, now_s)
        reports = report_failed_attempt(
            queued,
            pod,
            "unschedulable",
            error.message(),
            now_s,
            nominated=nominated,
            shown_nomination=queued.pod.nominated_node_name,
            tried_preemption=result is not None,
            victims=victims,
        )
        return [*([WriteObjects(queued.pod, writes)] if writes else []), *reports, *cleared, *evictions]

    def preempt_for_group(self, result: GroupResult, now_s: float) -> list[Instruction]:
        """Return the instructions that make room for the group on the nodes that its members are nominated to."""
        preemptor, step, members = result.preemptor, result.step, result.members
        if preemptor is None:
            return []
        # First, so that the room of a nomination does not wake members that wait for victims.
        evictions = self._evict(preemptor, "", step.victims, now_s, members)
        cleared = self._clear_nominations(preemptor, sorted(set(step.nodes.values())), now_s, members)
        return [*cleared, *evictions]

    def _evict(
        self, pod: Pod, node_name: str, victims: Iterable[Pod], now_s: float, members: Collection[str] = ()
    ) -> list[Instruction]:
        """Return what makes room for the pod, or the `members` of its group; reserved victims are put back at once."""
        reserved: list[Pod] = []
        to_evict: list[Pod] = []
        for victim in victims:
            if self._reservations.holds(victim.uid):
                reserved.append(victim)
            elif not self._preemptions.is_terminating(victim):
                to_evict.append(victim)
        # First, so that the room of reserved ones does not wake the pod, which waits for the others.
        evictions = self._preemptions.start(pod, node_name, to_evict, members)
        instructions: list[Instruction] = []
        for victim in reserved:
            message = self._reservations.preempt(victim.uid)
            instructions += self._lifecycle.on_bind_failed(victim.uid, message, now_s)
            instructions.append(preempted_event(victim, pod, node_name, " (in kube-scheduler memory)."))
        return [*instructions, *evictions]

    def _clear_nominations(
        self, pod: Pod, node_names: Iterable[str], now_s: float, members: Collection[str] = ()
    ) -> list[Instruction]:
        """Take the nodes from pods of lower priority that are nominated to them, and are not of the pod's group."""
        instructions: list[Instruction] = []
        nominated = self._state.nominated
        for other in [pod for name in node_names for pod in nominated.on(name)]:
            if other.priority < pod.priority and other.uid not in members:
                self._nominator.withdraw(other, now_s)
                # Even a nomination that no watch has shown yet: it may be written.
                instructions.append(ClearNomination(other))
        return instructions

    def on_eviction_due(self, due: EvictionDue) -> list[Instruction]:
        """
        Return the one instruction that answers; changes nothing.

        A member of a group that is disrupted as a whole follows the others, whatever became of the pod.
        """
        placed = self._state.placed.get(due.victim_uid)
        runs = placed is not None and not self._preemptions.is_terminating(placed.pod)
        if placed is not None and runs and self._preemptions.must_follow(placed.pod):
            return [ProceedWithEviction(due.preemptor_uid, due.victim_uid)]
        is_needed = self._awaits_room_of if due.step is EvictionStep.CONDITION else self._needs_eviction
        in_the_way = self._in_the_way(due.preemptor_uid, due.victim_uid)
        if is_needed(due.preemptor_uid, in_the_way):
            return [ProceedWithEviction(due.preemptor_uid, due.victim_uid)]
        return [SpareVictim(due.preemptor_uid, due.victim_uid, ends=not runs)]

    def _in_the_way(self, preemptor_uid: str, victim_uid: str) -> str:
        """Return the victim, or the member of its group on the preemptor's node if the whole group has to leave."""
        placed, preemption = self._state.placed.get(victim_uid), self._preemptions.of(preemptor_uid)
        if placed is None or preemption is None:
            return victim_uid
        row = self._state.nodes.row_by_name.get(preemption.node_name)
        unit = self._view.evicted_with(placed)
        return next((each.pod.uid for each in unit if each.row == row), victim_uid)

    def _awaits_room_of(self, preemptor_uid: str, victim_uid: str) -> bool:
        """
        Return whether the pod is still pending, and the victim still runs on its node, which exists.

        A victim that was assumed there may have been bound to another node by another scheduler.
        """
        record, placed = self._records.get(preemptor_uid), self._state.placed.get(victim_uid)
        if record is None or record.phase is not Phase.PENDING or placed is None:
            return False
        if record.shown is None or record.shown.terminating:
            return False
        if self._preemptions.is_terminating(placed.pod) or not self._view.alive.item(placed.row):
            return False
        preemption, node_name = record.preemption, self._state.nodes.name_of(placed.row)
        return preemption is not None and preemption.node_name in ("", node_name)

    def _needs_eviction(self, preemptor_uid: str, victim_uid: str) -> bool:
        """
        Return whether the pod fits nowhere now but would fit on the victim's node once all its victims there are gone.

        Asked right before one is deleted. False if `_awaits_room_of` says no, if the pod (or its group) fits somewhere
        by now, or if a plugin fails.
        """
        pod, preemption = self._records.shown(preemptor_uid), self._preemptions.of(preemptor_uid)
        if pod is None or not self._awaits_room_of(preemptor_uid, victim_uid):
            return False
        placed, profile = self._state.placed[victim_uid], self._profiles[pod.scheduler_name]
        if preemption is None or not preemption.node_name:
            key = self._state.groups.key_of(pod)
            return key is not None and self._groups.needs_room(key, profile)
        neighbours = (neighbour.pod for neighbour in self._view.state.placed_on(placed.row))
        leaving = [
            other
            for other in neighbours
            if other.uid in preemption.victims or (other.terminating and self._view.is_lower(other, pod))
        ]
        try:
            return fits_only_without(pod, leaving, placed.row, self._view, profile)
        except PluginFailed:  # its cycle, which is next, says why
            return False

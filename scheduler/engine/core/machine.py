"""
The scheduler as a pure state machine: stimuli in, instructions out. It owns the state and the queue.

    handle(stimulus, now_s):
        PodSeen, NodeSeen, ...   update ClusterState, then notify the queue of the event: `engine.core.event_handlers`
        CycleDue                 pop -> decide -> assume and Bind, or put back and report; of a group, begin that
        CycleEnded               note the time that the pod's namespace has used
        ReservationWritten       let the pod wait for what is reserved for it: `engine.core.reservations`
        EvictionDue              say whether the victim is still in the way; changes nothing: `engine.core.unfit_pods`
        EvictionEnded            evict the last pod that is in the way, or try the other again: `engine.core.preemption`
        BindDone, BindFailed     report the bound pod; or forget the assumed pod and put it back

A cycle is one stimulus: no other one comes between pop and assume, or between failure and putting back. That of a group
may be left in the middle: `step` goes on with it, and the next stimulus first finishes it. scheduler/README.md has the
invariants.

Source: pkg/scheduler/schedule_one.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, assert_never

from scheduler.engine.core.decide import CycleError, Decision, ScheduleResult, deciding
from scheduler.engine.core.decision_annotation import DecisionAnnotations
from scheduler.engine.core.event_handlers import EventHandlers
from scheduler.engine.core.fallbacks import Fallbacks
from scheduler.engine.core.group_cycle import GroupCycles
from scheduler.engine.core.group_lives import GroupLives
from scheduler.engine.core.nominator import Nominator
from scheduler.engine.core.outcomes import failed_event, report_failed_attempt
from scheduler.engine.core.pod_lifecycle import PodLifecycle
from scheduler.engine.core.pod_records import Binding, PodRecords, Relaxation
from scheduler.engine.core.preemption import Preemptions
from scheduler.engine.core.reservations import Reservations
from scheduler.engine.core.unfit_pods import UnfitPods
from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.framework.interface import Rng
from scheduler.engine.framework.observer import UNOBSERVED, Observer
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.instructions import Bind, Instruction
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Gate, Semantics
from scheduler.engine.model.stimuli import (
    BindDone,
    BindFailed,
    CycleDue,
    CycleEnded,
    EvictionDue,
    EvictionEnded,
    ReservationWritten,
    Stimulus,
    SweepDue,
    TimePassed,
)
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.queueing.queued_pod import QueuedPod
from scheduler.engine.state.batches import IncrementalWork, Pieces, batches
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView


class Machine:
    """One scheduler without IO. Not thread-safe: one caller, no awaits inside."""

    def __init__(
        self,
        *,
        state: ClusterState,
        queue: PodQueue,
        profiles: Mapping[str, Profile],
        rng: Rng,
        observer: Observer | None = None,
        records_decisions: bool = False,
        semantics: Semantics = DEFAULT_SEMANTICS,
    ) -> None:
        """
        `state` and `queue`: empty; only this machine may change them. `profiles`: by schedulerName. `rng`: chooses
        among equally good nodes. `records_decisions`: whether binds carry `engine.core.decision_annotation`.
        """
        self.state = state
        self.queue = queue
        self._view = ClusterView(state)
        self._profiles = profiles
        self._rng = rng
        self._observer = UNOBSERVED if observer is None else observer
        self._annotations = DecisionAnnotations(state.nodes, records_decisions)
        self.records = PodRecords(state)
        #: Pods between Reserve and Bind.
        nominates = semantics.enabled(Gate.NOMINATED_NODE_NAME_FOR_EXPECTATION)
        self._reservations = Reservations(state, self.records, nominates=nominates)
        self.preemptions = Preemptions(state, queue, self.records)
        self._nominator = Nominator(state, queue)
        self._fallbacks = Fallbacks(state, self._view, self.records)
        self._group_lives = GroupLives(
            state, queue, self.records, self._nominator, queues_as_one=semantics.queues_groups_as_one
        )
        self._groups = GroupCycles(
            state,
            queue,
            self._group_lives,
            self._nominator,
            self.preemptions,
            self._reservations,
            self._observer,
            self._annotations,
        )
        self._lifecycle = PodLifecycle(
            state,
            queue,
            self.records,
            profiles.keys(),
            nominator=self._nominator,
            preemptions=self.preemptions,
            fallbacks=self._fallbacks,
            reservations=self._reservations,
            groups=self._group_lives,
        )
        self._unfit = UnfitPods(
            state,
            queue,
            profiles,
            records=self.records,
            lifecycle=self._lifecycle,
            preemptions=self.preemptions,
            nominator=self._nominator,
            reservations=self._reservations,
            groups=self._groups,
        )
        self._handlers = EventHandlers(state, queue, self._lifecycle, self._group_lives, self._nominator)
        #: The remaining pieces of a sweep that has begun; of a cycle, and its instructions so far.
        self._sweeping, self._cycle = IncrementalWork(units_per_step=1), IncrementalWork(units_per_step=1)
        self._ordered: list[Instruction] = []

    @property
    def is_in_cycle(self) -> bool:
        """Whether a cycle has begun, which `step` goes on with; the queue does not hold its pods meanwhile."""
        return bool(self._cycle)

    @property
    def is_sweeping(self) -> bool:
        """Whether a sweep has begun, which the next `SweepDue` goes on with."""
        return bool(self._sweeping)

    @property
    def n_binding(self) -> int:
        """Number of binds and of reservations that are being written; pods that wait after that do not count."""
        return self.records.n_unanswered - self._reservations.n_waiting

    @property
    def n_unconfirmed(self) -> int:
        """Lower bound of the pods whose bind has a result and that no watch has shown bound; 0 while `is_in_cycle`."""
        return 0 if self.is_in_cycle else max(0, self.state.n_assumed - self.records.n_unanswered)

    def observed_node_name(self, uid: str) -> str | None:
        """
        Return the node on which a watch has shown the pod; empty if shown unbound, None if not shown.

        Empty too while `is_in_cycle`, as pods that a group may evict are not in the state.
        """
        if self.is_in_cycle:
            return ""
        placed = self.state.placed.get(uid)
        if placed is not None and not placed.assumed:
            return self.state.nodes.name_of(placed.row)
        return None if self.records.shown(uid) is None else ""

    def is_ending(self, uid: str) -> bool:
        """Return whether a watch has shown that the pod is being deleted; False for an unknown pod."""
        placed = self.state.placed.get(uid)
        pod = self.records.shown(uid) if placed is None or placed.assumed else placed.pod
        return pod is not None and pod.terminating

    @property
    def n_kept_by_annotations(self) -> int:
        """Number of pending pods that would fit if no annotation declared affinity: autoscalers do not see why."""
        return sum(record.is_kept_by_annotations for record in self.records)

    @property
    def has_backlog(self) -> bool:
        """Whether the queue still has events of past stimuli to handle, or a cycle goes on."""
        return self.is_in_cycle or self.queue.has_backlog

    def step(self) -> list[Instruction]:
        """Process a bounded part of the backlog, about 1 ms; return what it orders. `handle` processes the rest."""
        if self.queue.has_backlog:
            self.queue.step()
        else:
            self._cycle.step()
        return self._take_ordered()

    def has_work(self) -> bool:
        """Return whether CycleDue would bind a pod that has waited for it, or pop a pod, or a backlog is left."""
        if self.is_in_cycle or self._reservations.has_ready:
            return True
        return self.queue.can_pop()

    def next_wake_s(self, now_s: float) -> float | None:
        """Return when TimePassed is next due, `now_s` until what is due is handled; None if nothing waits for time."""
        due_s = (
            self.queue.next_wake_s(now_s),
            self.state.kubelet_refusals.next_s,
            self._reservations.next_wake_s(),
            self._fallbacks.next_wake_s(),
            self._group_lives.next_wake_s(),
        )
        known_s = [due for due in due_s if due is not None]
        return max(now_s, min(known_s)) if known_s else None

    def handle(self, stimulus: Stimulus, now_s: float) -> list[Instruction]:
        """Return what follows a stimulus at this second of a monotonic clock; a cycle that has begun ends first."""
        if not self._cycle:
            return self._handle(stimulus, now_s)
        self._cycle.finish()
        return [*self._take_ordered(), *self._handle(stimulus, now_s)]

    def _take_ordered(self) -> list[Instruction]:
        ordered, self._ordered = self._ordered, []
        return ordered

    def _handle(self, stimulus: Stimulus, now_s: float) -> list[Instruction]:
        instructions: list[Instruction] = []
        match stimulus:
            case BindDone(uid):
                return self._lifecycle.on_bind_done(uid, now_s)
            case BindFailed(uid, message):
                text = f'running Bind plugin "DefaultBinder": {message}'
                return self._lifecycle.on_bind_failed(uid, text, now_s)
            case ReservationWritten():
                instructions = self._on_reservation_written(stimulus, now_s)
            case EvictionDue():
                return self._unfit.on_eviction_due(stimulus)
            case EvictionEnded():
                return self.preemptions.on_ended(stimulus, now_s)
            case CycleDue(epoch_s):
                self.state.devices.epoch_s = now_s if epoch_s is None else epoch_s
                return self._schedule_one(now_s)
            case CycleEnded(used_s):
                self.queue.charge(used_s, now_s)
                return []
            case TimePassed():
                instructions = self._on_time(now_s)
            case SweepDue():
                self._sweep(now_s)
            case _:
                instructions = self._handlers.handle(stimulus, now_s)
        if self._reservations:
            instructions += self._fail_reservations(stimulus, now_s)
        return instructions

    def _sweep(self, now_s: float) -> None:
        """Do the next few milliseconds of a sweep, or begin one."""
        if self._sweeping:
            self._sweeping.step()
        else:
            self.queue.sweep(now_s)
            self._sweeping.add(self.state.sweeping())

    def _on_time(self, now_s: float) -> list[Instruction]:
        self.queue.flush(now_s)
        self._handlers.expire_kubelet_refusals(now_s)
        self.queue.activate_each(self._fallbacks.take_due(now_s), now_s)
        return self._group_lives.on_time(now_s)

    # The cycle.

    def _schedule_one(self, now_s: float) -> list[Instruction]:
        self._handlers.expire_kubelet_refusals(now_s)
        if self._reservations.has_ready:
            bind, changes = self._reservations.next_ready()
            self._lifecycle.notify_of_objects(changes, now_s)
            self._lifecycle.on_ready(bind.pod, now_s)
            return [bind]
        queued = None if self.has_backlog else self.queue.pop(now_s)
        if queued is None:
            return []
        pod = queued.pod
        if pod.terminating:
            return [failed_event(pod, f"skip schedule deleting pod: {pod.key}")]
        profile = self._profiles[pod.scheduler_name]
        key = None if pod.group is None else self.state.groups.key_of(pod)
        if key is not None and not self._groups.is_alone(queued, key):
            self._cycle.add(self._scheduling_group(queued, key, profile, now_s))
        else:
            self._cycle.add(self._scheduling_pod(queued, profile, now_s))
        return self._take_ordered()

    def _scheduling_pod(self, queued: QueuedPod, profile: Profile, now_s: float) -> Pieces[None]:
        pod = self.state.nominated.applied_to(queued.pod)
        decision = yield from self._deciding(pod, profile)
        match decision:
            case ScheduleResult():
                self._ordered += self._assume_and_bind(queued, decision, now_s)
            case FitError():
                instructions = yield from self._trying_relaxed(queued, decision, profile, now_s)
                # `+= yield from` would extend a list that was taken meanwhile.
                self._ordered += instructions
            case CycleError(message, unschedulable):
                self._ordered += self._fail(queued, message, now_s, unschedulable=unschedulable)
            case _:
                assert_never(decision)

    def _deciding(self, pod: Pod, profile: Profile) -> Pieces[Decision]:
        with self.state.provisional():
            return (yield from deciding(pod, self._view, profile, self._rng, self._observer))

    def _trying_relaxed(
        self, queued: QueuedPod, error: FitError, profile: Profile, now_s: float
    ) -> Pieces[list[Instruction]]:
        """Bind a pod that fits nowhere with its due fallbacks, or put it back."""
        relaxation = self._fallbacks.consider(queued.pod, error, profile, now_s)
        if relaxation is not None:
            decision = yield from self._deciding(relaxation.pod, profile)
            if isinstance(decision, ScheduleResult):
                return self._assume_and_bind(queued, decision, now_s, relaxation)
        reports = self._fallbacks.reports(queued.pod, error, profile)
        return [*self._unfit.on_unfit(queued, error, now_s), *reports]

    def _scheduling_group(
        self, queued: QueuedPod, key: GroupKey, profile: Profile, now_s: float
    ) -> Pieces[None]:
        """Bind every member of the group that has a place, and report the others; see `GroupCycles.run`."""
        with self.state.provisional():
            result = yield from self._groups.run(queued, key, profile, now_s)
            for few in batches(result.placed):
                for member, place in few:
                    binding = Binding(
                        member,
                        place.bind,
                        place.n_evaluated,
                        place.n_feasible,
                        now_s,
                        is_reserved=place.is_reserved,
                    )
                    self._lifecycle.on_assumed(binding, now_s)
                    self._ordered.append(place.instruction)
                yield
            self._ordered += result.reports
            self._ordered += self._unfit.preempt_for_group(result, now_s)

    def _assume_and_bind(
        self, queued: QueuedPod, result: ScheduleResult, now_s: float, relaxation: Relaxation | None = None
    ) -> list[Instruction]:
        pod, node_name = queued.pod, result.node_name
        rules = () if relaxation is None else relaxation.rules
        evicted = self.preemptions.evicted_for(pod, node_name)
        bind = Bind(pod, node_name, self._annotations.of(result, rules, evicted))
        reserved = result.scores.reservations
        placed = pod if relaxation is None else relaxation.pod
        self._nominator.take_node(pod, node_name, now_s)
        self.state.assume(replace(placed, node_name=node_name), node_name)
        self._fallbacks.on_assumed(pod.uid)
        binding = Binding(
            queued,
            bind,
            result.n_evaluated,
            result.n_feasible,
            now_s,
            relaxation,
            is_reserved=bool(reserved),
        )
        self._lifecycle.on_assumed(binding, now_s)
        return [self._reservations.reserve(bind, reserved) if reserved else bind]

    def _fail(
        self, queued: QueuedPod, message: str, now_s: float, *, unschedulable: bool
    ) -> list[Instruction]:
        """Put back a pod whose cycle failed; it is tried again after a backoff, and nominated no more."""
        pod = self.state.nominated.applied_to(queued.pod)
        self.queue.put_back(queued, frozenset(), now_s)
        self._nominator.nominate(pod, "", now_s)
        result: Final = "unschedulable" if unschedulable else "error"
        shown = queued.pod.nominated_node_name
        return report_failed_attempt(queued, pod, result, message, now_s, shown_nomination=shown)

    def _on_reservation_written(self, answer: ReservationWritten, now_s: float) -> list[Instruction]:
        changes, instructions = self._reservations.note_written(answer, now_s)
        self._lifecycle.notify_of_objects(changes, now_s)
        return instructions

    def _fail_reservations(self, stimulus: Stimulus, now_s: float) -> list[Instruction]:
        failed = [
            instruction
            for uid, message in self._reservations.failures(stimulus, now_s)
            for instruction in self._lifecycle.on_bind_failed(uid, message, now_s)
        ]
        return [*self._reservations.take_reports(), *failed]

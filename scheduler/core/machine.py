"""
The scheduler as a pure state machine: stimuli in, instructions out. It owns the state and the queue.

    handle(stimulus, now_s):
        PodSeen, NodeSeen, ...   update ClusterState, then notify the queue of the event: `core.event_handlers`
        CycleDue                 pop -> decide -> assume and Bind, or put back and report
        CycleEnded               note the time that the pod's namespace has used
        ReservationWritten       let the pod wait for what is reserved for it: `core.reservations`
        EvictionEnded            evict the last pod that is in the way, or try the other again: `core.unfit_pods`
        BindDone, BindFailed     report the bound pod; or forget the assumed pod and put it back

Invariants:
 1. A cycle is one stimulus: no other stimulus comes between pop and assume, or between failure and putting back.
 2. Every assume ends in exactly one of: confirmed by PodSeen; forgotten by BindFailed or when the pod terminates;
    removed by PodGone.
 3. The same stimuli at the same seconds with the same seed give the same instructions.

Source: pkg/scheduler/schedule_one.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, assert_never

from scheduler.core.decide import CycleError, ScheduleResult, decide
from scheduler.core.decision_annotation import DECISION_ANNOTATION, decision_record
from scheduler.core.event_handlers import EventHandlers
from scheduler.core.fallbacks import Fallbacks, Relaxation
from scheduler.core.group_cycle import GroupCycles
from scheduler.core.nominator import Nominator
from scheduler.core.outcomes import (
    Binding,
    attempted,
    failed_event,
    report_bound,
    report_failure,
)
from scheduler.core.preemption import Preemptions
from scheduler.core.reservations import Reservations
from scheduler.core.unfit_pods import UnfitPods
from scheduler.framework.diagnosis import FitError
from scheduler.framework.events import (
    Action,
)
from scheduler.framework.interface import Rng
from scheduler.framework.observer import Observer, Unobserved
from scheduler.framework.profile import Profile
from scheduler.model.fallback import RELAXED, mark
from scheduler.model.instructions import Bind, EmitEvent, Evicted, Instruction
from scheduler.model.pod_groups import GroupKey
from scheduler.model.pods import Pod
from scheduler.model.semantics import DEFAULT_SEMANTICS, Gate, Semantics
from scheduler.model.stimuli import (
    BindDone,
    BindFailed,
    CycleDue,
    CycleEnded,
    EvictionEnded,
    NodeGone,
    PluginFailing,
    PodSeen,
    ReservationWritten,
    ScaleUpNotTriggered,
    Stimulus,
    SweepDue,
    TimePassed,
    WatchEvent,
    WatchInterrupted,
)
from scheduler.queueing.pod_queue import PodQueue
from scheduler.queueing.queued_pod import QueuedPod
from scheduler.state.cluster import ClusterState
from scheduler.state.cluster_view import ClusterView


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
        Args:
            state: empty; only this machine may change it.
            queue: empty; only this machine may change it.
            profiles: by schedulerName.
            rng: chooses among equally good nodes.
            observer: is called around each extension point.
            records_decisions: whether binds carry the annotation of `core.decision_annotation`.
            semantics: of the version of Kubernetes whose decisions these are.
        """
        self.state = state
        self.queue = queue
        self._view = ClusterView(state)
        self._profiles = profiles
        self._rng = rng
        self._observer = Unobserved() if observer is None else observer
        self._records_decisions = records_decisions
        #: Unassigned pods of our profiles as last seen, whether queued or being bound.
        self._pending: dict[str, Pod] = {}
        self._binding: dict[str, Binding] = {}
        #: Pods of `_binding` for which something has to be written and waited for before.
        self._reservations = Reservations(state, self._pending)
        is_async = semantics.enabled(Gate.SCHEDULER_ASYNC_PREEMPTION)
        self.preemptions = Preemptions(state, queue, self._pending, is_async=is_async)
        self._nominator = Nominator(state, queue)
        self._fallbacks = Fallbacks(state, self._view)
        self._groups = GroupCycles(state, queue, self._reservations, rng, self._observer, self._annotations)
        self._unfit = UnfitPods(
            state,
            queue,
            profiles,
            pending=self._pending,
            binding=self._binding,
            preemptions=self.preemptions,
            nominator=self._nominator,
            reservations=self._reservations,
            groups=self._groups,
            fail_bind=self._on_bind_failed,
        )
        #: The rest of a sweep that has begun.
        self._sweeping: Iterator[None] | None = None
        self._handlers = EventHandlers(
            state=state,
            queue=queue,
            profile_names=profiles.keys(),
            pending=self._pending,
            binding=self._binding,
            preemptions=self.preemptions,
            nominator=self._nominator,
            fallbacks=self._fallbacks,
            on_member=self._groups.note,
        )

    @property
    def is_sweeping(self) -> bool:
        """Whether a sweep has begun, which the next `SweepDue` goes on with."""
        return self._sweeping is not None

    @property
    def n_binding(self) -> int:
        """Number of binds and of reservations that are being written; pods that wait after that do not count."""
        return len(self._binding) - self._reservations.n_waiting

    @property
    def n_unconfirmed(self) -> int:
        """Lower bound of the pods whose bind has a result and that no watch has shown bound."""
        return max(0, self.state.n_assumed - len(self._binding))

    def observed_node_name(self, uid: str) -> str | None:
        """Return the node on which a watch has shown the pod; empty if shown unbound, None if not shown."""
        placed = self.state.placed.get(uid)
        if placed is not None and not placed.assumed:
            return self.state.nodes.name_of(placed.row)
        return "" if uid in self._pending else None

    @property
    def n_kept_by_annotations(self) -> int:
        """Number of pending pods that would fit if no annotation declared affinity: autoscalers do not see why."""
        return self._fallbacks.n_kept_by_annotations

    @property
    def has_backlog(self) -> bool:
        """Whether the queue has not finished with the events of past stimuli."""
        return self.queue.has_backlog

    def step(self) -> None:
        """Process a bounded part of the backlog, about 1 ms. `handle` processes the rest."""
        self.queue.step()

    def has_work(self) -> bool:
        """Return whether CycleDue would bind a pod that has waited for it, pop a pod or process backlog."""
        return self._reservations.has_ready or (not self._unfit.holds_all and self.queue.can_pop())

    def next_wake_s(self, now_s: float) -> float | None:
        """Return when TimePassed is next due, None if nothing waits for time."""
        due_s = (
            self.queue.next_wake_s(now_s),
            self.state.kubelet_refusals.next_s,
            self._reservations.next_wake_s(),
            self._fallbacks.next_wake_s(now_s),
            self._groups.next_wake_s(now_s),
        )
        known_s = [due for due in due_s if due is not None]
        return max(now_s, min(known_s)) if known_s else None

    def handle(self, stimulus: Stimulus, now_s: float) -> list[Instruction]:
        """Apply the stimulus and return the resulting instructions. `now_s`: seconds of a monotonic clock."""
        match stimulus:
            case BindDone(uid):
                return self._on_bind_done(uid, now_s)
            case BindFailed(uid, message):
                return self._on_bind_failed(uid, f'running Bind plugin "DefaultBinder": {message}', now_s)
            case ReservationWritten():
                pass
            case EvictionEnded():
                return self._unfit.on_eviction_ended(stimulus, now_s)
            case PluginFailing():
                return self._shut_off(stimulus)
            case CycleDue():
                return self._schedule_one(now_s)
            case CycleEnded(used_s):
                self.queue.charge(used_s, now_s)
                return []
            case ScaleUpNotTriggered(uid):
                if self._fallbacks.give_up(uid, now_s):
                    self.queue.activate(uid, now_s)
            case WatchInterrupted():
                self._fallbacks.on_interrupted(now_s)
            case TimePassed():
                return self._on_time(now_s)
            case SweepDue():
                self._sweep(now_s)
            case _:
                told = self._evicted(stimulus)
                self._handlers.handle(stimulus, now_s)
                if isinstance(stimulus, NodeGone):
                    told += self._unfit.withdraw_nominations(stimulus.name, now_s)
                return told + (self._fail_reservations(stimulus, now_s) if self._reservations else [])
        return self._fail_reservations(stimulus, now_s) if self._reservations else []

    def _sweep(self, now_s: float) -> None:
        """Do the next few milliseconds of a sweep, or begin one."""
        if self._sweeping is None:
            self.queue.sweep(now_s)
            self._sweeping = self.state.sweeping()
        for _ in self._sweeping:
            return
        self._sweeping = None

    def _on_time(self, now_s: float) -> list[Instruction]:
        self.queue.flush(now_s)
        self._handlers.expire_kubelet_refusals(now_s)
        due, told = self._fallbacks.on_time(now_s)
        for uid in due:
            self.queue.activate(uid, now_s)
        told += self._groups.on_time(now_s)
        return [*told, *(self._fail_reservations(TimePassed(), now_s) if self._reservations else [])]

    def _evicted(self, event: WatchEvent) -> list[Instruction]:
        """Return the report of an eviction if the event is the first sign of it."""
        if not (isinstance(event, PodSeen) and event.pod.disruption):
            return []
        known = self.state.placed.get(event.pod.uid)
        return [Evicted(event.pod)] if known is not None and not known.pod.disruption else []

    # The cycle.

    def _schedule_one(self, now_s: float) -> list[Instruction]:
        self._handlers.expire_kubelet_refusals(now_s)
        if self._reservations.has_ready:
            return [self._reservations.next_ready()]
        queued = None if self.has_backlog or self._unfit.holds_all else self.queue.pop(now_s)
        if queued is None:
            return []
        pod = queued.pod
        if pod.terminating:
            return [failed_event(pod, f"skip schedule deleting pod: {pod.key}")]
        profile = self._profiles.get(pod.scheduler_name)
        if profile is None or self.state.is_assumed(pod.uid):
            return []
        if pod.group is not None and (key := self.state.groups.key_of(pod)) is not None:
            return self._schedule_group(queued, key, profile, now_s)
        decision = decide(
            self.state.nominated.applied_to(pod), self._view, profile, self._rng, self._observer
        )
        match decision:
            case ScheduleResult():
                return self._assume_and_bind(queued, decision, now_s)
            case FitError():
                return self._try_relaxed(queued, decision, profile, now_s)
            case CycleError(message, unschedulable):
                return self._fail(queued, message, now_s, unschedulable=unschedulable)
            case _:
                assert_never(decision)

    def _try_relaxed(
        self, queued: QueuedPod, error: FitError, profile: Profile, now_s: float
    ) -> list[Instruction]:
        """Bind a pod that fits nowhere with its due fallbacks, or put it back."""
        relaxation = self._fallbacks.consider(queued.pod, error, profile, now_s)
        if relaxation is not None:
            decision = decide(relaxation.pod, self._view, profile, self._rng, self._observer)
            if isinstance(decision, ScheduleResult):
                return self._assume_and_bind(queued, decision, now_s, relaxation)
        reports = self._fallbacks.reports(queued.pod, error, profile)
        return [*self._unfit.on_unfit(queued, error, now_s), *reports]

    def _schedule_group(
        self, queued: QueuedPod, key: GroupKey, profile: Profile, now_s: float
    ) -> list[Instruction]:
        """Bind every member of the group that has a place, and report the others."""
        result = self._groups.run(queued, key, profile, now_s)
        orders: list[Instruction] = []
        for place in result.trial.places if result.trial is not None else ():
            member, record = result.placed[place.pod.uid], place.annotations.get(DECISION_ANNOTATION, "")
            self._binding[place.pod.uid] = Binding(
                member, place.pod, place.node_name, place.n_evaluated, place.n_feasible, now_s, record
            )
            orders.append(place.order)
        evictions: list[Instruction] = []
        if result.preemptor is not None:
            evictions = self._unfit.preempt_for_group(result, result.preemptor, now_s)
        return [*orders, *result.reports, *evictions]

    def _assume_and_bind(
        self,
        queued: QueuedPod,
        result: ScheduleResult,
        now_s: float,
        relaxation: Relaxation | None = None,
    ) -> list[Instruction]:
        pod, node_name = queued.pod, result.node_name
        # Before assume, which changes some of the score arrays.
        annotations = self._annotations(result, pod.uid, relaxation)
        reserved = result.scores.reservations()
        placed = pod if relaxation is None else relaxation.pod
        self._nominator.take_node(pod, node_name, now_s)
        self.state.assume(replace(placed, node_name=node_name), node_name)
        self._fallbacks.on_assumed(pod.uid, now_s)
        self._binding[pod.uid] = Binding(
            queued,
            pod,
            node_name,
            result.n_evaluated,
            result.n_feasible,
            now_s,
            annotations.get(DECISION_ANNOTATION, ""),
            relaxation,
            self._fallbacks.waited_s(pod.uid),
        )
        bind = Bind(pod, node_name, annotations)
        return [self._reservations.reserve(bind, reserved) if reserved else bind]

    def _annotations(
        self, result: ScheduleResult, uid: str = "", relaxation: Relaxation | None = None
    ) -> dict[str, str]:
        rules = () if relaxation is None else relaxation.rules
        annotations = {RELAXED: mark(rules)} if rules else {}
        if self._records_decisions:
            names = [one.rule for one in rules]
            evicted = self.preemptions.evicted_for(uid, result.node_name)
            annotations[DECISION_ANNOTATION] = decision_record(result, self.state.nodes, names, evicted)
        return annotations

    def _fail(
        self, queued: QueuedPod, message: str, now_s: float, *, unschedulable: bool
    ) -> list[Instruction]:
        """Put back a pod whose cycle failed; it is tried again after a backoff, and nominated no more."""
        pod = self.state.nominated.applied_to(queued.pod)
        self.queue.put_back(queued, frozenset(), now_s)
        self._nominator.nominate(pod, "", now_s)
        result: Final = "unschedulable" if unschedulable else "error"
        return [
            attempted(queued, result, now_s, message=message),
            *report_failure(
                pod,
                message,
                unschedulable=unschedulable,
                shown_nomination=queued.pod.nominated_node_name,
            ),
        ]

    def awaits_room_of(self, preemptor_uid: str, victim_uid: str) -> bool:
        """Return whether the pod is still pending and the victim still runs; asked before an eviction begins."""
        return self._unfit.awaits_room_of(preemptor_uid, victim_uid)

    def wants_eviction(self, preemptor_uid: str, victim_uid: str) -> bool:
        """Return whether the pod still needs the victim's place; asked right before the victim is deleted. O(nodes)."""
        return self._unfit.wants_eviction(preemptor_uid, victim_uid)

    def _shut_off(self, failing: PluginFailing) -> list[Instruction]:
        """Call the out-of-tree plugin no more. Pods that its filter is about wait; its scores are left out."""
        for plugin in self._profiles[failing.profile].out_of_tree:
            if plugin.name == failing.plugin and not plugin.shut_off:
                plugin.shut(failing.why, is_scoring=failing.is_scoring)
                effect = plugin.effect(is_scoring=failing.is_scoring)
                note = f"plugin {plugin.name} of profile {failing.profile} is shut off, and {effect}: {failing.why}"
                return [EmitEvent(failing.pod, "Warning", "PluginShutOff", "Scheduling", note)]
        return []

    # Results of binds.

    def _on_bind_done(self, uid: str, now_s: float) -> list[Instruction]:
        binding = self._binding.pop(uid, None)
        if binding is None:
            return []
        if uid in self._pending and not self.state.is_assumed(uid):
            # Shown bound, then unbound by a restored server; _on_pending_pod left it to this result to queue it.
            self.queue.add(self._pending[uid], now_s)
        told = report_bound(binding)
        if binding.pod.group is not None:
            told += self._groups.on_bound(binding.pod, self._binding)
        return told

    def _on_bind_failed(self, uid: str, text: str, now_s: float) -> list[Instruction]:
        """Forget the pod, take back what is reserved for it and was not written, and try it again."""
        binding = self._binding.pop(uid, None)
        if binding is None:
            return []
        queued = binding.queued
        newest = self._pending.get(uid)
        if newest is not None:
            queued.pod = newest
            self.queue.put_back(queued, frozenset(), now_s)
        for old, new in self._reservations.release(uid):
            # Upstream lets pods that wait for the object wait for its next change.
            self._handlers.notify_of_object(new.kind, Action.UPDATE, old, new, now_s)
        self._handlers.forget(uid, now_s)
        self.state.nominated.remove(uid)
        # Reported even if the pod is gone or bound elsewhere by now, as upstream does (handleSchedulingFailure).
        return [
            attempted(queued, "error", binding.started_s, message=text),
            *report_failure(queued.pod, text, unschedulable=False),
        ]

    def _fail_reservations(self, stimulus: Stimulus, now_s: float) -> list[Instruction]:
        """Put back the pods whose reservations fail because of the stimulus."""
        self._reservations.note(stimulus, now_s)
        return [
            instruction
            for failed in self._reservations.failures()
            for instruction in self._on_bind_failed(failed.uid, failed.message, now_s)
        ]

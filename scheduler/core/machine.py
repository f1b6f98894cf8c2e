"""
The scheduler as a pure state machine: stimuli in, instructions out. It owns the state and the queue.

    handle(stimulus, now_s):
        PodSeen, NodeSeen, ...   update ClusterState, then notify the queue of the event
        CycleDue                 pop -> decide -> assume and Bind, or put back and report
        VolumesWritten           let the pod wait for its volumes: `core.volume_binding`
        EvictionEnded            evict the last pod that is in the way, or try the other again: `core.preemption`
        BindDone, BindFailed     report the bound pod; or forget the assumed pod and put it back

Invariants:
 1. A cycle is one stimulus: no other stimulus comes between pop and assume, or between failure and putting back.
 2. Every assume ends in exactly one of: confirmed by PodSeen; forgotten by BindFailed or when the pod terminates;
    removed by PodGone.
 3. The same stimuli at the same seconds with the same seed give the same instructions.

Source: pkg/scheduler/{schedule_one,eventhandlers}.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, assert_never

from scheduler.core.decide import CycleError, ScheduleResult, decide, fits
from scheduler.core.decision_annotation import DECISION_ANNOTATION, decision_record
from scheduler.core.outcomes import Binding, attempted, failed_event, report_bound, report_failure
from scheduler.core.preemption import Preemptions, preempted_event
from scheduler.core.volume_binding import VolumeBindings
from scheduler.framework.diagnosis import FitError, PostFiltered
from scheduler.framework.events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    KUBELET_REFUSAL_OVER,
    NODE_ADD,
    NODE_DELETE,
    STORAGE_RESOURCES,
    Action,
    ClusterEvent,
    Resource,
    node_update_actions,
    pod_update_actions,
)
from scheduler.framework.interface import Rng
from scheduler.framework.observer import Observer, Unobserved
from scheduler.framework.profile import Profile
from scheduler.framework.reserving import volumes_needed
from scheduler.model.instructions import Bind, ClearNomination, EmitEvent, Instruction
from scheduler.model.nodes import Namespace, Node, Workload
from scheduler.model.pods import Pod
from scheduler.model.stimuli import (
    BindDone,
    BindFailed,
    CycleDue,
    DisruptionBudgetGone,
    DisruptionBudgetSeen,
    EvictionEnded,
    NamespaceGone,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    PluginFailing,
    PodGone,
    PodSeen,
    Stimulus,
    StorageGone,
    StorageSeen,
    SweepDue,
    TimePassed,
    VolumesWritten,
    WorkloadGone,
    WorkloadSeen,
)
from scheduler.model.volumes import StorageKind, StorageObject
from scheduler.queueing.pod_queue import PodQueue
from scheduler.queueing.queued_pod import QueuedPod
from scheduler.state.cluster import ClusterState
from scheduler.state.snapshot import Snapshot

#: Why a pod that waited for its volumes is put back, in upstream's words.
PREEMPTED: Final = "preempted by DefaultPreemption"


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
    ) -> None:
        """
        Args:
            state: empty; only this machine may change it.
            queue: empty; only this machine may change it.
            profiles: by schedulerName.
            rng: chooses among equally good nodes.
            observer: is called around each extension point.
            records_decisions: whether binds carry the annotation of `core.decision_annotation`.
        """
        self.state = state
        self.queue = queue
        self._snapshot = Snapshot(state)
        self._profiles = profiles
        self._rng = rng
        self._observer = Unobserved() if observer is None else observer
        self._records_decisions = records_decisions
        #: Unassigned pods of our profiles as last seen, whether queued or being bound.
        self._pending: dict[str, Pod] = {}
        self._binding: dict[str, Binding] = {}
        #: Pods of `_binding` whose volumes have to be bound before.
        self._volumes = VolumeBindings(state, self._pending)
        self.preemptions = Preemptions(state, self._pending)

    @property
    def n_binding(self) -> int:
        """Number of binds, and of writes of volumes, without a result; pods that wait for volumes do not count."""
        return len(self._binding) - self._volumes.n_waiting

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
    def has_backlog(self) -> bool:
        """Whether the queue has not finished with the events of past stimuli."""
        return self.queue.has_backlog

    def step(self) -> None:
        """Process a bounded part of the backlog, about 1 ms. `handle` processes the rest."""
        self.queue.step()

    def has_work(self) -> bool:
        """Return whether CycleDue would bind a pod whose volumes are bound, pop a pod or process backlog."""
        return self._volumes.has_ready or self.queue.can_pop()

    def next_wake_s(self, now_s: float) -> float | None:
        """Return when TimePassed is next due, None if nothing waits for time."""
        due_s = (
            self.queue.next_wake_s(now_s),
            self.state.kubelet_refusals.next_s,
            self._volumes.next_wake_s(),
        )
        known_s = [due for due in due_s if due is not None]
        return max(now_s, min(known_s)) if known_s else None

    def handle(self, stimulus: Stimulus, now_s: float) -> list[Instruction]:
        """Apply the stimulus and return the resulting instructions. `now_s`: seconds of a monotonic clock."""
        match stimulus:
            case PodSeen(pod):
                self._on_pod(pod, now_s)
            case PodGone(uid):
                self._on_pod_deleted(uid, now_s)
            case NodeSeen(node):
                self._on_node(node, now_s)
            case NodeGone(name):
                self._on_node_deleted(name, now_s)
            case NamespaceSeen(namespace):
                self._on_namespace(namespace, now_s)
            case NamespaceGone(name):
                self.state.remove_namespace(name)
                self._notify_queue(ClusterEvent(Resource.NAMESPACE, Action.DELETE), None, None, now_s)
            case WorkloadSeen(workload):
                self._on_workload(workload, now_s)
            case WorkloadGone(kind, namespace_name, name):
                self.state.remove_workload(kind, namespace_name, name)
                self._notify_queue(ClusterEvent(Resource(kind), Action.DELETE), None, None, now_s)
            case StorageSeen(obj):
                self._on_storage(obj, now_s)
            case StorageGone(storage_kind, key):
                self._on_storage_deleted(storage_kind, key, now_s)
            case BindDone(uid):
                return self._on_bind_done(uid, now_s)
            case BindFailed(uid, message):
                return self._on_bind_failed(uid, f'running Bind plugin "DefaultBinder": {message}', now_s)
            case VolumesWritten():
                pass
            case EvictionEnded():
                return self._on_eviction_ended(stimulus, now_s)
            case DisruptionBudgetSeen(budget):
                self.state.upsert_budget(budget)
            case DisruptionBudgetGone(namespace_name, name):
                self.state.remove_budget(namespace_name, name)
            case PluginFailing():
                return self._shut_off(stimulus)
            case CycleDue():
                return self._schedule_one(now_s)
            case TimePassed():
                self.queue.flush(now_s)
                self._expire_kubelet_refusals(now_s)
            case SweepDue():
                self.state.sweep()
            case _:
                assert_never(stimulus)
        return self._fail_volumes(stimulus, now_s) if self._volumes else []

    # Watch events.

    def _on_pod(self, pod: Pod, now_s: float) -> None:
        if pod.is_terminal:
            if pod.kubelet_refusal and pod.scheduler_name in self._profiles:
                self.state.record_kubelet_refusal(pod.uid, pod.kubelet_refusal, now_s)
            self._on_pod_deleted(pod.uid, now_s)
        elif pod.node_name:
            self._on_assigned_pod(pod, now_s)
        elif pod.scheduler_name in self._profiles:
            self._on_pending_pod(pod, now_s)

    def _on_assigned_pod(self, pod: Pod, now_s: float) -> None:
        self._pending.pop(pod.uid, None)
        self.queue.delete(pod.uid)
        self.preemptions.on_placed(pod.uid, pod.node_name)
        if pod.terminating:
            self.preemptions.on_leaving(pod.uid)
        known = self.state.placed.get(pod.uid)
        # Read before upsert_pod, which changes `known`.
        counted, assumed = (None, False) if known is None else (known.pod, known.assumed)
        self.state.upsert_pod(pod)
        has_started = pod.phase == "Running" and counted is not None and counted.phase != "Running"
        if has_started and self.state.kubelet_refusals.forget(pod.spec, pod.node_name):
            self._notify_queue(KUBELET_REFUSAL_OVER, None, None, now_s)
        if counted is None or assumed:
            self._notify_queue(ASSIGNED_POD_ADD, None, pod, now_s)
        if counted is not None and counted.node_name != pod.node_name:
            # Assumed on one node, but bound to another by another scheduler: the first node is free again.
            self._notify_queue(ASSIGNED_POD_DELETE, counted, None, now_s)
        elif counted is not None and counted.resource_version != pod.resource_version:
            for action in pod_update_actions(counted, pod):
                self._notify_queue(ClusterEvent(Resource.ASSIGNED_POD, action), counted, pod, now_s)

    def _on_pending_pod(self, pod: Pod, now_s: float) -> None:
        old = self._pending.get(pod.uid)
        if old is not None and old.resource_version == pod.resource_version:
            return
        self._pending[pod.uid] = pod
        if self.state.is_assumed(pod.uid):
            if pod.terminating:
                # The API server does not bind a pod that is being deleted.
                self._forget(pod.uid, now_s)
            else:
                # Changed while its bind is in flight. Upstream counts the old object until the bind is seen.
                self.state.update_assumed(pod)
            return
        if (lost := self.state.remove_pod(pod.uid)) is not None:
            # Shown unbound although it was bound: the server was restored or lags behind.
            self._notify_queue(ASSIGNED_POD_DELETE, lost, None, now_s)
        if pod.uid in self._binding:
            return
        self._note_nomination(old, pod)
        if old is None:
            self.queue.add(pod, now_s)
            return
        self.queue.update(old, pod, now_s)
        if old.nominated_node_name and old.nominated_node_name != pod.nominated_node_name:
            self._release_nomination(old, now_s)

    def _note_nomination(self, old: Pod | None, pod: Pod) -> None:
        """Follow the nomination that the pod shows; one made here counts until a watch shows it, and then its end."""
        node_name = pod.nominated_node_name
        if old is not None and not old.nominated_node_name and not node_name:
            node_name = self.state.nominated.node_of(pod.uid)
        self.state.nominate(pod, node_name)

    def _on_pod_deleted(self, uid: str, now_s: float) -> None:
        pending = self._pending.pop(uid, None)
        self.queue.delete(uid)
        self.state.nominated.remove(uid)
        self.preemptions.on_leaving(uid)
        self.preemptions.on_gone(uid)
        placed = self.state.remove_pod(uid)
        if placed is not None:
            self._notify_queue(ASSIGNED_POD_DELETE, placed, None, now_s)
        elif pending is not None and pending.nominated_node_name:
            self._release_nomination(pending, now_s)

    def _release_nomination(self, pod: Pod, now_s: float) -> None:
        """Wake waiting pods of lower or equal priority, which upstream's filters reject because of the nomination."""
        self.queue.on_event(
            ASSIGNED_POD_DELETE, pod, None, now_s, only=lambda waiting: waiting.priority <= pod.priority
        )

    def _on_node(self, node: Node, now_s: float) -> None:
        old = self.state.node(node.name)
        self.state.upsert_node(node)
        if old is None:
            self._notify_queue(NODE_ADD, None, node, now_s)
            return
        actions = node_update_actions(old, node)
        for action in actions:
            self._notify_queue(ClusterEvent(Resource.NODE, action), old, node, now_s)
        if actions and self.state.kubelet_refusals.forget_node(node.name):
            self._notify_queue(KUBELET_REFUSAL_OVER, None, None, now_s)

    def _on_node_deleted(self, name: str, now_s: float) -> None:
        old = self.state.node(name)
        self.state.remove_node(name)
        self.state.kubelet_refusals.forget_node(name)
        if old is not None:
            self._notify_queue(NODE_DELETE, old, None, now_s)

    def _on_namespace(self, namespace: Namespace, now_s: float) -> None:
        old = self._snapshot.namespace_labels(namespace.name)
        if old != namespace.labels:
            self.state.upsert_namespace(namespace)
            action = Action.ADD if old is None else Action.UPDATE
            self._notify_queue(ClusterEvent(Resource.NAMESPACE, action), None, namespace, now_s)

    def _on_workload(self, workload: Workload, now_s: float) -> None:
        known = self.state.workloads.selector_of(workload.kind, workload.namespace, workload.name)
        self.state.upsert_workload(workload)
        # Skip status updates, which are frequent for ReplicaSets.
        if known != workload.selector:
            action = Action.ADD if known is None else Action.UPDATE
            self._notify_queue(ClusterEvent(Resource(workload.kind), action), None, workload, now_s)

    def _on_storage(self, obj: StorageObject, now_s: float) -> None:
        old = self.state.volumes.seen(obj.kind, obj.key)
        self.state.upsert_storage(obj)
        # An update that changed nothing that is read helps no pod.
        if old != obj:
            action = Action.ADD if old is None else Action.UPDATE
            self._notify_queue(ClusterEvent(STORAGE_RESOURCES[obj.kind], action), old, obj, now_s)

    def _on_storage_deleted(self, kind: StorageKind, key: str, now_s: float) -> None:
        old = self.state.volumes.seen(kind, key)
        if old is not None:
            self.state.remove_storage(kind, key)
            self._notify_queue(ClusterEvent(STORAGE_RESOURCES[kind], Action.DELETE), old, None, now_s)

    def _expire_kubelet_refusals(self, now_s: float) -> None:
        """End exclusions whose time is over, and wake the pods that wait for them."""
        if self.state.kubelet_refusals.expire(now_s):
            self._notify_queue(KUBELET_REFUSAL_OVER, None, None, now_s)

    def _notify_queue(self, event: ClusterEvent, old: object, new: object, now_s: float) -> None:
        self.queue.on_event(event, old, new, now_s)

    # The cycle.

    def _schedule_one(self, now_s: float) -> list[Instruction]:
        self._expire_kubelet_refusals(now_s)
        if self._volumes.has_ready:
            return [self._volumes.next_ready()]
        queued = None if self.has_backlog else self.queue.pop(now_s)
        if queued is None:
            return []
        pod = queued.pod
        if pod.terminating:
            return [failed_event(pod, f"skip schedule deleting pod: {pod.key}")]
        profile = self._profiles.get(pod.scheduler_name)
        if profile is None or self.state.is_assumed(pod.uid):
            return []
        decision = decide(self._as_nominated(pod), self._snapshot, profile, self._rng, self._observer)
        match decision:
            case ScheduleResult():
                return self._assume_and_bind(queued, decision, now_s)
            case FitError():
                return self._on_unfit(queued, decision, now_s)
            case CycleError(message, unschedulable):
                return self._fail(queued, message, now_s, unschedulable=unschedulable)
            case _:
                assert_never(decision)

    def _assume_and_bind(self, queued: QueuedPod, result: ScheduleResult, now_s: float) -> list[Instruction]:
        pod, node_name = queued.pod, result.node_name
        # Before assume, which changes some of the score arrays.
        annotations = self._annotations(result)
        needed = None
        if pod.spec.claim_volumes:
            needed = volumes_needed(result.scores.filtered.filters, result.scores.chosen)
        self.state.assume(replace(pod, node_name=node_name), node_name)
        self._binding[pod.uid] = Binding(
            queued,
            pod,
            node_name,
            result.n_evaluated,
            result.n_feasible,
            now_s,
            annotations.get(DECISION_ANNOTATION, ""),
        )
        bind = Bind(pod, node_name, annotations)
        return [self._volumes.reserve(bind, needed) if needed else bind]

    def _annotations(self, result: ScheduleResult) -> dict[str, str]:
        if not self._records_decisions:
            return {}
        return {DECISION_ANNOTATION: decision_record(result, self.state.nodes)}

    def _as_nominated(self, pod: Pod) -> Pod:
        """Return the pod with the nomination that counts here, also if no watch has shown it yet."""
        node_name = self.state.nominated.node_of(pod.uid) if self.state.nominated else ""
        if not node_name or node_name == pod.nominated_node_name:
            return pod
        return replace(pod, nominated_node_name=node_name)

    def _fail(
        self, queued: QueuedPod, message: str, now_s: float, *, unschedulable: bool
    ) -> list[Instruction]:
        """Put back a pod whose cycle failed; it is tried again after a backoff, and nominated no more."""
        self.queue.put_back(queued, frozenset(), now_s)
        self.state.nominate(queued.pod, "")
        result: Final = "unschedulable" if unschedulable else "error"
        return [
            attempted(queued, result, now_s, message=message),
            *report_failure(queued.pod, message, unschedulable=unschedulable),
        ]

    def _on_unfit(self, queued: QueuedPod, error: FitError, now_s: float) -> list[Instruction]:
        """Put back a pod that fits on no node; nominate it, and evict pods for it, if PostFilter found where."""
        pod, result = queued.pod, error.postfilter
        self.queue.put_back(queued, error.rejecting, now_s)
        nominated = "" if result is None else result.nominated_node_name
        if nominated is not None:
            self.state.nominate(pod, nominated)
        evictions = self._preempt(pod, result, now_s) if result is not None and result.victims else []
        n_victims = len(result.victims) if result is not None and evictions else 0
        message = error.message()
        return [
            attempted(
                queued,
                "unschedulable",
                now_s,
                message=message,
                tried_preemption=result is not None,
                n_victims=n_victims,
            ),
            *report_failure(pod, message, unschedulable=True, nominated=nominated),
            *evictions,
        ]

    def _preempt(self, pod: Pod, result: PostFiltered, now_s: float) -> list[Instruction]:
        """
        Return the instructions that make room: pods of lower priority lose their nomination to the node first.

        Victims that wait for their volumes are put back without a call.
        """
        node_name = result.nominated_node_name or ""
        told: list[Instruction] = []
        for other in list(self.state.nominated.on(node_name)):
            if other.priority < pod.priority:
                self.state.nominate(other, "")
                if other.nominated_node_name:
                    told.append(ClearNomination(other))
        to_evict: list[Pod] = []
        for victim in result.victims:
            if self._volumes.holds(victim.uid):
                text = f'running PreBind plugin "VolumeBinding": {PREEMPTED}'
                told += self._on_bind_failed(victim.uid, text, now_s)
                told.append(preempted_event(victim, pod, node_name, " (in kube-scheduler memory)."))
            elif not victim.terminating:
                to_evict.append(victim)
        return [*told, *self.preemptions.start(pod, node_name, to_evict)]

    def _on_eviction_ended(self, ended: EvictionEnded, now_s: float) -> list[Instruction]:
        told, is_over = self.preemptions.on_ended(ended)
        if is_over:
            self.queue.activate(ended.preemptor_uid, now_s)
        return told

    def wants_eviction(self, preemptor_uid: str, victim_uid: str) -> bool:
        """
        Return whether the pod still needs the victim's place; asked right before the victim is deleted.

        Not if the pod is gone, bound, or fits somewhere by now, or if the victim ends already. O(nodes).
        """
        pod, placed = self._pending.get(preemptor_uid), self.state.placed.get(victim_uid)
        if pod is None or pod.terminating or preemptor_uid in self._binding:
            return False
        if (
            placed is None
            or placed.pod.terminating
            or not self.state.node(self.state.nodes.name_of(placed.row))
        ):
            return False
        return not fits(pod, self._snapshot, self._profiles[pod.scheduler_name])

    def _shut_off(self, failing: PluginFailing) -> list[Instruction]:
        """Call the guest plugin no more. Pods that its filter is about wait; its scores are left out."""
        for guest in self._profiles[failing.profile].guests:
            if guest.name == failing.plugin and not guest.shut_off:
                guest.shut_off = failing.why
                note = f"plugin {guest.name} of profile {failing.profile} is shut off: {failing.why}"
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
        return report_bound(binding)

    def _on_bind_failed(self, uid: str, text: str, now_s: float) -> list[Instruction]:
        """Forget the pod, take back what is assumed of its volumes and was not written, and try it again."""
        binding = self._binding.pop(uid, None)
        if binding is None:
            return []
        queued = binding.queued
        newest = self._pending.get(uid)
        if newest is not None:
            queued.pod = newest
            self.queue.put_back(queued, frozenset(), now_s)
        for old, new in self._volumes.release(uid):
            # Upstream lets pods that wait for the volume wait for its next change.
            event = ClusterEvent(STORAGE_RESOURCES[new.kind], Action.UPDATE)
            self._notify_queue(event, old, new, now_s)
        self._forget(uid, now_s)
        self.state.nominated.remove(uid)
        # Reported even if the pod is gone or bound elsewhere by now, as upstream does (handleSchedulingFailure).
        return [
            attempted(queued, "error", binding.started_s, message=text),
            *report_failure(queued.pod, text, unschedulable=False),
        ]

    def _fail_volumes(self, stimulus: Stimulus, now_s: float) -> list[Instruction]:
        """Put back the pods whose volumes will not be bound because of the stimulus."""
        self._volumes.note(stimulus, now_s)
        return [
            instruction
            for failed in self._volumes.failures()
            for instruction in self._on_bind_failed(
                failed.uid, f'running PreBind plugin "VolumeBinding": {failed.message}', now_s
            )
        ]

    def _forget(self, uid: str, now_s: float) -> None:
        forgotten = self.state.forget(uid)
        if forgotten is not None:
            self._notify_queue(ASSIGNED_POD_DELETE, forgotten, None, now_s)

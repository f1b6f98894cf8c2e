"""
The life of a pod of ours, as one table: what follows a sign of it in each phase.

               +------------------ BIND_FAILED -------------------+
               v                                                  |
    GONE --> PENDING --RESERVED--> RESERVED --READY--> BINDING ---+--BIND_DONE--> BOUND --SHOWN_PLACED--> PLACED
              ^   `-------------- DECIDED -------------^  |  |                                              ^
              |                                           |  `--SHOWN_PLACED--> CONFIRMED --BIND_DONE-------'
              |                                           |                         | shown unassigned again
              `-- BIND_DONE, BIND_FAILED -- WITHDRAWN <--SHOWN_ENDING---------------'
                                              |
    GONE <--- BIND_DONE, BIND_FAILED --- LOST <--SHOWN_GONE

While a bind has no answer, the pod is not tried again, whatever a watch shows: the answer always comes. Other modules
keep what else is known of a pod in its record: `engine.core.pod_records`.

Source: pkg/scheduler/eventhandlers.go and schedule_one.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum, auto
from typing import ClassVar

from scheduler.engine.core.fallbacks import Fallbacks
from scheduler.engine.core.group_lives import GroupLives
from scheduler.engine.core.group_nominations import HOLD_FOR_S
from scheduler.engine.core.nominator import Nominator
from scheduler.engine.core.outcomes import report_bound, report_failed_attempt, unread_event
from scheduler.engine.core.pod_records import Binding, Phase, PodRecord, PodRecords
from scheduler.engine.core.preemption import Preemptions
from scheduler.engine.core.reservations import Reservations
from scheduler.engine.framework.events import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    KUBELET_REFUSAL_OVER,
    Action,
    ClusterEvent,
    Resource,
    pod_update_actions,
)
from scheduler.engine.framework.kinds import event_of
from scheduler.engine.model.instructions import Evicted, Instruction, WriteObjects
from scheduler.engine.model.object_writes import StoredObject
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import Pod, as_relaxed
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.state.cluster import ClusterState


class Sign(Enum):
    """A fact that was learned of a pod, or a decision about it."""

    #: A watch shows it unassigned; the second: about to end as well.
    SHOWN_PENDING = auto()
    SHOWN_ENDING = auto()
    #: A watch shows it on a node; or that it is deleted or has finished.
    SHOWN_PLACED = auto()
    SHOWN_GONE = auto()
    #: A cycle assumed it on a node: it is bound; or what is reserved is written first, and it is bound once READY.
    DECIDED = auto()
    RESERVED = auto()
    READY = auto()
    #: The answer to its bind, or to the write of what is reserved if that fails.
    BIND_DONE = auto()
    BIND_FAILED = auto()

    # As in Phase.
    __hash__ = object.__hash__


_Table = Mapping[
    Sign, Mapping[Phase, tuple[Phase, Callable[["PodLifecycle", PodRecord, Pod, float], None] | None]]
]


class PodLifecycle:
    """Takes pods from phase to phase, by the table at its end. `profile_names`: the schedulerNames of our pods."""

    def __init__(
        self,
        state: ClusterState,
        queue: PodQueue,
        records: PodRecords,
        profile_names: Collection[str],
        *,
        nominator: Nominator,
        preemptions: Preemptions,
        fallbacks: Fallbacks,
        reservations: Reservations,
        groups: GroupLives,
    ) -> None:
        self._state, self._queue, self._records = state, queue, records
        self._profile_names = profile_names
        self._nominator, self._preemptions, self._fallbacks = nominator, preemptions, fallbacks
        self._reservations, self._groups = reservations, groups

    # Signs.

    def on_seen(self, pod: Pod, now_s: float) -> list[Instruction]:
        """Note what a watch shows of a pod."""
        record, known = self._records.get(pod.uid), self._state.placed.get(pod.uid)
        if record is None:
            # Most pods of a cluster have no record, before or after.
            record = PodRecord(pod.uid, Phase.GONE if known is None else Phase.PLACED)
        before = record.shown if known is None else known.pod
        instructions: list[Instruction] = []
        if pod.disruption and known is not None and not known.pod.disruption:
            instructions.append(Evicted(pod))
        if pod.is_terminal:
            if pod.kubelet_refusal and known is not None and pod.scheduler_name in self._profile_names:
                node_name = self._state.nodes.name_of(known.row)
                self._state.kubelet_refusals.record(known.pod.spec, node_name, pod.kubelet_refusal, now_s)
            if pod.phase == "Succeeded" and known is not None:
                self._state.groups.note_finished(known.pod)
            self._on_gone(record, now_s)
        elif pod.node_name:
            self._follow(record, Sign.SHOWN_PLACED, pod, now_s)
        elif pod.scheduler_name not in self._profile_names:
            # One that counted on a node: the server was restored.
            self._on_gone(record, now_s)
        elif not _is_same_version(record.shown, pod):
            sign = Sign.SHOWN_ENDING if pod.terminating else Sign.SHOWN_PENDING
            if pod.unread and (record.shown is None or record.shown.unread != pod.unread):
                instructions.append(unread_event(pod))
            self._follow(record, sign, pod, now_s)
        self._note_group(before, pod, now_s)
        return instructions

    def on_deleted(self, uid: str, now_s: float) -> None:
        """Note that a pod is deleted. One that succeeds looks deleted, too, but was not asked to end before."""
        placed = self._state.placed.get(uid)
        if placed is not None and placed.pod.phase == "Running":
            self._state.groups.note_finished(placed.pod)
        left = self._on_gone(self._records.at(uid), now_s)
        if left is not None and left.group is not None:
            self._groups.note(left.group.key, left, now_s)

    def on_assumed(self, binding: Binding, now_s: float) -> None:
        """Note that a cycle has assumed the pod on a node."""
        pod = binding.bind.pod
        record = self._records.at(pod.uid)
        record.binding = binding
        self._records.n_unanswered += 1
        self._follow(record, Sign.RESERVED if binding.is_reserved else Sign.DECIDED, pod, now_s)

    def on_ready(self, pod: Pod, now_s: float) -> None:
        """Note that what is reserved for the pod is ready, so that it is bound now."""
        self._follow(self._records.at(pod.uid), Sign.READY, pod, now_s)

    def on_bind_done(self, uid: str, now_s: float) -> list[Instruction]:
        """Return the report of a pod whose bind was accepted."""
        record, binding = self._answered(uid)
        if record is None or binding is None:
            return []
        self._reservations.on_bound(uid)
        self._follow(record, Sign.BIND_DONE, binding.bind.pod, now_s)
        return [*report_bound(binding), *self._groups.on_bound(binding.bind.pod)]

    def on_bind_failed(self, uid: str, text: str, now_s: float) -> list[Instruction]:
        """Take back what is assumed and reserved for a pod, and was not written; try the pod again."""
        record, binding = self._answered(uid)
        if record is None or binding is None:
            return []
        queued = binding.queued
        if record.shown is not None:
            queued.pod = record.shown
            self._queue.put_back(queued, frozenset(), now_s)
        undo = self._reservations.take_undo(uid)
        # Upstream lets pods that wait for the object wait for its next change.
        self.notify_of_objects(self._reservations.unreserve(uid), now_s)
        self._follow(record, Sign.BIND_FAILED, queued.pod, now_s)
        # Reported even if the pod is gone or bound elsewhere by now, as upstream does (handleSchedulingFailure).
        # No watch may have shown the nomination yet.
        is_nominated = binding.is_reserved and self._reservations.nominates
        shown = binding.bind.node_name if is_nominated else None
        reports = report_failed_attempt(
            queued, queued.pod, "error", text, binding.started_s, shown_nomination=shown
        )
        return [*reports, *([WriteObjects(binding.bind.pod, undo)] if undo else [])]

    def notify_of_objects(self, changes: Iterable[tuple[StoredObject, StoredObject]], now_s: float) -> None:
        """Wake the pods that the changes of objects may help; each is given as it was and as it is."""
        for old, new in changes:
            self._queue.on_event(event_of(new.kind, Action.UPDATE), old, new, now_s)

    def _follow(self, record: PodRecord, sign: Sign, pod: Pod, now_s: float) -> None:
        phase, act = self._TABLE[sign][record.phase]
        if act is not None:
            act(self, record, pod, now_s)
        record.phase = phase
        self._records.settle(record)

    def _answered(self, uid: str) -> tuple[PodRecord | None, Binding | None]:
        """Return the pod's record, and the decision whose answer is there, which is taken from the record."""
        record = self._records.get(uid)
        binding = None if record is None else record.binding
        if record is not None and binding is not None:
            record.binding = None
            self._records.n_unanswered -= 1
        return record, binding

    def _on_gone(self, record: PodRecord, now_s: float) -> Pod | None:
        placed = self._state.placed.get(record.uid)
        known = record.shown or (None if placed is None else placed.pod)
        if known is not None:
            self._follow(record, Sign.SHOWN_GONE, known, now_s)
        return known

    def _note_group(self, before: Pod | None, pod: Pod, now_s: float) -> None:
        """Let the pod's group, and the group that it was in before, learn of what was shown."""
        group_before = None if before is None else before.group
        if group_before is not None and group_before.key != _group_key(pod):
            # Its labels or annotations were changed.
            self._groups.note(group_before.key, None, now_s)
            self._groups.turns.wake(group_before.key, now_s)
            self._queue.rank(pod.uid, pod.priority)
        if group_before is not None and group_before != pod.group:
            self._queue.activate_each((pod.uid,), now_s)
        if pod.group is not None:
            self._groups.note(pod.group.key, pod, now_s)

    # Actions of transitions.

    def _enqueue(self, record: PodRecord, pod: Pod, now_s: float) -> None:
        self._show(record, pod, now_s)
        self._show_nomination(None, pod, now_s)
        self._queue.add(pod, now_s)

    def _update(self, record: PodRecord, pod: Pod, now_s: float) -> None:
        old = record.shown or pod
        self._show(record, pod, now_s)
        nominated_before = self._show_nomination(old, pod, now_s)
        self._queue.update(old, pod, now_s)
        self._nominator.wake_kept_out(old, nominated_before, now_s)

    def _show_nomination(self, old: Pod | None, pod: Pod, now_s: float) -> str:
        """Follow the nomination that a watch shows. Return the one that counted before."""
        before, shown = self._nominator.show(old, pod), pod.nominated_node_name
        is_new = shown not in ("", before, "" if old is None else old.nominated_node_name)
        if is_new and pod.group is not None:
            self._groups.nominations.end_at(pod.group.key, now_s + HOLD_FOR_S)
        return before

    def _show(self, record: PodRecord, pod: Pod, _now_s: float) -> None:
        old, record.shown = record.shown, pod
        if old is not None and _group_key(old) != _group_key(pod):
            self._state.groups.remove_pending(old)
        self._state.groups.add_pending(pod)

    def _update_assumed(self, record: PodRecord, pod: Pod, now_s: float) -> None:
        """Count a pod that was changed while it is bound. Upstream counts the old object until the bind is seen."""
        self._show(record, pod, now_s)
        self._state.update_assumed(as_relaxed(pod, self._state.placed[pod.uid].pod.spec))

    def _take_back(self, record: PodRecord, pod: Pod, now_s: float) -> None:
        """Count an assumed pod no more: the API server does not bind a pod that is being deleted."""
        self._show(record, pod, now_s)
        self._forget(record, pod, now_s)

    def _forget(self, record: PodRecord, _pod: Pod, now_s: float) -> None:
        """Take an assumed pod off its node again, and wake the pods that wait for its room."""
        forgotten = self._state.forget(record.uid)
        if forgotten is not None:
            self._preemptions.on_terminating(record.uid, now_s)
            self._queue.on_event(ASSIGNED_POD_DELETE, forgotten, None, now_s)

    def _unplace(self, record: PodRecord, pod: Pod, now_s: float) -> None:
        """Take a pod off its node that is shown unassigned: the server was restored, or lags behind."""
        self._show(record, pod, now_s)
        lost = self._state.remove_pod(record.uid)
        self._preemptions.on_terminating(record.uid, now_s)
        self._queue.on_event(ASSIGNED_POD_DELETE, lost, None, now_s)

    def _requeue(self, record: PodRecord, pod: Pod, now_s: float) -> None:
        self._unplace(record, pod, now_s)
        self._enqueue(record, pod, now_s)

    def _queue_again(self, record: PodRecord, _pod: Pod, now_s: float) -> None:
        if record.shown is not None:
            self._queue.add(record.shown, now_s)

    def _place(self, record: PodRecord, pod: Pod, now_s: float) -> None:
        if record.shown is not None:
            self._state.groups.remove_pending(record.shown)
            record.shown = None
            self._queue.delete(pod.uid)
            self._fallbacks.forget(pod.uid)
        if record.evicted:
            self._preemptions.on_placed(pod.uid, pod.node_name)
        known = self._state.placed.get(pod.uid)
        # Read before upsert_pod, which changes `known`.
        counted, is_new = None if known is None else known.pod, known is None or known.assumed
        self._nominator.take_node(pod, pod.node_name, now_s)
        self._state.upsert_pod(pod)
        if pod.terminating and not pod.ends_at_once:
            self._preemptions.on_terminating(pod.uid, now_s)
        has_started = pod.phase == "Running" and counted is not None and counted.phase != "Running"
        if has_started and self._state.kubelet_refusals.forget(pod.spec, pod.node_name):
            self._queue.on_event(KUBELET_REFUSAL_OVER, None, None, now_s)
        if is_new:
            self._queue.on_event(ASSIGNED_POD_ADD, None, pod, now_s)
        if counted is None and pod.group is not None:
            # Another scheduler has placed the member: its group needs one place less.
            self._groups.turns.wake(pod.group.key, now_s)
        if counted is not None and counted.node_name != pod.node_name:
            # Assumed on one node, but bound to another by another scheduler: the first node is free again.
            self._queue.on_event(ASSIGNED_POD_DELETE, counted, None, now_s)
        elif counted is not None and counted.resource_version != pod.resource_version:
            for action in pod_update_actions(counted, pod):
                self._queue.on_event(ClusterEvent(Resource.ASSIGNED_POD, action), counted, pod, now_s)

    def _remove(self, record: PodRecord, _pod: Pod, now_s: float) -> None:
        uid, pending = record.uid, record.shown
        if pending is not None:
            self._state.groups.remove_pending(pending)
            record.shown = None
            self._queue.delete(uid)
            self._fallbacks.forget(uid)
        self._preemptions.on_gone(uid)
        placed = self._state.remove_pod(uid)
        self._preemptions.on_terminating(uid, now_s)
        if placed is not None:
            self._queue.on_event(ASSIGNED_POD_DELETE, placed, None, now_s)
            self._wake_nominated(placed, now_s)
        elif pending is not None:
            self._nominator.nominate(pending, "", now_s)

    def _wake_nominated(self, left: Pod, now_s: float) -> None:
        """
        Wake the pods that are nominated to the node and may have waited for this one, which is gone.

        Hints do not: a pod that a port keeps out is held until its last victim ends, and hears of no victim that frees
        the port before. It would wait, with a nomination that may not come true, until upstream's flush.
        """
        nominated = self._state.nominated.on(left.node_name)
        self._queue.wake_each((pod.uid for pod in nominated if left.priority < pod.priority), now_s)

    #: By sign and phase: the phase that follows, and what this needs.
    _TABLE: ClassVar[_Table] = {
        Sign.SHOWN_PENDING: {
            Phase.GONE: (Phase.PENDING, _enqueue),
            Phase.PENDING: (Phase.PENDING, _update),
            Phase.RESERVED: (Phase.RESERVED, _update_assumed),
            Phase.BINDING: (Phase.BINDING, _update_assumed),
            Phase.BOUND: (Phase.BOUND, _update_assumed),
            Phase.WITHDRAWN: (Phase.WITHDRAWN, _show),
            Phase.LOST: (Phase.WITHDRAWN, _show),
            Phase.CONFIRMED: (Phase.WITHDRAWN, _unplace),
            Phase.PLACED: (Phase.PENDING, _requeue),
        },
        Sign.SHOWN_ENDING: {
            Phase.GONE: (Phase.PENDING, _enqueue),
            Phase.PENDING: (Phase.PENDING, _update),
            Phase.RESERVED: (Phase.WITHDRAWN, _take_back),
            Phase.BINDING: (Phase.WITHDRAWN, _take_back),
            Phase.BOUND: (Phase.PENDING, _take_back),
            Phase.WITHDRAWN: (Phase.WITHDRAWN, _show),
            Phase.LOST: (Phase.WITHDRAWN, _show),
            Phase.CONFIRMED: (Phase.WITHDRAWN, _unplace),
            Phase.PLACED: (Phase.PENDING, _requeue),
        },
        Sign.SHOWN_PLACED: {
            Phase.GONE: (Phase.PLACED, _place),
            Phase.PENDING: (Phase.PLACED, _place),
            Phase.RESERVED: (Phase.CONFIRMED, _place),
            Phase.BINDING: (Phase.CONFIRMED, _place),
            Phase.BOUND: (Phase.PLACED, _place),
            Phase.WITHDRAWN: (Phase.CONFIRMED, _place),
            Phase.LOST: (Phase.CONFIRMED, _place),
            Phase.CONFIRMED: (Phase.CONFIRMED, _place),
            Phase.PLACED: (Phase.PLACED, _place),
        },
        Sign.SHOWN_GONE: {
            Phase.GONE: (Phase.GONE, _remove),
            Phase.PENDING: (Phase.GONE, _remove),
            Phase.RESERVED: (Phase.LOST, _remove),
            Phase.BINDING: (Phase.LOST, _remove),
            Phase.BOUND: (Phase.GONE, _remove),
            Phase.WITHDRAWN: (Phase.LOST, _remove),
            Phase.LOST: (Phase.LOST, _remove),
            Phase.CONFIRMED: (Phase.LOST, _remove),
            Phase.PLACED: (Phase.GONE, _remove),
        },
        Sign.DECIDED: {Phase.PENDING: (Phase.BINDING, None)},
        Sign.RESERVED: {Phase.PENDING: (Phase.RESERVED, None)},
        Sign.READY: {Phase.RESERVED: (Phase.BINDING, None)},
        Sign.BIND_DONE: {
            Phase.BINDING: (Phase.BOUND, None),
            Phase.WITHDRAWN: (Phase.PENDING, _queue_again),
            Phase.LOST: (Phase.GONE, None),
            Phase.CONFIRMED: (Phase.PLACED, None),
        },
        Sign.BIND_FAILED: {
            Phase.RESERVED: (Phase.PENDING, _forget),
            Phase.BINDING: (Phase.PENDING, _forget),
            Phase.WITHDRAWN: (Phase.PENDING, None),
            Phase.LOST: (Phase.GONE, None),
            Phase.CONFIRMED: (Phase.PLACED, None),
        },
    }


def _is_same_version(old: Pod | None, pod: Pod) -> bool:
    return old is not None and old.resource_version == pod.resource_version


def _group_key(pod: Pod) -> GroupKey | None:
    return None if pod.group is None else pod.group.key

"""
The pods between Reserve and Bind: what plugins reserve for them is written, and they wait until all of it is done.

    reserve --> writing --ReservationWritten--> waiting --all is done--> ready --next_ready--> Bind
                   |                               |                       |
                   `--a write failed---------------+-----------------------+--> failed, unreserved

A waiting pod fails when a plugin says so after a change of an object that the pod waits for, when the pod or its node
is gone, or when the time is over. It is checked only when a stimulus is about one of these.

A write is undone only if its plugin says so, even after a failed bind. After a restart the filters lead the
pod to the same node and objects; its room there is kept by its nomination, which is written first with the gate
NominatedNodeNameForExpectation. It is written even if a watch shows it: its end may be on the way.

Source: framework/runtime/framework.go, RunReservePluginsReserve, RunPreBindPlugins (kubernetes 1.36). Differences:
stimuli instead of a plugin's poll each second; a pod that is being deleted ends the wait at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Any, Final

from scheduler.engine.core.pod_records import PodRecords
from scheduler.engine.framework.reserving import TIME_IS_OVER, ObjectKey, Reservation
from scheduler.engine.model.instructions import (
    Bind,
    DevicesAwaited,
    EmitEvent,
    Instruction,
    WriteObjects,
    WriteReservation,
)
from scheduler.engine.model.object_writes import ObjectWrite, StoredObject
from scheduler.engine.model.stimuli import (
    DevicesServed,
    NodeGone,
    NodeSeen,
    ObjectGone,
    ObjectSeen,
    PodGone,
    PodSeen,
    ReservationWritten,
    Stimulus,
    TimePassed,
)
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView

#: Why a pod between Reserve and Bind is put back for another one, in upstream's words.
_PREEMPTED: Final = "preempted by DefaultPreemption"


@dataclass(slots=True)
class _ReservedPod:
    """
    `bind`: the instruction that follows once all is done. `number`: of the instruction that writes the reservations.
    `versions`: the objects that the writes have made, in their order; None before the answer. `problem`: why a write
    failed. `timed_out_s`: the longest timeout that is over, -1 before. `objects`: the newest state of what was written.
    `waits_since_s`: when an event told what the pod waits for; None without one, and once the wait is reported.
    `is_preempted`: whether the pod gives way to another one.
    """

    bind: Bind
    reservations: Sequence[Reservation]
    number: int
    versions: tuple[str, ...] | None = None
    problem: str = ""
    timed_out_s: float = -1.0
    objects: tuple[StoredObject, ...] = ()
    waits_since_s: float | None = None
    is_preempted: bool = False

    def undo(self) -> tuple[ObjectWrite[Any], ...]:
        undone = (each.undo(self.objects, is_preempted=self.is_preempted) for each in self.reservations)
        return tuple(chain.from_iterable(undone))

    def with_versions(self) -> Iterator[tuple[Reservation, tuple[str, ...]]]:
        """Yield each reservation with the versions of its writes; fewer than its writes if one failed."""
        start = 0
        for reservation in self.reservations:
            end = start + len(reservation.writes)
            yield reservation, (self.versions or ())[start:end]
            start = end

    def concerns(self) -> Iterator[ObjectKey]:
        yield "Node", self.bind.node_name
        for reservation in self.reservations:
            yield from ((write.obj.kind, write.obj.key) for write in reservation.writes)
            yield from reservation.waits_for


class Reservations:
    """
    Every pod for which something is reserved and that is not bound yet. Changes only what is assumed of objects.

    `nominates`: whether the node where such a pod waits is written to its status, so that a restart keeps its room and
    others see it (schedule_one.go, bindingCycle, kubernetes 1.36).
    """

    def __init__(self, state: ClusterState, records: PodRecords, *, nominates: bool = False) -> None:
        self._state, self._records, self.nominates = state, records, nominates
        self._view = ClusterView(state)
        self._pods: dict[str, _ReservedPod] = {}
        #: By object and node: the UIDs of pods that wait for it.
        self._waiting_for: dict[ObjectKey, dict[str, None]] = {}
        #: By timeout: when the time of each pod is over, the earliest first.
        self._ends_s: dict[float, dict[str, float]] = {}
        self._ready: dict[str, None] = {}
        #: The writes that follow if the bind of a pod fails; pods without such writes are left out.
        self._undo_by_bind: dict[str, tuple[ObjectWrite[Any], ...]] = {}
        #: By number: pods that failed before the answer to their writes.
        self._unanswered: dict[int, _ReservedPod] = {}
        self._n_reserved = 0
        self._reports: list[DevicesAwaited] = []
        #: Pods whose writes were answered.
        self.n_waiting = 0

    @property
    def has_ready(self) -> bool:
        """Whether `next_ready` returns a bind."""
        return bool(self._ready)

    def __len__(self) -> int:
        return len(self._pods)

    def holds(self, uid: str) -> bool:
        """Return whether something is reserved for the pod and the pod is not being bound yet."""
        return uid in self._pods

    def of(self, uid: str) -> Sequence[Reservation]:
        """Return what is reserved for the pod."""
        reserved = self._pods.get(uid)
        return () if reserved is None else reserved.reservations

    def next_wake_s(self) -> float | None:
        """Return when the time of a waiting pod is over next, None if none waits."""
        return min((next(iter(ends_s.values())) for ends_s in self._ends_s.values() if ends_s), default=None)

    def reserve(self, bind: Bind, reservations: Sequence[Reservation]) -> WriteReservation:
        """Assume what the plugins reserve for the pod, and return the instruction that writes it."""
        writes = tuple(write for reservation in reservations for write in reservation.writes)
        for write in writes:
            self._state.stored_with(write.obj).assume(write, bind.pod.uid)
        self._n_reserved += 1
        self._pods[bind.pod.uid] = _ReservedPod(bind, reservations, self._n_reserved)
        return WriteReservation(bind.pod, bind.node_name, writes, self._n_reserved, self.nominates)

    def unreserve(self, uid: str) -> list[tuple[StoredObject, StoredObject]]:
        """
        End the pod's reservations. Return each object that now counts otherwise, as it was and as it is.

        Written objects still count until a watch shows them.
        """
        reserved = self._pods.pop(uid, None)
        if reserved is None:
            return []
        if reserved.versions is not None:
            self._end_waiting(uid, reserved)
        writes = (write for reservation in reserved.reservations for write in reservation.writes)
        changes = (self._state.stored_with(write.obj).forget(write.obj, uid) for write in writes)
        return [change for change in changes if change is not None]

    def take_undo(self, uid: str) -> tuple[ObjectWrite[Any], ...]:
        """Return what undoes its writes; call it before `unreserve`. Writes in flight are undone once answered."""
        reserved = self._pods.get(uid)
        if reserved is None:
            return self._undo_by_bind.pop(uid, ())
        if reserved.versions is None:
            self._unanswered[reserved.number] = reserved
            return ()
        return reserved.undo()

    def on_bound(self, uid: str) -> None:
        """Note that the pod is bound, so that nothing is undone."""
        self._undo_by_bind.pop(uid, None)

    def next_ready(self) -> tuple[Bind, list[tuple[StoredObject, StoredObject]]]:
        """Return the bind of a pod for which all is done, and what `unreserve` of the pod returns."""
        uid = next(iter(self._ready))
        reserved = self._pods[uid]
        if undo := reserved.undo():
            self._undo_by_bind[uid] = undo
        # The claim of extended resources counts twice while it is shown before the answer: a shared device is full.
        return reserved.bind, self.unreserve(uid)

    def note_written(
        self, answer: ReservationWritten, now_s: float
    ) -> tuple[list[tuple[StoredObject, StoredObject]], list[Instruction]]:
        """
        Let the pod wait for what was written, or fail at the next look.

        Return the objects that count otherwise, as they were and are, and what follows at once.
        """
        uid, reserved = answer.uid, self._pods.get(answer.uid)
        if reserved is None or reserved.number != answer.number:
            return [], self._late_undo(answer)
        reserved.versions, reserved.problem, reserved.objects = (
            answer.versions,
            answer.problem,
            answer.objects,
        )
        self.n_waiting += 1
        changes: list[tuple[StoredObject, StoredObject]] = []
        for reservation, versions in reserved.with_versions():
            for write, version in zip(reservation.writes, versions, strict=False):
                change = self._state.stored_with(write.obj).settle(write.obj, version, uid)
                if change is not None:
                    changes.append(change)
            timeout_s = reservation.timeout_s
            self._ends_s.setdefault(timeout_s, {})[uid] = now_s + timeout_s
        for key in reserved.concerns():
            self._waiting_for.setdefault(key, {})[uid] = None
        notes = [] if reserved.problem else self._waiting_notes(reserved)
        reserved.waits_since_s = now_s if notes else None
        pod = reserved.bind.pod
        events = (EmitEvent(pod, "Normal", "BindingConditionsPending", "Scheduling", note) for note in notes)
        return changes, [*events]

    def _waiting_notes(self, reserved: _ReservedPod) -> list[str]:
        node_name = reserved.bind.node_name
        notes = (reservation.waiting_note(node_name, self._view) for reservation in reserved.reservations)
        return [note for note in notes if note]

    def _late_undo(self, answer: ReservationWritten) -> list[Instruction]:
        """Return what undoes the writes of a pod that failed before the answer, unless it has new reservations."""
        late = self._unanswered.pop(answer.number, None)
        if late is None or answer.uid in self._pods or answer.uid in self._undo_by_bind:
            return []
        late.objects = answer.objects
        writes = late.undo()
        return [WriteObjects(late.bind.pod, writes)] if writes else []

    def _concerned(self, stimulus: Stimulus, now_s: float) -> Iterable[str]:
        match stimulus:
            case PodSeen(pod):
                return (pod.uid,)
            case PodGone(uid):
                return (uid,)
            case NodeSeen(node):
                return self._waiting_for_any(("Node", node.name))
            case NodeGone(name):
                return self._waiting_for_any(("Node", name))
            case ObjectSeen():
                return self._waiting_for_any(*stimulus.concerns)
            case ObjectGone(kind, key):
                return self._waiting_for_any((kind, key))
            case DevicesServed(kind):
                return self._waiting_for_any(*[key for key in self._waiting_for if key[0] == kind])
            case ReservationWritten(uid):
                return (uid,)
            case TimePassed():
                return self._timed_out(now_s)
            case _:
                return ()

    def _waiting_for_any(self, *keys: ObjectKey) -> Iterable[str]:
        return dict.fromkeys(uid for key in keys for uid in self._waiting_for.get(key, ()))

    def _timed_out(self, now_s: float) -> Iterable[str]:
        timed_out: dict[str, None] = {}
        for timeout_s, ends_s in self._ends_s.items():
            for uid in [uid for uid, _ in takewhile(lambda end: end[1] <= now_s, ends_s.items())]:
                del ends_s[uid]
                reserved = self._pods[uid]
                reserved.timed_out_s = max(reserved.timed_out_s, timeout_s)
                timed_out[uid] = None
        return timed_out

    # Results.

    def failures(self, stimulus: Stimulus, now_s: float) -> Iterator[tuple[str, str]]:
        """Look at the pods that the stimulus is about; yield the UID and the message of each that has failed."""
        for uid in self._concerned(stimulus, now_s):
            reserved = self._pods.get(uid)
            if reserved is None or reserved.versions is None:
                continue
            checked = self._checked(reserved)
            if checked is not False:
                self._report_wait(reserved, checked if isinstance(checked, str) else "", now_s)
            if isinstance(checked, str):
                yield uid, checked
            elif checked:
                self._ready[uid] = None
            else:
                self._ready.pop(uid, None)

    def _report_wait(self, reserved: _ReservedPod, problem: str, now_s: float) -> None:
        if reserved.waits_since_s is None:
            return
        waited_s, reserved.waits_since_s = now_s - reserved.waits_since_s, None
        reports = (each.wait_report(problem, waited_s, self._view) for each in reserved.reservations)
        self._reports += [report for report in reports if report is not None]

    def take_reports(self) -> list[DevicesAwaited]:
        """Return the reports of the waits that have ended since the last call."""
        reports, self._reports = self._reports, []
        return reports

    def preempt(self, uid: str) -> str:
        """Note that the pod gives way to another one; return the message with which it is put back."""
        reserved = self._pods[uid]
        reserved.is_preempted = True
        return _failure(reserved.reservations[0], _PREEMPTED)

    def _end_waiting(self, uid: str, reserved: _ReservedPod) -> None:
        self.n_waiting -= 1
        for key in reserved.concerns():
            waiting = self._waiting_for.get(key, {})
            waiting.pop(uid, None)
            if not waiting:
                self._waiting_for.pop(key, None)
        for reservation in reserved.reservations:
            self._ends_s[reservation.timeout_s].pop(uid, None)
        self._ready.pop(uid, None)

    def _checked(self, reserved: _ReservedPod) -> bool | str:
        """Return whether the pod may be bound; the message of its failure if it never may."""
        if reserved.problem:
            unwritten = (part for part, made in reserved.with_versions() if len(made) < len(part.writes))
            return _failure(next(unwritten), reserved.problem)
        node, problem = self._state.node(reserved.bind.node_name), self._problem(reserved.bind)
        all_done = True
        for reservation, versions in reserved.with_versions():
            checked = problem if node is None or problem else reservation.is_done(versions, node, self._view)
            if checked is False and reservation.timeout_s <= reserved.timed_out_s:
                checked = TIME_IS_OVER
            if isinstance(checked, str):
                return _failure(reservation, reservation.failure(checked))
            all_done &= checked
        return all_done

    def _problem(self, bind: Bind) -> str:
        """Return why the pod may not be bound to the node, whatever is reserved for it; empty if it may."""
        pod, node_name = bind.pod, bind.node_name
        shown, placed = self._records.shown(pod.uid), self._state.placed.get(pod.uid)
        if shown is not None and shown.terminating:
            return f'pod "{pod.name}" is being deleted'
        if shown is None and placed is not None:
            return f'pod {pod.name} is already assigned to node "{self._state.nodes.name_of(placed.row)}"'
        if shown is None:
            return f'pod does not exist any more: pod "{pod.name}" not found'
        if placed is None:
            return f'pod "{pod.name}" does not count on node "{node_name}" any more'
        if self._state.node(node_name) is None:
            return f'failed to get node "{node_name}": node "{node_name}" not found'
        return ""


def _failure(reservation: Reservation, problem: str) -> str:
    return f'running PreBind plugin "{reservation.plugin}": {problem}'

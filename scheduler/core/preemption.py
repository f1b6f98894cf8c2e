"""
The evictions that make room for nominated pods.

    start --> all victims but the last, at once --all answered--> the last --answered--> over
                 |                                                   |
                 `--one failed, or is not wanted any more------------+--> over; the others are spared, the pod is tried:
                                                                          after a failure when a backoff is over

The pod, or its group, is not tried meanwhile, until every victim that the API server deletes is seen to end: before, it
would be found to fit nowhere, and others evicted for it. Upstream waits for the last one alone. If an event
that may help came meanwhile, such as a new node, the pod is tried then; upstream's waits on. Nothing is kept for a
restart: the nomination and the victims that end are on the server, and a pod waits for victims that end on its node.

Without the gate SchedulerAsyncPreemption all victims go at once, and no pod is tried until all answers are there; then
the attempt is reported. Groups, which upstream does not evict for, are not affected.

Source: framework/preemption/executor.go, prepareCandidateAsync and prepareCandidate (kubernetes 1.36).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from scheduler.model.instructions import EmitEvent, EvictVictim, Instruction
from scheduler.model.pods import Pod
from scheduler.model.stimuli import EvictionEnded, VictimFate
from scheduler.queueing.pod_queue import PodQueue
from scheduler.state.cluster import ClusterState

#: Causes of evictions in vain.
GONE: Final = "the pod is gone"
ELSEWHERE: Final = "the pod runs elsewhere"
AGAIN: Final = "the room was taken"


@dataclass(slots=True)
class _Preemption:
    """
    Attributes:
        preemptor: the pod, or a member of the group, in whose name pods are evicted.
        waiting: the UIDs of all pods that room is made for, and that are not tried meanwhile; none without the gate.
        node_name: where; empty for a group, whose members may go to several nodes.
        victims: the UIDs of all victims.
        left: the victim whose eviction begins last; None once it has begun, or will not.
        unanswered: victims whose eviction began, for this pod or for another one that needs their room too.
        unseen: the UIDs of the victims whose eviction began and has not failed, and that no watch has shown to end.
        is_given_up: whether an eviction failed or was not wanted.
        has_failed: whether one failed.
        number: of the decision, in their order.
    """

    preemptor: Pod
    waiting: frozenset[str]
    node_name: str
    victims: frozenset[str]
    left: Pod | None
    unanswered: dict[str, Pod] = field(default_factory=dict)
    unseen: set[str] = field(default_factory=set)
    is_given_up: bool = False
    has_failed: bool = False
    number: int = 0


class Preemptions:
    """
    Every pod that others are being evicted for.

    Args:
        state: the machine's; only its `preempting` is changed.
        queue: the machine's.
        pending: the unassigned pods that watches show, by UID.
        is_async: the gate SchedulerAsyncPreemption.
    """

    def __init__(
        self, state: ClusterState, queue: PodQueue, pending: Mapping[str, Pod], *, is_async: bool = True
    ) -> None:
        self._state = state
        self._queue = queue
        self._pending = pending
        self.is_async = is_async
        self._running: dict[str, _Preemption] = {}
        self._n_decided = 0
        #: By the UID of a victim: the pod for which it is being evicted.
        self._in_flight: dict[str, str] = {}
        #: Victims that the API server deletes and that no watch shows to end yet.
        self._leaving: set[str] = set()
        #: By the UID of a victim that is unanswered or unseen: the pods that it makes room for.
        self._preemptors_of: dict[str, list[str]] = {}
        #: By pod: the node where others were evicted for it, and these, as namespace/name.
        self._made_room: dict[str, tuple[str, tuple[str, ...]]] = {}
        #: Evictions that did not lead to the pod's bind on that node, by cause.
        self.wasted: Counter[str] = Counter()

    def start(
        self, preemptor: Pod, node_name: str, victims: Iterable[Pod], members: Collection[str] = ()
    ) -> list[Instruction]:
        """
        Return the first evictions. None of the victims ends already, or is assumed only.

        `members`: the UIDs of the preemptor's group, whose victims may be on several nodes; `node_name` is empty then.
        """
        victims = list(victims)
        if (before := self._made_room.pop(preemptor.uid, None)) is not None:
            self.wasted[AGAIN] += len(before[1])
        if not victims:
            return []
        holds = self.is_async or bool(members)
        last = victims[-1] if holds else None
        waiting = frozenset([preemptor.uid, *members] if holds else ())
        uids = frozenset(victim.uid for victim in victims)
        self._n_decided += 1
        running = _Preemption(preemptor, waiting, node_name, uids, last, number=self._n_decided)
        if (earlier := self._running.get(preemptor.uid)) is not None:
            # Its victim was seen to end before its eviction was answered, and others took the room: that is reported.
            running.unanswered, running.unseen = earlier.unanswered, earlier.unseen
        self._running[preemptor.uid] = running
        if last is None:
            return list(self._evict(running, victims))
        first = victims[:-1]
        self._state.preempting |= waiting
        return list(self._evict(running, first) if first else self._evict_last(running, last))

    def is_leaving(self, victim: Pod) -> bool:
        """Return whether the pod ends already, or the API server deletes it."""
        return victim.terminating or victim.uid in self._leaving

    def on_ended(self, ended: EvictionEnded, now_s: float) -> list[Instruction]:
        """Return what follows the end of an eviction; let the pods that wait for nothing else be tried again."""
        told: list[Instruction] = []
        self._in_flight.pop(ended.victim_uid, None)
        is_over = ended.fate in (VictimFate.SPARED, VictimFate.FAILED)
        for running in self._making_room_by(ended.victim_uid):
            victim = running.unanswered.pop(ended.victim_uid, None)
            if victim is None:
                continue
            uid = running.preemptor.uid
            if ended.fate is VictimFate.DELETED and uid == ended.preemptor_uid:
                told.append(preempted_event(victim, running.preemptor, running.node_name))
                self._note_deleted(victim, running)
            if is_over or not self._is_end_unseen(victim.uid):
                running.unseen.discard(victim.uid)
            self._settle(running, victim.uid)
            running.is_given_up |= is_over
            running.has_failed |= ended.fate is VictimFate.FAILED
            if running.unanswered:
                continue
            if running.left is not None and not running.is_given_up and uid in self._pending:
                told += self._evict_last(running, running.left)
                continue
            running.left = None
            self._release(running, now_s)
        return told

    @property
    def is_evicting(self) -> bool:
        """Whether an eviction has no answer."""
        return bool(self._in_flight)

    def is_running(self, uid: str) -> bool:
        """Return whether an eviction for the pod has no answer, or is still to begin."""
        running = self._running.get(uid)
        return running is not None and (running.left is not None or bool(running.unanswered))

    def node_for(self, uid: str) -> str:
        """Return the name of the node where pods are being evicted for the pod; empty if nowhere, or for a group."""
        running = self._running.get(uid)
        return "" if running is None else running.node_name

    def victims_for(self, uid: str) -> frozenset[str]:
        """Return the UIDs of the pods that are being evicted for the pod."""
        running = self._running.get(uid)
        return frozenset() if running is None else running.victims

    def evicted_for(self, uid: str, node_name: str) -> tuple[str, ...]:
        """Return the pods that were evicted from the node for the pod, as namespace/name."""
        on_node, evicted = self._made_room.get(uid, ("", ()))
        return evicted if on_node == node_name else ()

    def on_leaving(self, uid: str, now_s: float) -> None:
        """Note that a pod is gone or ends; let the pods for which it was to make room be tried again."""
        self._leaving.discard(uid)
        for running in self._making_room_by(uid):
            if uid in running.unseen:
                running.unseen.remove(uid)
                self._settle(running, uid)
                self._release(running, now_s)

    def on_gone(self, uid: str) -> None:
        """Note that a pending pod is gone."""
        self._state.preempting.discard(uid)
        self._count_wasted(uid, GONE)

    def on_placed(self, uid: str, node_name: str) -> None:
        """Note that a pod is bound to the node."""
        made_room = self._made_room.get(uid)
        if made_room is None:
            return
        if made_room[0] in (node_name, ""):
            del self._made_room[uid]
        else:
            self._count_wasted(uid, ELSEWHERE)

    def _making_room_by(self, victim_uid: str) -> Sequence[_Preemption]:
        return [self._running[uid] for uid in self._preemptors_of.get(victim_uid, ())]

    def _is_end_unseen(self, uid: str) -> bool:
        """
        Return whether no watch has shown that the pod is gone, or that its grace period has begun.

        A pod without a grace period is gone right after it is shown to terminate; before, its room is not free.
        """
        placed = self._state.placed.get(uid)
        return placed is not None and (not placed.pod.terminating or placed.pod.ends_at_once)

    def _settle(self, running: _Preemption, victim_uid: str) -> None:
        """Remove the pod from the victim's preemptors once the eviction is answered and the victim is seen to end."""
        if victim_uid in running.unanswered or victim_uid in running.unseen:
            return
        preemptors = self._preemptors_of[victim_uid]
        preemptors.remove(running.preemptor.uid)
        if not preemptors:
            del self._preemptors_of[victim_uid]

    def _release(self, running: _Preemption, now_s: float) -> None:
        """Hold the pod no more once there is nothing to wait for. Let it be tried if its room is not made."""
        uid = running.preemptor.uid
        if running.left is not None or running.unseen:
            return
        # Not by an answer that is late: its victim is seen to end.
        self._state.preempting -= running.waiting
        for waiting_uid in running.waiting:
            self._queue.let_through(waiting_uid, now_s)
        if running.unanswered:
            return
        del self._running[uid]
        if uid not in self._pending:
            # The answer comes after the pod was bound, or is gone.
            placed = self._state.placed.get(uid)
            if placed is None:
                self._count_wasted(uid, GONE)
            else:
                self.on_placed(uid, self._state.nodes.name_of(placed.row))
        elif running.has_failed:
            # The next attempt chooses the same victim, which an admission policy may deny for ever. Without the gate
            # the attempt is reported as failed, and the pod waits for an event, as upstream.
            if running.waiting:
                self._queue.back_off(uid, now_s)
        elif running.is_given_up:
            self._queue.activate(uid, now_s)

    def _note_deleted(self, victim: Pod, running: _Preemption) -> None:
        _, evicted = self._made_room.get(running.preemptor.uid, ("", ()))
        self._made_room[running.preemptor.uid] = running.node_name, (*evicted, victim.key)
        if self._is_end_unseen(victim.uid):
            self._leaving.add(victim.uid)

    def _count_wasted(self, uid: str, cause: str) -> None:
        made_room = self._made_room.pop(uid, None)
        if made_room is not None:
            self.wasted[cause] += len(made_room[1])

    def _evict_last(self, running: _Preemption, last: Pod) -> Iterator[Instruction]:
        running.left = None
        return self._evict(running, [last])

    def _evict(self, running: _Preemption, victims: list[Pod]) -> Iterator[Instruction]:
        """Yield the evictions; one that is under way for another pod is waited for, and not begun again."""
        for victim in victims:
            running.unanswered[victim.uid] = victim
            if running.waiting and self._is_end_unseen(victim.uid):
                running.unseen.add(victim.uid)
            preemptors = self._preemptors_of.setdefault(victim.uid, [])
            if running.preemptor.uid not in preemptors:
                preemptors.append(running.preemptor.uid)
        for victim in victims:
            if victim.uid not in self._in_flight:
                self._in_flight[victim.uid] = running.preemptor.uid
                yield EvictVictim(running.preemptor, victim, running.number)


def preempted_event(victim: Pod, preemptor: Pod, node_name: str, where: str = "") -> EmitEvent:
    """
    Return the event of a victim, reported by the profile of the pod that it makes room for.

    `node_name`: empty if that is the preemptor's group.
    """
    note = f"Preempted by pod {preemptor.uid} on node {node_name}{where}"
    if not node_name and preemptor.group is not None:
        key = preemptor.group.key
        note = f"Preempted by pod group {key.text} on node {victim.node_name}{where}"
        if victim.group is not None and victim.group.key == key:
            note = f"Evicted from node {victim.node_name} with its pod group {key.text}, which is placed anew{where}"
    return EmitEvent(victim, "Normal", "Preempted", "Preempting", note, preemptor.scheduler_name)

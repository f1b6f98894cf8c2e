"""
The evictions that make room for nominated pods.

    start --> all victims but the last, at once --all answered--> the last --answered--> over
                 |                                                   |
                 `--one failed, or is not wanted any more------------+--> over; the others are spared, the pod is tried:
                                                                          after a failure when a backoff is over

The pod, or its group, is not tried until a watch shows the end of every victim that the API server deletes: earlier it
would fit nowhere, and more pods would be evicted for it. Upstream waits for the last victim alone. If an event that may
help comes meanwhile, such as a new node, the pod is tried afterwards; upstream's waits on. Nothing is kept for a
restart: the nomination and the ending victims are on the server, and a pod waits for victims that end on its node.

Source: framework/preemption/executor.go, prepareCandidateAsync (kubernetes 1.36).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from scheduler.engine.core.pod_records import PodRecords, Preemption
from scheduler.engine.model.instructions import EmitEvent, EvictVictim, Instruction
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import EvictionEnded, VictimFate
from scheduler.engine.model.wording import named_to
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.state.cluster import ClusterState

#: Causes of evictions in vain.
GONE: Final = "the pod is gone"
ELSEWHERE: Final = "the pod runs elsewhere"
AGAIN: Final = "the room was taken"


class Preemptions:
    """Begins evictions, and says what follows their ends. Writes in records what concerns preemptors and victims."""

    def __init__(self, state: ClusterState, queue: PodQueue, records: PodRecords) -> None:
        self._state, self._queue, self._records = state, queue, records
        self._n_decided = 0
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
        self._count_wasted(preemptor.uid, AGAIN)
        if not victims:
            return []
        *first, last = victims
        waiting = frozenset([preemptor.uid, *members])
        uids = frozenset(victim.uid for victim in victims)
        self._n_decided += 1
        left = last if first else None
        preemption = Preemption(preemptor, waiting, node_name, uids, left, self._n_decided)
        record = self._records.at(preemptor.uid)
        if (earlier := record.preemption) is not None:
            # Its victim ended before the eviction was answered, and other pods took the room: report that.
            preemption.unanswered, preemption.unseen = earlier.unanswered, earlier.unseen
            # Members of its group that were not tried with it this time are held for it still.
            preemption.waiting |= earlier.waiting
        record.preemption = preemption
        self._records.settle(record)
        self._state.held_for_evictions.update(dict.fromkeys(waiting, preemptor.uid))
        return list(self._evict(preemption, first or [last]))

    def is_terminating(self, victim: Pod) -> bool:
        """Return whether the pod ends already, or the API server deletes it."""
        record = self._records.get(victim.uid)
        return victim.terminating or (record is not None and record.is_deleted)

    def on_ended(self, ended: EvictionEnded, now_s: float) -> list[Instruction]:
        """Return what follows the end of an eviction; let the pods that wait for nothing else be tried again."""
        instructions: list[Instruction] = []
        victim_record = self._records.at(ended.victim_uid)
        victim_record.evicted_by = ""
        is_over = ended.fate in (VictimFate.SPARED, VictimFate.FAILED)
        for preemption in self._making_room_by(ended.victim_uid):
            victim = preemption.unanswered.pop(ended.victim_uid, None)
            if victim is None:
                continue
            uid = preemption.preemptor.uid
            if ended.fate is VictimFate.DELETED and uid == ended.preemptor_uid:
                instructions.append(preempted_event(victim, preemption.preemptor, preemption.node_name))
                self._note_deleted(victim, preemption)
            if is_over:
                preemption.unseen.discard(victim.uid)
            self._note_answered_or_seen(preemption, victim.uid)
            preemption.is_given_up |= is_over
            preemption.has_failed |= ended.fate is VictimFate.FAILED
            if preemption.unanswered:
                continue
            is_wanted = not preemption.is_given_up and self._records.shown(uid) is not None
            last, preemption.left = preemption.left, None
            if last is not None and (is_wanted or self.must_follow(last)):
                instructions += self._evict(preemption, [last])
            else:
                self._let_through(preemption, now_s)
        self._records.settle(victim_record)
        return instructions

    @property
    def is_evicting(self) -> bool:
        """Whether an eviction has no answer. O(records)."""
        return any(record.evicted_by for record in self._records)

    def must_follow(self, victim: Pod) -> bool:
        """Return whether other members of a group that is disrupted as a whole are or will be evicted. O(members)."""
        groups = self._state.groups
        if victim.group is None or not groups.is_disrupted_whole(victim):
            return False
        if groups.is_being_evicted(victim.group.key):
            return True
        others = (member.uid for member in groups.placed(victim.group.key) if member.uid != victim.uid)
        records = (self._records.get(uid) for uid in others)
        return any(record is not None and bool(record.evicted_by) for record in records)

    def of(self, uid: str) -> Preemption | None:
        """Return the evictions for the pod that are not over."""
        record = self._records.get(uid)
        return None if record is None else record.preemption

    def evicted_for(self, pod: Pod, node_name: str) -> tuple[str, ...]:
        """Return namespace/name of each pod evicted from the node for the pod; of other namespaces, how many."""
        record = self._records.get(pod.uid)
        if record is None or record.room_on != node_name:
            return ()
        own = tuple(key for key in record.evicted if key.startswith(f"{pod.namespace}/"))
        n_others = len(record.evicted) - len(own)
        return (*own, f"{n_others} of other namespaces") if n_others else own

    def on_terminating(self, uid: str, now_s: float) -> None:
        """Note that a pod is gone or ends; let the pods be tried that it was to make room for."""
        record = self._records.get(uid)
        if record is None:
            return
        record.is_deleted = False
        for preemption in self._making_room_by(uid):
            if uid in preemption.unseen:
                preemption.unseen.remove(uid)
                self._note_answered_or_seen(preemption, uid)
                self._let_through(preemption, now_s)
        self._records.settle(record)

    def on_gone(self, uid: str) -> None:
        """Note that a pod is gone, which may have been a preemptor."""
        self._state.held_for_evictions.pop(uid, None)
        self._count_wasted(uid, GONE)

    def on_placed(self, uid: str, node_name: str) -> None:
        """Note that a pod is bound to the node."""
        record = self._records.get(uid)
        if record is not None and record.room_on in (node_name, ""):
            record.evicted = ()
            self._records.settle(record)
        else:
            self._count_wasted(uid, ELSEWHERE)

    def _making_room_by(self, victim_uid: str) -> list[Preemption]:
        record = self._records.get(victim_uid)
        preemptors = () if record is None else record.preemptors
        return [preemption for uid in preemptors if (preemption := self.of(uid)) is not None]

    def _is_end_unseen(self, uid: str) -> bool:
        """Return whether no watch has shown the pod's end: that it terminates, or is gone if it has no grace period."""
        placed = self._state.placed.get(uid)
        return placed is not None and (not placed.pod.terminating or placed.pod.ends_at_once)

    def _note_answered_or_seen(self, preemption: Preemption, victim_uid: str) -> None:
        if victim_uid not in preemption.unanswered and victim_uid not in preemption.unseen:
            record = self._records.at(victim_uid)
            uid = preemption.preemptor.uid
            record.preemptors = tuple(other for other in record.preemptors if other != uid)
            self._records.settle(record)

    def _let_through(self, preemption: Preemption, now_s: float) -> None:
        uid = preemption.preemptor.uid
        if preemption.left is not None or preemption.unseen:
            return
        # The pods wait for the end of the victims, not for late answers.
        for waiting_uid in preemption.waiting:
            if self._state.held_for_evictions.get(waiting_uid) == uid:
                del self._state.held_for_evictions[waiting_uid]
        self._queue.let_through_each(preemption.waiting, now_s)
        if preemption.unanswered:
            return
        record = self._records.at(uid)
        record.preemption = None
        if record.shown is None:
            # The answer comes after the pod was bound, or is gone.
            placed = self._state.placed.get(uid)
            if placed is None:
                self._count_wasted(uid, GONE)
            else:
                self.on_placed(uid, self._state.nodes.name_of(placed.row))
        elif preemption.has_failed:
            # The next attempt chooses the same victim, which an admission policy may deny for ever. Without the gate
            # the attempt is reported as failed, and the pod waits for an event, as upstream.
            self._queue.back_off(uid, now_s)
        elif preemption.is_given_up:
            self._queue.activate_each((uid,), now_s)
        self._records.settle(record)

    def _note_deleted(self, victim: Pod, preemption: Preemption) -> None:
        self._state.groups.note_evicted(victim)
        record = self._records.at(preemption.preemptor.uid)
        record.room_on, record.evicted = preemption.node_name, (*record.evicted, victim.key)
        if self._is_end_unseen(victim.uid):
            self._records.at(victim.uid).is_deleted = True

    def _count_wasted(self, uid: str, cause: str) -> None:
        record = self._records.get(uid)
        if record is not None and record.evicted:
            self.wasted[cause] += len(record.evicted)
            record.evicted = ()
            self._records.settle(record)

    def _evict(self, preemption: Preemption, victims: list[Pod]) -> Iterator[Instruction]:
        """Yield the evictions; an eviction that is under way for another pod is waited for, and not begun again."""
        uid = preemption.preemptor.uid
        for victim in victims:
            preemption.unanswered[victim.uid] = victim
            if self._is_end_unseen(victim.uid):
                preemption.unseen.add(victim.uid)
            record = self._records.at(victim.uid)
            if uid not in record.preemptors:
                record.preemptors += (uid,)
            self._records.settle(record)
        for victim in victims:
            record = self._records.at(victim.uid)
            if not record.evicted_by:
                record.evicted_by = uid
                yield EvictVictim(preemption.preemptor, victim, preemption.number)


def preempted_event(victim: Pod, preemptor: Pod, node_name: str, where: str = "") -> EmitEvent:
    """Return a victim's event, reported by its preemptor's profile. `node_name`: empty if the room is for its group."""
    note = f"Preempted by pod {preemptor.uid} on node {node_name}{where}"
    if not node_name and preemptor.group is not None:
        key = preemptor.group.key
        by = named_to(victim.namespace, "pod group", key.text)
        note = f"Preempted by {by} on node {victim.node_name}{where}"
        if victim.group is not None and victim.group.key == key:
            note = f"Evicted from node {victim.node_name} with its pod group {key.text}, which is placed anew{where}"
    return EmitEvent(victim, "Normal", "Preempted", "Preempting", note, preemptor.scheduler_name)

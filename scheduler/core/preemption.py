"""
The evictions that make room for nominated pods.

    start --> all victims but the last, at once --all answered--> the last --answered--> over
                 |                                                   |
                 `--one failed, or is not wanted any more------------+--> over; the others are spared, the pod is tried

The pod is not tried meanwhile, until every victim that the API server deletes is seen to end: before, the pod would be
found to fit nowhere, and others evicted for it. Upstream waits for the last one alone. Nothing is kept for a restart:
the nomination and the victims that end are on the server, and a pod waits for victims that end on its node.

Source: framework/preemption/executor.go, prepareCandidateAsync (kubernetes 1.36).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from scheduler.model.instructions import EmitEvent, EvictVictim, Instruction
from scheduler.model.pods import Pod
from scheduler.model.stimuli import EvictionEnded, VictimFate
from scheduler.state.cluster import ClusterState

#: Causes of evictions in vain.
GONE: Final = "the pod is gone"
ELSEWHERE: Final = "the pod runs elsewhere"
AGAIN: Final = "the room was taken"


@dataclass(slots=True)
class _Preemption:
    """
    Attributes:
        victims: the UIDs of all victims.
        left: the victim whose eviction begins last; None once it has begun, or will not.
        unanswered: victims whose eviction began.
        unseen: the UIDs of the victims whose eviction began, was not refused, and that no watch has shown to end.
        is_given_up: whether an eviction failed or was not wanted.
    """

    preemptor: Pod
    node_name: str
    victims: frozenset[str]
    left: Pod | None
    unanswered: dict[str, Pod] = field(default_factory=dict)
    unseen: set[str] = field(default_factory=set)
    is_given_up: bool = False


class Preemptions:
    """
    Every pod that others are being evicted for.

    Args:
        state: the machine's; only its `preempting` is changed.
        pending: the unassigned pods that watches show, by UID.
    """

    def __init__(self, state: ClusterState, pending: Mapping[str, Pod]) -> None:
        self._state = state
        self._pending = pending
        self._running: dict[str, _Preemption] = {}
        #: By the UID of an unseen victim: the pods that it makes room for.
        self._preemptors_of: dict[str, set[str]] = {}
        #: By pod: the node where others were evicted for it, and these, as namespace/name.
        self._made_room: dict[str, tuple[str, tuple[str, ...]]] = {}
        #: Evictions that did not lead to the pod's bind on that node, by cause.
        self.in_vain: Counter[str] = Counter()

    def start(self, preemptor: Pod, node_name: str, victims: Iterable[Pod]) -> list[Instruction]:
        """Return the first evictions. None of the victims ends already, or is assumed only."""
        victims = list(victims)
        if (before := self._made_room.pop(preemptor.uid, None)) is not None:
            self.in_vain[AGAIN] += len(before[1])
        if not victims:
            return []
        first, last = victims[:-1], victims[-1]
        uids = frozenset(victim.uid for victim in victims)
        running = _Preemption(preemptor, node_name, uids, last)
        self._running[preemptor.uid] = running
        self._state.preempting.add(preemptor.uid)
        return self._evict(running, first) if first else self._evict_last(running, last)

    def on_ended(self, ended: EvictionEnded) -> tuple[list[Instruction], bool]:
        """Return what follows the end of an eviction, and whether the pod is to be tried at once."""
        uid = ended.preemptor_uid
        running = self._running.get(uid)
        victim = None if running is None else running.unanswered.pop(ended.victim_uid, None)
        if running is None or victim is None:
            return [], False
        told: list[Instruction] = []
        if ended.fate is VictimFate.DELETED:
            told.append(preempted_event(victim, running.preemptor, running.node_name))
            _, evicted = self._made_room.get(uid, ("", ()))
            self._made_room[uid] = running.node_name, (*evicted, victim.key)
        has_failed = ended.fate in (VictimFate.SPARED, VictimFate.FAILED)
        if has_failed or not self._is_shown_to_stay(victim.uid):
            self._drop_unseen(running, victim.uid)
        running.is_given_up |= has_failed
        if running.unanswered:
            return told, False
        if running.left is not None and not running.is_given_up and uid in self._pending:
            return [*told, *self._evict_last(running, running.left)], False
        running.left = None
        return told, self._is_to_be_tried(running)

    def evicted_for(self, uid: str, node_name: str) -> tuple[str, ...]:
        """Return the pods that were evicted from the node for the pod, as namespace/name."""
        on_node, evicted = self._made_room.get(uid, ("", ()))
        return evicted if on_node == node_name else ()

    def victims_for(self, uid: str) -> frozenset[str]:
        """Return the UIDs of the pods that are being evicted for the pod."""
        running = self._running.get(uid)
        return frozenset() if running is None else running.victims

    def on_leaving(self, uid: str) -> list[str]:
        """Note that a pod is gone or ends. Return the UIDs of the pods that are to be tried at once."""
        due = []
        for preemptor_uid in self._preemptors_of.pop(uid, ()):
            running = self._running[preemptor_uid]
            running.unseen.discard(uid)
            if self._is_to_be_tried(running):
                due.append(preemptor_uid)
        return due

    def on_gone(self, uid: str) -> None:
        """Note that a pending pod is gone."""
        self._state.preempting.discard(uid)
        self._count_in_vain(uid, GONE)

    def on_placed(self, uid: str, node_name: str) -> None:
        """Note that a pod is bound to the node."""
        made_room = self._made_room.get(uid)
        if made_room is None:
            return
        if made_room[0] == node_name:
            del self._made_room[uid]
        else:
            self._count_in_vain(uid, ELSEWHERE)

    def _count_in_vain(self, uid: str, cause: str) -> None:
        made_room = self._made_room.pop(uid, None)
        if made_room is not None:
            self.in_vain[cause] += len(made_room[1])

    def _evict_last(self, running: _Preemption, last: Pod) -> list[Instruction]:
        running.left = None
        return self._evict(running, [last])

    def _evict(self, running: _Preemption, victims: list[Pod]) -> list[Instruction]:
        for victim in victims:
            running.unanswered[victim.uid] = victim
            if self._is_shown_to_stay(victim.uid):
                running.unseen.add(victim.uid)
                self._preemptors_of.setdefault(victim.uid, set()).add(running.preemptor.uid)
        return [EvictVictim(running.preemptor, victim) for victim in victims]

    def _is_shown_to_stay(self, uid: str) -> bool:
        placed = self._state.placed.get(uid)
        return placed is not None and not placed.pod.terminating

    def _drop_unseen(self, running: _Preemption, uid: str) -> None:
        if uid in running.unseen:
            running.unseen.remove(uid)
            preemptors = self._preemptors_of[uid]
            preemptors.remove(running.preemptor.uid)
            if not preemptors:
                del self._preemptors_of[uid]

    def _is_to_be_tried(self, running: _Preemption) -> bool:
        """Let the pod be tried again once nothing is left to wait for. Return whether that is to happen at once."""
        uid = running.preemptor.uid
        if running.left is not None or running.unseen:
            return False
        self._state.preempting.discard(uid)
        if running.unanswered:
            return False
        del self._running[uid]
        if uid not in self._pending:
            self._count_in_vain(uid, GONE)
        return running.is_given_up


def preempted_event(victim: Pod, preemptor: Pod, node_name: str, where: str = "") -> EmitEvent:
    """Return the event of a victim, reported by the profile of the pod that it makes room for."""
    note = f"Preempted by pod {preemptor.uid} on node {node_name}{where}"
    return EmitEvent(victim, "Normal", "Preempted", "Preempting", note, preemptor.scheduler_name)

"""
The evictions that make room for nominated pods, one by one or as a group.

    start --> all victims but the last, at once --all answered--> the last --answered--> over
                 |                                                   |
                 `--one failed, or is not wanted any more------------+--> over; the others are spared, the pod is tried

The pod, or its group, is not tried meanwhile, until its last victim is seen to end. Nothing is kept for a restart: the
nomination and the victims that end are on the server, and a pod waits for victims that end on its node.

Source: framework/preemption/executor.go, prepareCandidateAsync (kubernetes 1.36).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
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
        preemptor: the pod, or a member of the group, in whose name pods are evicted.
        waiting: the UIDs of all pods that room is made for.
        node_name: where; empty for a group, whose members may go to several nodes.
        left: the victim whose eviction begins last; None once it has begun.
        unanswered: victims whose eviction began.
        is_given_up: whether an eviction failed or was not wanted.
    """

    preemptor: Pod
    waiting: frozenset[str]
    node_name: str
    left: Pod | None
    unanswered: dict[str, Pod]
    is_given_up: bool = False

    def deleted_event(self, victim: Pod) -> EmitEvent:
        return preempted_event(victim, self.preemptor, self.node_name)


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
        #: By the UID of a victim that is the last of its preemption: the pods that it makes room for.
        self._waiting_for_last: dict[str, frozenset[str]] = {}
        #: By pod: the node where others were evicted for it, and these, as namespace/name.
        self._made_room: dict[str, tuple[str, tuple[str, ...]]] = {}
        #: Evictions that did not lead to the pod's bind on that node, by cause.
        self.in_vain: Counter[str] = Counter()

    def start(
        self, preemptor: Pod, node_name: str, victims: Iterable[Pod], members: Collection[str] = ()
    ) -> list[Instruction]:
        """
        Return the first evictions. None of the victims ends already, or is assumed only.

        `members`: the UIDs of the preemptor's group, whose victims may be on several nodes; `node_name` is empty then.
        """
        victims = list(victims)
        if (before := self._made_room.pop(preemptor.uid, None)) is not None:
            self.in_vain[AGAIN] += len(before[1])
        if not victims:
            return []
        first, last = victims[:-1], victims[-1]
        waiting = frozenset(members) | {preemptor.uid}
        running = _Preemption(preemptor, waiting, node_name, last, {})
        self._running[preemptor.uid] = running
        self._state.preempting |= waiting
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
            told.append(running.deleted_event(victim))
            _, evicted = self._made_room.get(uid, ("", ()))
            self._made_room[uid] = running.node_name, (*evicted, victim.key)
        running.is_given_up |= ended.fate in (VictimFate.SPARED, VictimFate.FAILED)
        if running.unanswered:
            return told, False
        if running.left is not None and not running.is_given_up and uid in self._pending:
            return [*told, *self._evict_last(running, running.left)], False
        del self._running[uid]
        self._waiting_for_last.pop(ended.victim_uid, None)
        self._state.preempting -= running.waiting
        if uid not in self._pending:
            self._count_in_vain(uid, GONE)
        return told, running.is_given_up

    def evicted_for(self, uid: str, node_name: str) -> tuple[str, ...]:
        """Return the pods that were evicted from the node for the pod, as namespace/name."""
        on_node, evicted = self._made_room.get(uid, ("", ()))
        return evicted if on_node == node_name else ()

    def on_leaving(self, uid: str) -> None:
        """Let the pod be tried again whose last victim this is: it is gone, or ends."""
        self._state.preempting -= self._waiting_for_last.pop(uid, frozenset())

    def on_gone(self, uid: str) -> None:
        """Note that a pending pod is gone."""
        self._state.preempting.discard(uid)
        self._count_in_vain(uid, GONE)

    def on_placed(self, uid: str, node_name: str) -> None:
        """Note that a pod is bound to the node."""
        made_room = self._made_room.get(uid)
        if made_room is None:
            return
        if made_room[0] in (node_name, ""):
            del self._made_room[uid]
        else:
            self._count_in_vain(uid, ELSEWHERE)

    def _count_in_vain(self, uid: str, cause: str) -> None:
        made_room = self._made_room.pop(uid, None)
        if made_room is not None:
            self.in_vain[cause] += len(made_room[1])

    def _evict_last(self, running: _Preemption, last: Pod) -> list[Instruction]:
        running.left = None
        self._waiting_for_last[last.uid] = running.waiting
        return self._evict(running, [last])

    def _evict(self, running: _Preemption, victims: list[Pod]) -> list[Instruction]:
        running.unanswered.update((victim.uid, victim) for victim in victims)
        return [EvictVictim(running.preemptor, victim) for victim in victims]


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

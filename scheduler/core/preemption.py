"""
The evictions that make room for nominated pods.

    start --> all victims but the last, at once --all answered--> the last --answered--> over
                 |                                                   |
                 `--one failed, or is not wanted any more------------+--> over; the others are spared, the pod is tried

The pod is not tried meanwhile, until its last victim is seen to end. Nothing is kept for a restart: the nomination and
the victims that end are on the server, and a pod waits for victims that end on its node.

Without the gate SchedulerAsyncPreemption all victims go at once, and no pod is tried until all answers are there; then
the attempt is reported.

Source: framework/preemption/executor.go, prepareCandidateAsync and prepareCandidate (kubernetes 1.36).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
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
        left: the victim whose eviction begins last; None once it has begun.
        unanswered: victims whose eviction began, for this pod or for another one that needs their room too.
        is_given_up: whether an eviction failed or was not wanted.
    """

    preemptor: Pod
    node_name: str
    left: Pod | None
    unanswered: dict[str, Pod]
    is_given_up: bool = False


class Preemptions:
    """
    Every pod that others are being evicted for.

    Args:
        state: the machine's; only its `preempting` is changed.
        pending: the unassigned pods that watches show, by UID.
        is_async: the gate SchedulerAsyncPreemption.
    """

    def __init__(self, state: ClusterState, pending: Mapping[str, Pod], *, is_async: bool = True) -> None:
        self._state = state
        self._pending = pending
        self.is_async = is_async
        self._running: dict[str, _Preemption] = {}
        #: By the UID of a victim: the pod for which it is being evicted.
        self._in_flight: dict[str, str] = {}
        #: Victims that the API server deletes and that no watch shows to end yet.
        self._leaving: set[str] = set()
        #: By the UID of a victim that is the last of preemptions: the pods that it makes room for.
        self._waiting_for_last: dict[str, dict[str, None]] = {}
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
        last = victims[-1] if self.is_async else None
        earlier = self._running.get(preemptor.uid)
        # Its victim was seen to end before its eviction was answered, and others took the room: that is reported still.
        unanswered = {} if earlier is None else earlier.unanswered
        running = self._running[preemptor.uid] = _Preemption(preemptor, node_name, last, unanswered)
        if last is None:
            return list(self._evict(running, victims))
        first = victims[:-1]
        self._state.preempting.add(preemptor.uid)
        return list(self._evict(running, first) if first else self._evict_last(running, last))

    def is_leaving(self, victim: Pod) -> bool:
        """Return whether the pod ends already, or the API server deletes it."""
        return victim.terminating or victim.uid in self._leaving

    def on_ended(self, ended: EvictionEnded) -> tuple[list[Instruction], list[str]]:
        """Return what follows the end of an eviction, and the UIDs of the pods that are to be tried at once."""
        told: list[Instruction] = []
        to_try: list[str] = []
        self._in_flight.pop(ended.victim_uid, None)
        for running in [one for one in self._running.values() if ended.victim_uid in one.unanswered]:
            victim = running.unanswered.pop(ended.victim_uid)
            uid = running.preemptor.uid
            if ended.fate is VictimFate.DELETED and uid == ended.preemptor_uid:
                told.append(preempted_event(victim, running.preemptor, victim.node_name))
                self._note_deleted(victim, running)
            running.is_given_up |= ended.fate in (VictimFate.SPARED, VictimFate.FAILED)
            if running.unanswered:
                continue
            if running.left is not None and not running.is_given_up and uid in self._pending:
                told += self._evict_last(running, running.left)
                continue
            self._end(running, ended.victim_uid)
            if running.is_given_up:
                to_try.append(uid)
        return told, to_try

    @property
    def is_evicting(self) -> bool:
        """Whether an eviction has no answer."""
        return bool(self._in_flight)

    def is_running(self, uid: str) -> bool:
        """Return whether an eviction for the pod has no answer, or is still to begin."""
        return uid in self._running

    def evicted_for(self, uid: str, node_name: str) -> tuple[str, ...]:
        """Return the pods that were evicted from the node for the pod, as namespace/name."""
        on_node, evicted = self._made_room.get(uid, ("", ()))
        return evicted if on_node == node_name else ()

    def on_leaving(self, uid: str) -> Collection[str]:
        """Let the pods be tried again whose last victim this is: it is gone, or ends. Return their UIDs."""
        self._leaving.discard(uid)
        waiting = self._waiting_for_last.pop(uid, {})
        self._state.preempting.difference_update(waiting)
        return waiting

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

    def _end(self, running: _Preemption, last_uid: str) -> None:
        """Forget the preemption, whose last answer was about the victim of this UID."""
        uid = running.preemptor.uid
        del self._running[uid]
        waiting = self._waiting_for_last.get(last_uid, {})
        if uid not in waiting or last_uid not in self._leaving:
            # Else `on_leaving` follows.
            self._state.preempting.discard(uid)
            waiting.pop(uid, None)
        if uid not in self._pending:
            # The answer comes after the pod was bound, or is gone.
            placed = self._state.placed.get(uid)
            if placed is None:
                self._count_in_vain(uid, GONE)
            else:
                self.on_placed(uid, self._state.nodes.name_of(placed.row))

    def _note_deleted(self, victim: Pod, running: _Preemption) -> None:
        _, evicted = self._made_room.get(running.preemptor.uid, ("", ()))
        self._made_room[running.preemptor.uid] = running.node_name, (*evicted, victim.key)
        placed = self._state.placed.get(victim.uid)
        if placed is not None and not placed.pod.terminating:
            self._leaving.add(victim.uid)

    def _count_in_vain(self, uid: str, cause: str) -> None:
        made_room = self._made_room.pop(uid, None)
        if made_room is not None:
            self.in_vain[cause] += len(made_room[1])

    def _evict_last(self, running: _Preemption, last: Pod) -> Iterator[Instruction]:
        running.left = None
        self._waiting_for_last.setdefault(last.uid, {})[running.preemptor.uid] = None
        return self._evict(running, [last])

    def _evict(self, running: _Preemption, victims: list[Pod]) -> Iterator[Instruction]:
        """Yield the evictions; one that is under way for another pod is waited for, and not begun again."""
        running.unanswered.update((victim.uid, victim) for victim in victims)
        for victim in victims:
            if victim.uid not in self._in_flight:
                self._in_flight[victim.uid] = running.preemptor.uid
                yield EvictVictim(running.preemptor, victim)


def preempted_event(victim: Pod, preemptor: Pod, node_name: str, where: str = "") -> EmitEvent:
    """Return the event of a victim, reported by the profile of the pod that it makes room for."""
    note = f"Preempted by pod {preemptor.uid} on node {node_name}{where}"
    return EmitEvent(victim, "Normal", "Preempted", "Preempting", note, preemptor.scheduler_name)

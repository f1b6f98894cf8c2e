"""
The cycle of a group: its members leave the queue together, one search places them, and all are bound or put back.

    a member is popped --> its siblings are taken --> search --+--> enough have places: all of these are bound; the
                                                               |    others are given back, and tried as any pod
                                                               `--> all are put back, with the group's reason; pods
                                                                    may be evicted for them: `group_nominations`

A member whose bind fails later, or that is recreated, is placed by the same cycle: members on nodes count, and nothing
is kept for a restart between two binds. A cycle comes in pieces: the machine changes nothing else in between.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.engine.core.assumed_places import AssumedPlace, AssumedPlaces, SplitMix64
from scheduler.engine.core.decide import CycleError
from scheduler.engine.core.decision_annotation import DecisionAnnotations
from scheduler.engine.core.group_attempt import Outcome, SearchRequest
from scheduler.engine.core.group_lives import GroupLives
from scheduler.engine.core.group_members import has_minimum, n_needed, part_of, waiting_members
from scheduler.engine.core.group_messages import (
    NOT_RELAXED,
    unlike_members,
    unlike_schedulers,
    unplaced_message,
    waiting_for,
    waiting_for_part,
)
from scheduler.engine.core.group_preemption import NOWHERE, NextStep
from scheduler.engine.core.group_requests import search_request
from scheduler.engine.core.group_search import search
from scheduler.engine.core.lost_members import RELEASED
from scheduler.engine.core.nominator import Nominator
from scheduler.engine.core.outcomes import attempted, report_failure, report_group
from scheduler.engine.core.preemption import Preemptions
from scheduler.engine.core.reservations import Reservations
from scheduler.engine.framework.observer import Observer
from scheduler.engine.framework.profile import GANG_SCHEDULING, Profile
from scheduler.engine.model.instructions import GroupAttempted, Instruction
from scheduler.engine.model.pod_groups import LIMIT_MEMBERS, GroupKey
from scheduler.engine.model.pods import Pod
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.queueing.queued_pod import QueuedPod, SubQueue
from scheduler.engine.state.batches import Pieces, batches, finished
from scheduler.engine.state.cluster import ClusterState

#: Most members of one cycle, if the group does not need more at once. The others come in later cycles.
MOST_AT_ONCE: Final = 1_000

#: Most members of a group that is searched again before each of its victims is deleted.
_MOST_ASKED_AGAIN: Final = 100

_BY_GANG_SCHEDULING: Final = frozenset({GANG_SCHEDULING})


@dataclass(frozen=True, slots=True)
class GroupResult:
    """
    The reports about the members without places, and the members that have places.

    `preemptor`: the member in whose name the victims of `step` are evicted, None if there are none. `members`: the
    UIDs of all that wait for the evictions.
    """

    reports: list[Instruction]
    placed: Sequence[tuple[QueuedPod, AssumedPlace]] = ()
    preemptor: Pod | None = None
    step: NextStep = NOWHERE
    members: Collection[str] = ()


@dataclass(slots=True)
class _Cycle:
    """One cycle of a group. `entries`: by UID, the members that have left the queue for it."""

    key: GroupKey
    entries: dict[str, QueuedPod]
    profile: Profile
    now_s: float


class GroupCycles:
    """The cycles of all groups; the machine binds what is placed."""

    def __init__(
        self,
        state: ClusterState,
        queue: PodQueue,
        lives: GroupLives,
        nominator: Nominator,
        preemptions: Preemptions,
        reservations: Reservations,
        observer: Observer,
        annotations: DecisionAnnotations,
    ) -> None:
        self._state, self._groups, self._queue, self._lives = state, state.groups, queue, lives
        self._nominator, self._preemptions, self._reservations = nominator, preemptions, reservations
        self._observer, self._annotations = observer, annotations

    # The cycle.

    def run(self, popped: QueuedPod, key: GroupKey, profile: Profile, now_s: float) -> Pieces[GroupResult]:
        """Return what becomes of the group of a member that was popped; yield after each decision, or some members."""
        entries = {popped.uid: popped}
        n_most = max(MOST_AT_ONCE, min(LIMIT_MEMBERS, n_needed(self._groups, key)))
        for siblings in batches(self._siblings(key)):
            for pod in siblings:
                if len(entries) >= n_most:
                    break
                if pod.uid != popped.uid and (queued := self._queue.take(pod.uid)) is not None:
                    entries[pod.uid] = queued
            yield
        cycle = _Cycle(key, entries, profile, now_s)
        others = sorted({queued.profile for queued in entries.values()} - {popped.profile})
        if others:
            text = unlike_schedulers(popped.profile, others[0])
            return (yield from self._put_back_all(cycle, text, Outcome(error=CycleError(text))))
        cycle.entries = {uid: queued for uid, queued in entries.items() if not self._is_left_out(queued.pod)}
        return (yield from self._place(cycle)) if cycle.entries else GroupResult([])

    def _siblings(self, key: GroupKey) -> list[Pod]:
        """Return the pending members; of a large group first the members that wait for no event."""
        pods = list(self._groups.pending(key))
        if len(pods) > MOST_AT_ONCE:
            pods.sort(key=lambda pod: not self._is_active(pod.uid))
        return pods

    def _is_active(self, uid: str) -> bool:
        queued = self._queue.get(uid)
        return queued is not None and queued.sub_queue is SubQueue.ACTIVE

    def _is_left_out(self, pod: Pod) -> bool:
        return pod.terminating or self._state.is_assumed(pod.uid)

    def _place(self, cycle: _Cycle) -> Pieces[GroupResult]:
        key, entries, profile, now_s = cycle.key, cycle.entries, cycle.profile, cycle.now_s
        group, pods = self._groups.get(key), [queued.pod for queued in entries.values()]
        text = waiting_for(self._groups, key, pods)
        if group is not None and (unlike := unlike_members(group, [*pods, *self._groups.placed(key)])):
            return (yield from self._put_back_all(cycle, unlike, Outcome(error=CycleError(unlike))))
        waiting = Outcome(rejecting=dict.fromkeys(entries, _BY_GANG_SCHEDULING))
        held = self._state.held_for_evictions
        if text and any(pod.uid in held for pod in self._groups.pending(key)):
            # Pods are evicted for the others, which are tried with it then: as in PreEnqueue, nothing is reported.
            for queued in entries.values():
                self._queue.put_back(queued, _BY_GANG_SCHEDULING, now_s)
            return GroupResult([])
        if group is None or text:
            self._lives.note_incomplete(key, now_s)
            yield from self._nominate(cycle, NOWHERE)
            return (yield from self._put_back_all(cycle, text, waiting))
        request = search_request(self._state, key, group, pods, profile)
        if text := waiting_for_part(self._groups, key, pods, request):
            return (yield from self._put_back_all(cycle, text, waiting))
        first, n_most = next(iter(entries.values())), request.max_decisions(profile.max_search_decisions)
        assumed = self._new_places(f"{first.uid} {first.attempts}", profile, n_most)
        with self._state.without_nominations(entries.keys()):
            outcome = yield from search(request, assumed)
        if not outcome.is_placed:
            return (yield from self._on_unplaced(cycle, request, outcome, assumed))
        self._lives.note_placed(key)
        attempt = GroupAttempted(profile.scheduler_name, "scheduled", now_s, assumed.n_decisions)
        placed = [(entries.pop(place.pod.uid), place) for place in assumed.places]
        for few in batches(placed):
            for _, place in few:
                self._nominator.take_node(place.pod, place.node_name, now_s)
            yield
        # In `_on_unplaced` a member keeps its nomination: pods may have been evicted for it alone.
        yield from self._nominate(cycle, NOWHERE)
        yield from self._give_back(cycle)
        return GroupResult([attempt], placed)

    def _on_unplaced(
        self, cycle: _Cycle, request: SearchRequest, outcome: Outcome, assumed: AssumedPlaces
    ) -> Pieces[GroupResult]:
        """Put the members back; nominate them where room can be made for all."""
        key, entries, now_s = cycle.key, cycle.entries, cycle.now_s
        if (
            outcome.error is None
            and has_minimum(self._groups, key)
            and not (request.topology or request.parts)
        ):
            yield from self._give_back(cycle)
            name = cycle.profile.scheduler_name
            return GroupResult([GroupAttempted(name, "unschedulable", now_s, outcome.n_decisions)])
        if outcome.error is not None:
            yield from self._nominate(cycle, NOWHERE)
            text = f"pod group {key.text}: {outcome.error.message}"
            return (yield from self._put_back_all(cycle, text, outcome))
        n_running, n_most = self._groups.n_placed(key), cycle.profile.max_search_decisions
        text = unplaced_message(key, request.n_needed, n_running, outcome, n_most)
        nominated = self._state.nominated
        before = {uid: node_name for uid in entries if (node_name := nominated.node_of(uid))}
        with self._state.without_nominations(entries.keys()):
            step = yield from self._lives.nominations.next_step(key, request, before, assumed, now_s)
        if not step.victims and self._lives.lost.take_due(key):
            step = NextStep(victims=tuple(self._groups.placed(key)), note=RELEASED)
        yield from self._nominate(cycle, step)
        relaxed = NOT_RELAXED if any(pod.spec.fallbacks for pod in request.members) else ""
        text = " ".join([text, *filter(None, (step.note, relaxed))])
        return (yield from self._put_back_all(cycle, text, outcome, step))

    def _nominate(self, cycle: _Cycle, step: NextStep) -> Pieces[None]:
        """Nominate the members, which the queue does not hold, to these nodes alone."""
        for uid, queued in cycle.entries.items():
            self._nominator.nominate(queued.pod, step.nodes.get(uid, ""), cycle.now_s)
            yield

    def _give_back(self, cycle: _Cycle) -> Pieces[None]:
        """Let members without which the group is placed be tried on their own."""
        for queued in cycle.entries.values():
            self._queue.give_back(queued)
            yield

    def is_alone(self, queued: QueuedPod, key: GroupKey) -> bool:
        """
        Return whether a member that was popped is tried as a pod without a group: its group is placed without it.

        A member with a topology or a part keeps to it: it is placed, and preempts, as a group of one.
        """
        group = self._groups.get(key)
        if not queued.is_surplus or group is None or group.topology or part_of(queued.pod):
            return False
        return has_minimum(self._groups, key)

    def _new_places(self, identity: str, profile: Profile, max_decisions: int) -> AssumedPlaces:
        rng, shared = SplitMix64(identity), (self._observer, self._annotations)
        return AssumedPlaces(self._state, self._reservations, profile, rng, *shared, max_decisions)

    def needs_room(self, key: GroupKey, profile: Profile) -> bool:
        """Return whether the group still has no places; asked before a pod is deleted for it. Changes nothing."""
        if self._groups.is_released(key):
            return True
        members, group = waiting_members(self._state, key), self._groups.get(key)
        if group is None or n_needed(self._groups, key) > len(members):
            return False
        if len(members) > _MOST_ASKED_AGAIN:
            return True
        request = search_request(self._state, key, group, members, profile)
        if request.n_needed > len(request.members) or self._groups.disagreement(key):
            return False
        assumed = self._new_places(f"{key.text} needs room", profile, 2 * len(members)).fresh()
        with self._state.without_nominations({pod.uid for pod in members}):
            outcome = finished(search(request, assumed))
            finished(assumed.take_all_back())
        return not outcome.is_placed and outcome.error is None

    # Putting back.

    def _put_back_all(
        self, cycle: _Cycle, text: str, outcome: Outcome, step: NextStep = NOWHERE
    ) -> Pieces[GroupResult]:
        """
        Put every member back; one event and one attempt for all, and a condition for each that changes.

        A member that no plugin rejects, as after an error, is tried again after its backoff. A group whose levels no
        node has is rejected by GangScheduling.
        """
        entries, now_s = cycle.entries, cycle.now_s
        unschedulable = outcome.error is None or outcome.error.unschedulable
        reason: Final = "Unschedulable" if unschedulable else "SchedulerError"
        result: Final = "unschedulable" if unschedulable else "error"
        written, tried_preemption, victims = step.written, bool(step.victims), step.victims
        if all(map(self._preemptions.is_terminating, victims)):
            # All end already: the group waits, and pods nominated to the nodes keep their nomination.
            victims = ()
        name = cycle.profile.scheduler_name
        reports: list[Instruction] = [GroupAttempted(name, result, now_s, outcome.n_decisions)]
        reports += report_group(self._groups.get(cycle.key), reason, text)
        # An event that helps one member may help the group.
        of_group: frozenset[str] = frozenset().union(*outcome.rejecting.values())
        self._lives.turns.put_back_together(entries.values())
        for index, queued in enumerate(entries.values()):
            plugins = outcome.rejecting.get(queued.uid) or of_group
            is_rejected = outcome.error is None and (plugins or outcome.lacks_domain)
            self._queue.put_back(queued, plugins | _BY_GANG_SCHEDULING if is_rejected else frozenset(), now_s)
            nominated = None if written is None else written.get(queued.uid, "")
            reported = report_failure(queued.pod, result, text, nominated=nominated)
            if not index:
                reports.append(
                    attempted(
                        queued, result, now_s, text, tried_preemption=tried_preemption, victims=victims[::-1]
                    )
                )
            if not index or len(reported) > 1:
                reports += reported
            yield
        if not victims:
            return GroupResult(reports)
        pods = [queued.pod for queued in entries.values()]
        preemptor = next((pod for pod in pods if pod.uid in step.nodes), pods[0])
        return GroupResult(reports, (), preemptor, step, entries.keys())

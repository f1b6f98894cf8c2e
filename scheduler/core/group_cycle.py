"""
The cycle of a group: its members leave the queue together, one search places them, and all are bound or put back.

    a member is popped --> its siblings are taken --> search --+--> enough have places: all of these are bound; the
                                                               |    others are put back, each with its own reason
                                                               `--> all are put back, with the group's reason; pods
                                                                    may be evicted for them: `group_nominations`

A member whose bind fails later, or that is recreated, is placed by the same cycle: members on nodes count. So nothing
has to be kept for a restart between two binds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, replace
from typing import Final

from scheduler.core.decide import ScheduleResult
from scheduler.core.group_domains import rows_for
from scheduler.core.group_messages import NOT_RELAXED, unplaced_message, waiting_message
from scheduler.core.group_nominations import GroupNominations, Nominations
from scheduler.core.group_search import Outcome, SearchRequest, search
from scheduler.core.group_trial import GroupTrial
from scheduler.core.incomplete_groups import IncompleteGroups
from scheduler.core.lost_members import RELEASED, LostMembers
from scheduler.core.outcomes import attempted, report_failure, report_group
from scheduler.core.reservations import Reservations
from scheduler.framework.diagnosis import PostFiltered
from scheduler.framework.events import ASSIGNED_POD_DELETE
from scheduler.framework.interface import Rng
from scheduler.framework.observer import Observer, Unobserved
from scheduler.framework.pod_groups import GANG_SCHEDULING
from scheduler.framework.profile import Profile
from scheduler.framework.status import SUCCESS
from scheduler.model.instructions import GroupAttempted, Instruction
from scheduler.model.pod_groups import LIMIT_MEMBERS, GroupKey, PodGroup
from scheduler.model.pods import Pod
from scheduler.queueing.pod_queue import PodQueue
from scheduler.queueing.queued_pod import QueuedPod, SubQueue
from scheduler.state.arrays import Mask
from scheduler.state.cluster import ClusterState

#: Most members of one cycle, if the group does not need more at once: 0.2 ms each. The others come in later cycles.
MOST_AT_ONCE: Final = 1_000

#: Most members of a group that is searched again before each of its victims is deleted.
_MOST_ASKED_AGAIN: Final = 100

_NO_NOMINATIONS: Final = Nominations()
_BY_GANG_SCHEDULING: Final = frozenset({GANG_SCHEDULING})


@dataclass(frozen=True, slots=True)
class GroupResult:
    """
    The members that have places, the trial with these places, and the reports about the other members.

    `preemptor`: a member in whose name the victims of `nominations` are to be evicted; None if there are none.
    `members`: the UIDs of all that wait for this.
    """

    placed: Mapping[str, QueuedPod]
    trial: GroupTrial | None
    reports: list[Instruction]
    preemptor: Pod | None = None
    nominations: Nominations = _NO_NOMINATIONS
    members: Collection[str] = ()


class GroupCycles:
    """
    The cycles of all groups. Shares state, queue and reservations with the machine, which binds what is placed.

    `annotate`: returns the annotations of a pod that is bound by a decision.
    """

    def __init__(
        self,
        state: ClusterState,
        queue: PodQueue,
        reservations: Reservations,
        rng: Rng,
        observer: Observer,
        annotate: Callable[[ScheduleResult], Mapping[str, str]],
    ) -> None:
        self._state = state
        self._groups = state.groups
        self._queue = queue
        self._reservations = reservations
        self._rng = rng
        self._observer = observer
        self._annotate = annotate
        #: Groups with members of unequal priorities.
        self._unequal: set[GroupKey] = set()
        self._nominations = GroupNominations(state)
        self._incomplete = IncompleteGroups(state.groups, queue)
        self._lost = LostMembers(state.groups)

    # The cycle.

    def run(self, popped: QueuedPod, key: GroupKey, profile: Profile, now_s: float) -> GroupResult:
        """Return what becomes of the group of a member that was popped."""
        entries = {popped.uid: popped}
        group, n_running = self._groups.get(key), self._groups.n_placed(key)
        n_most = max(MOST_AT_ONCE, min(LIMIT_MEMBERS, self._n_needed(key, group, n_running)))
        for pod in self._siblings(key):
            if len(entries) >= n_most:
                break
            if pod.uid != popped.uid and (queued := self._queue.take(pod.uid)) is not None:
                entries[pod.uid] = queued
        others = sorted({one.profile for one in entries.values()} - {popped.profile})
        if others:
            text = (
                "all pods in a single pod group should have the same .spec.schedulerName set,"
                f' got: "{popped.profile}" and "{others[0]}"'
            )
            return self._put_back_all(entries, key, text, now_s, Outcome(), unschedulable=False)
        entries = {uid: one for uid, one in entries.items() if not self._is_left_out(one)}
        return self._place(entries, key, profile, now_s) if entries else GroupResult({}, None, [])

    def _siblings(self, key: GroupKey) -> list[Pod]:
        """Return the pending members; of a large group first the members that wait for no event."""
        pods = list(self._groups.pending(key))
        if len(pods) > MOST_AT_ONCE:
            pods.sort(key=lambda pod: not self._is_active(pod.uid))
        return pods

    def _is_active(self, uid: str) -> bool:
        queued = self._queue.get(uid)
        return queued is not None and queued.sub_queue is SubQueue.ACTIVE

    def _is_left_out(self, queued: QueuedPod) -> bool:
        return queued.pod.terminating or self._state.is_assumed(queued.uid)

    def _place(
        self, entries: dict[str, QueuedPod], key: GroupKey, profile: Profile, now_s: float
    ) -> GroupResult:
        group, n_running = self._groups.get(key), sum(1 for _ in self._groups.placed(key))
        problem = next((one.pod.group.problem for one in entries.values() if one.pod.group), "")
        if group is not None and group.min_count > LIMIT_MEMBERS:
            problem = f"pod group {key.text} needs {group.min_count} members, expected 1 to {LIMIT_MEMBERS}"
        n_needed = self._n_needed(key, group, n_running)
        if group is None or problem or n_needed > len(entries):
            self._incomplete.note(key, now_s)
            text = waiting_message(key, group, problem)
            return self._put_back_all(
                entries, key, text, now_s, Outcome(), unschedulable=True, is_incomplete=True
            )
        before = self._nominations.withdraw(one.pod for one in entries.values())
        members = [_unnominated(one.pod) for one in entries.values()]
        request = SearchRequest(members, n_needed, group.topology_key, self._rows(key, group))
        trial = self._trial(profile, len(entries) + profile.max_search_decisions)
        outcome = search(request, trial)
        if not outcome.is_placed:
            return self._on_unplaced(entries, key, request, outcome, before, profile, now_s)
        self._lost.note_decided(key)
        self._nominations.forget(key)
        attempt = GroupAttempted(profile.scheduler_name, "scheduled", now_s, trial.n_decisions)
        placed = {place.pod.uid: entries.pop(place.pod.uid) for place in trial.places}
        reports = [
            one for queued in entries.values() for one in self._put_back_surplus(queued, outcome, now_s)
        ]
        return GroupResult(placed, trial, [attempt, *reports])

    def _on_unplaced(
        self,
        entries: Mapping[str, QueuedPod],
        key: GroupKey,
        request: SearchRequest,
        outcome: Outcome,
        before: Mapping[str, str],
        profile: Profile,
        now_s: float,
    ) -> GroupResult:
        """Put the members back; nominate them where room can be made for all. `before`: their nominations."""
        if outcome.error is not None:
            text = f"pod group {key.text}: {outcome.error.message}"
            unschedulable = outcome.error.unschedulable
            return self._put_back_all(entries, key, text, now_s, outcome, unschedulable=unschedulable)
        n_running = sum(1 for _ in self._groups.placed(key))
        text = unplaced_message(key, request.n_needed, n_running, outcome, profile.max_search_decisions)
        n_decisions = len(entries) + profile.max_search_decisions
        nominations = self._nominations.next_step(
            key,
            request,
            before,
            profile,
            lambda: self._trial(profile, n_decisions, is_observed=False),
            now_s,
        )
        if not nominations.victims and self._lost.take_due(key, now_s):
            nominations = Nominations(victims=tuple(self._groups.placed(key)), note=RELEASED)
            self._groups.release(key)
        self._nominations.nominate((one.pod for one in entries.values()), nominations.nodes)
        notes = [nominations.note, NOT_RELAXED if any(pod.spec.fallbacks for pod in request.members) else ""]
        text = " ".join([text, *filter(None, notes)])
        return self._put_back_all(
            entries, key, text, now_s, outcome, unschedulable=True, nominations=nominations
        )

    def _trial(self, profile: Profile, max_decisions: int, *, is_observed: bool = True) -> GroupTrial:
        observer = self._observer if is_observed else Unobserved()
        return GroupTrial(
            self._state, self._reservations, profile, self._rng, observer, self._annotate, max_decisions
        )

    def needs_room(self, key: GroupKey, profile: Profile) -> bool:
        """
        Return whether the group has still no places; asked right before a pod is deleted for it.

        A large group is not searched again for each of its victims.
        """
        if self._groups.is_released(key):
            return True
        members = [
            _unnominated(pod)
            for pod in self._groups.pending(key)
            if not pod.gates and not pod.terminating and not self._state.is_assumed(pod.uid)
        ]
        group, n_running = self._groups.get(key), sum(1 for _ in self._groups.placed(key))
        n_needed = self._n_needed(key, group, n_running)
        if group is None or n_needed > len(members):
            return False
        if len(members) > _MOST_ASKED_AGAIN:
            return True
        before = self._nominations.withdraw(members)
        trial = self._trial(profile, 2 * len(members), is_observed=False)
        request = SearchRequest(members, n_needed, group.topology_key, self._rows(key, group))
        outcome = search(request, trial)
        trial.take_all_back()
        self._nominations.nominate((pod for pod in self._groups.pending(key) if pod.uid in before), before)
        return not outcome.is_placed and outcome.error is None

    def _n_needed(self, key: GroupKey, group: PodGroup | None, n_running: int) -> int:
        """Return how many members have to be placed; 1 if as many run as are needed, or the group was placed before."""
        if group is None:
            return 1
        missing = group.min_count - n_running
        if missing > 1 and self._groups.is_whole(key):
            # Members that finished or were replaced do not come back: as many as are there are placed, or none.
            missing = min(missing, max(1, self._groups.n_ready(key) - n_running))
        return max(1, missing)

    def _rows(self, key: GroupKey, group: PodGroup) -> Mask:
        return rows_for(self._state, key, group.topology_key)

    # Putting back.

    def _put_back_all(
        self,
        entries: Mapping[str, QueuedPod],
        key: GroupKey,
        text: str,
        now_s: float,
        outcome: Outcome,
        *,
        unschedulable: bool,
        is_incomplete: bool = False,
        nominations: Nominations = _NO_NOMINATIONS,
    ) -> GroupResult:
        """Put every member back; one event and one attempt for all, and a condition for each that changes."""
        reason: Final = "Unschedulable" if unschedulable else "SchedulerError"
        result: Final = "unschedulable" if unschedulable else "error"
        profile, shown = next(iter(entries.values())).profile, nominations.shown
        victims = nominations.victims
        preemption = PostFiltered(SUCCESS, None, victims, nominations.n_violations) if victims else None
        n_victims = 0 if all(pod.terminating for pod in victims) else len(victims)
        reports: list[Instruction] = [GroupAttempted(profile, result, now_s, outcome.n_decisions)]
        reports += report_group(self._groups.get(key), reason, text)
        of_group = _rejecting(outcome, is_incomplete=is_incomplete)
        for index, queued in enumerate(entries.values()):
            own = outcome.rejecting.get(queued.uid)
            rejecting = own | _BY_GANG_SCHEDULING if own else of_group
            self._queue.put_back(queued, frozenset() if outcome.error else rejecting, now_s)
            nominated = None if shown is None else shown.get(queued.uid, "")
            reported = report_failure(queued.pod, text, unschedulable=unschedulable, nominated=nominated)
            if not index:
                reports.append(
                    attempted(queued, result, now_s, message=text, preemption=preemption, n_victims=n_victims)
                )
                reports += reported
            elif len(reported) > 1:
                reports += reported
        if not victims:
            return GroupResult({}, None, reports)
        pods = [one.pod for one in entries.values()]
        preemptor = next((pod for pod in pods if pod.uid in nominations.nodes), pods[0])
        return GroupResult({}, None, reports, preemptor, nominations, entries.keys())

    def _put_back_surplus(self, queued: QueuedPod, outcome: Outcome, now_s: float) -> list[Instruction]:
        """Put back a member that has no place although its group is placed without it."""
        refusal = outcome.refusals.get(queued.uid)
        rejecting = outcome.rejecting.get(queued.uid, _BY_GANG_SCHEDULING)
        text = "the pod group is placed without this pod"
        if refusal is not None:
            text = f"{text}: {refusal.message()}"
        self._queue.put_back(queued, rejecting, now_s)
        return [
            attempted(queued, "unschedulable", now_s, message=text),
            *report_failure(queued.pod, text, unschedulable=True),
        ]

    # Members that come and go.

    def note(self, key: GroupKey, changed: Pod | None, now_s: float) -> None:
        """
        Note that this member came, changed or left, or the group's object did: let it be tried if it became complete.

        O(1) while the group is incomplete, O(members) when it becomes complete.
        """
        self._lost.note(key, changed, now_s)
        first = next(iter(self._groups.pending(key)), None)
        if first is None:
            self._incomplete.forget(key)
            self._unequal.discard(key)
            self._nominations.forget(key)
        elif not self._groups.is_complete(first):
            self._incomplete.note(key, now_s)
            self._nominations.forget(key)
            self._release(self._nominations.withdraw_all(key), now_s)
        else:
            self._incomplete.note_complete(key, now_s)
        if first is not None:
            self._rank(key, first, first if changed is None else changed)

    def _rank(self, key: GroupKey, first: Pod, changed: Pod) -> None:
        """Give members of unequal priorities the place in the queue of the lowest. O(members) for such a group."""
        if changed.priority != first.priority:
            self._unequal.add(key)
        if key in self._unequal:
            pods = self._groups.pending(key)
            lowest = min(pod.priority for pod in pods)
            for pod in pods:
                self._queue.rank(pod.uid, lowest)

    def on_bound(self, pod: Pod, binding: Container[str]) -> list[Instruction]:
        """
        Note the group as whole, and return conditions of its PodGroup, once as many members are bound as it needs.

        O(members) until then.
        """
        key = None if pod.group is None else self._groups.key_of(pod)
        group = None if key is None else self._groups.get(key)
        if key is None or group is None:
            return []
        if (
            self._groups.is_whole(key)
            and not self._lost.is_reported(key)
            and (group.was_scheduled or not group.api_version)
        ):
            return []
        n_bound = sum(one.uid not in binding for one in self._groups.placed(key))
        if n_bound < group.min_count:
            return []
        self._groups.note_whole(key)
        reports = report_group(group, "Scheduled") if group.api_version else []
        return [*reports, *self._lost.on_bound(key, group, n_bound)]

    # Time.

    def on_time(self, now_s: float) -> list[Instruction]:
        """End a hold, and return the conditions of members of groups that have been incomplete for a while."""
        self._release(self._nominations.end_hold(now_s), now_s)
        for key in self._lost.due(now_s):
            if (first := next(iter(self._groups.pending(key)), None)) is not None:
                self._queue.activate(first.uid, now_s)
        return [*self._incomplete.on_time(now_s), *self._lost.on_time(now_s)]

    def _release(self, members: list[Pod], now_s: float) -> None:
        """Wake the pods that wait for room which these members were nominated for."""
        highest = max((pod.priority for pod in members), default=0)
        for pod in members:
            self._queue.on_event(
                ASSIGNED_POD_DELETE, pod, None, now_s, only=lambda waiting: waiting.priority <= highest
            )

    def next_wake_s(self, now_s: float) -> float | None:
        """Return when the oldest group is to be reported or a hold ends, None if nothing waits for time."""
        due_s = (
            self._incomplete.next_wake_s(),
            self._nominations.next_wake_s(),
            self._lost.next_wake_s(now_s),
        )
        return min((one for one in due_s if one is not None), default=None)


def _rejecting(outcome: Outcome, *, is_incomplete: bool) -> frozenset[str]:
    """Return the plugins that rejected the group; none if it is to be tried again after its backoff."""
    # What helps one member may help the group.
    of_members: frozenset[str] = frozenset().union(*outcome.rejecting.values())
    return of_members | _BY_GANG_SCHEDULING if of_members or is_incomplete else of_members


def _unnominated(pod: Pod) -> Pod:
    """Return the pod as the search sees it: members look for places anew, wherever room was made for them."""
    return replace(pod, nominated_node_name="") if pod.nominated_node_name else pod

"""What becomes of groups between their cycles: members come, go and are bound, times end, groups are reported."""

from __future__ import annotations

from typing import Final

from scheduler.engine.core.group_messages import waiting_message, whole_group_problem
from scheduler.engine.core.group_nominations import GroupNominations
from scheduler.engine.core.group_turns import GroupTurns
from scheduler.engine.core.lost_members import LostMembers
from scheduler.engine.core.nominator import Nominator
from scheduler.engine.core.outcomes import report_failure, report_group
from scheduler.engine.core.pod_records import PodRecords
from scheduler.engine.framework.profile import GANG_SCHEDULING
from scheduler.engine.model.instructions import ClearNomination, Instruction
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import Pod
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.state.cluster import ClusterState

#: How long a group may be incomplete before its members are reported: a Job's members come within a second or two.
_REPORT_AFTER_S: Final = 5.0


class GroupLives:
    """All groups: when they have their turn, for which places they wait, and which have too few members."""

    def __init__(
        self,
        state: ClusterState,
        queue: PodQueue,
        records: PodRecords,
        nominator: Nominator,
        *,
        queues_as_one: bool,
    ) -> None:
        """`queues_as_one`: whether a group is one entry of the queue, as since kubernetes 1.37."""
        self._state, self._groups, self._queue = state, state.groups, queue
        self._records, self._nominator = records, nominator
        self.turns = GroupTurns(state.groups, queue, queues_as_one=queues_as_one)
        self.nominations = GroupNominations(state)
        self.lost = LostMembers(state.groups)
        #: Groups with too few members that are not reported yet, and since when; the first is the oldest.
        self._incomplete_since_s: dict[GroupKey, float] = {}
        self._reported_incomplete: set[GroupKey] = set()

    # Results of a group's cycle.

    def note_placed(self, key: GroupKey) -> None:
        """Note that a decision placed the group."""
        self.lost.note_decided(key)
        self.nominations.forget(key)

    # Members that come and go.

    def note_incomplete(self, key: GroupKey, now_s: float) -> None:
        """Note that the group has too few members."""
        self._incomplete_since_s.setdefault(key, now_s)

    def _end_incomplete(self, key: GroupKey) -> bool:
        """Note that the group is complete, or that no member is pending; return whether it had too few."""
        was_incomplete = key in self._incomplete_since_s or key in self._reported_incomplete
        self._incomplete_since_s.pop(key, None)
        self._reported_incomplete.discard(key)
        return was_incomplete

    def _waits_for_group(self, pod: Pod) -> bool:
        queued = self._queue.get(pod.uid)
        return queued is not None and queued.waits_only_for(GANG_SCHEDULING)

    def note(self, key: GroupKey, changed: Pod | None, now_s: float) -> None:
        """Note that this member or the group's object came, changed or left; wake a group that became complete."""
        self.lost.note(key, changed, now_s)
        first = next(iter(self._groups.pending(key)), None)
        if first is None:
            self._end_incomplete(key)
            self.turns.forget(key)
            self.nominations.forget(key)
        elif not self._groups.is_complete(first):
            self.note_incomplete(key, now_s)
            is_waiting = changed is not None and not changed.terminating and self._queue.get(changed.uid)
            # After a restart, nominated members come one by one.
            if not (is_waiting and self.nominations.is_shown(key)):
                self.nominations.forget(key)
                # `on_time` clears them in the API server too: an earlier process may have written them.
                if any(self._state.nominated.node_of(pod.uid) for pod in self._groups.pending(key)):
                    self.nominations.end_at(key, now_s)
                    self._withdraw(key, now_s)
        elif self._end_incomplete(key):
            waiting = (pod.uid for pod in self._groups.pending(key) if self._waits_for_group(pod))
            self._queue.wake_each(waiting, now_s)
        elif (
            changed is not None
            and not changed.node_name
            and (changed.terminating or self._records.shown(changed.uid) is None)
            and self._groups.n_placed(key)
        ):
            # A group with members on nodes needs no more members than exist: without this one the others may fit.
            self.turns.wake(key, now_s)
        if first is not None:
            self.turns.note(key, first, changed, now_s)

    def on_bound(self, pod: Pod) -> list[Instruction]:
        """Note the group as whole, and return conditions of its PodGroup, once enough members are bound."""
        key = None if pod.group is None else self._groups.key_of(pod)
        group = None if key is None else self._groups.get(key)
        if key is None or group is None:
            return []
        if (
            self._groups.is_whole(key, group.min_count)
            and not self.lost.is_reported(key)
            and (group.was_scheduled or not group.api_version)
        ):
            return []
        n_bound = sum(not self._records.is_unanswered(member.uid) for member in self._groups.placed(key))
        if n_bound < group.min_count:
            return []
        self._groups.note_whole(key, group.min_count)
        return [*report_group(group, "Scheduled"), *self.lost.on_whole(key, group)]

    # Time.

    def on_time(self, now_s: float) -> list[Instruction]:
        """End holds, and return what follows, and the conditions of groups that have been incomplete for a while."""
        cleared: list[Instruction] = []
        for held in self.nominations.end_holds(now_s):
            cleared += [
                ClearNomination(pod)
                for pod in self._groups.pending(held)
                # Of an assumed member it says where that waits for its bind.
                if pod.nominated_node_name and not self._state.is_assumed(pod.uid)
            ]
            self._withdraw(held, now_s)
        for key in self.lost.take_reached(now_s):
            self.turns.wake(key, now_s)
        return [*cleared, *self._report_incomplete(now_s), *self.lost.on_time(now_s)]

    def _report_incomplete(self, now_s: float) -> list[Instruction]:
        """Return, once a group, the conditions of groups that are incomplete for a while, and of their members."""
        instructions: list[Instruction] = []
        for key, since_s in list(self._incomplete_since_s.items()):
            if since_s + _REPORT_AFTER_S > now_s:
                break
            del self._incomplete_since_s[key]
            self._reported_incomplete.add(key)
            group, of_group = self._groups.get(key), whole_group_problem(self._groups, key)
            instructions += report_group(group, "Unschedulable", waiting_message(key, group, of_group))
            for pod in filter(self._waits_for_group, self._groups.pending(key)):
                problem = pod.group.problem if pod.group is not None else ""
                reported = report_failure(
                    pod, "unschedulable", waiting_message(key, group, problem or of_group)
                )
                instructions += reported if len(reported) > 1 else []
        return instructions

    def _withdraw(self, key: GroupKey, now_s: float) -> None:
        """End the nominations of the group's members, and wake the pods that these kept out."""
        for pod in list(self._groups.pending(key)) if self._state.nominated else ():
            self._nominator.withdraw(pod, now_s)

    def next_wake_s(self) -> float | None:
        """Return when `on_time` is next due, None if nothing waits for time."""
        oldest_s = next(iter(self._incomplete_since_s.values()), None)
        report_s = None if oldest_s is None else oldest_s + _REPORT_AFTER_S
        due_s = (report_s, self.nominations.next_wake_s(), self.lost.next_wake_s())
        return min((due for due in due_s if due is not None), default=None)

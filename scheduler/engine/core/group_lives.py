"""What becomes of groups between their cycles: members come, go and are bound, times end, groups are reported."""

from __future__ import annotations

from scheduler.engine.core.group_nominations import GroupNominations
from scheduler.engine.core.group_turns import GroupTurns
from scheduler.engine.core.incomplete_groups import IncompleteGroups
from scheduler.engine.core.lost_members import LostMembers
from scheduler.engine.core.nominator import Nominator
from scheduler.engine.core.outcomes import report_group
from scheduler.engine.core.pod_records import PodRecords
from scheduler.engine.model.instructions import ClearNomination, Instruction
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import Pod
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.state.cluster import ClusterState


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
        self.incomplete = IncompleteGroups(state.groups, queue)
        self._lost = LostMembers(state.groups)

    # Results of a group's cycle.

    def note_placed(self, key: GroupKey) -> None:
        """Note that a decision placed the group."""
        self._lost.note_decided(key)
        self.nominations.forget(key)

    def take_release(self, key: GroupKey) -> bool:
        """Return whether the group, which has no places, is to be released now. If so, note that it is."""
        is_due = self._lost.take_due(key)
        if is_due:
            self._groups.release(key)
        return is_due

    # Members that come and go.

    def note(self, key: GroupKey, changed: Pod | None, now_s: float) -> None:
        """
        Note that this member came, changed or left, or the group's object did: let it be tried if it became complete.

        O(1) while the group is incomplete, O(members) when it becomes complete.
        """
        self._lost.note(key, changed, now_s)
        first = next(iter(self._groups.pending(key)), None)
        if first is None:
            self.incomplete.forget(key)
            self.turns.forget(key)
            self.nominations.forget(key)
        elif not self._groups.is_complete(first):
            self.incomplete.note(key, now_s)
            is_waiting = changed is not None and not changed.terminating and self._queue.get(changed.uid)
            # After a restart, nominated members come one by one.
            if not (is_waiting and self.nominations.is_shown(key)):
                self.nominations.forget(key)
                # `on_time` clears them in the API server too: an earlier process may have written them.
                if any(self._state.nominated.node_of(pod.uid) for pod in self._groups.pending(key)):
                    self.nominations.end_at(key, now_s)
                    self._withdraw(key, now_s)
        else:
            self.incomplete.note_complete(key, now_s)
        if first is not None:
            self.turns.note(key, first, changed, now_s)

    def on_bound(self, pod: Pod) -> list[Instruction]:
        """
        Note the group as whole, and return conditions of its PodGroup, once as many members are bound as it needs.

        O(members) until then.
        """
        key = None if pod.group is None else self._groups.key_of(pod)
        group = None if key is None else self._groups.get(key)
        if key is None or group is None:
            return []
        if (
            self._groups.is_whole(key, group.min_count)
            and not self._lost.is_reported(key)
            and (group.was_scheduled or not group.api_version)
        ):
            return []
        n_bound = sum(not self._records.is_unanswered(member.uid) for member in self._groups.placed(key))
        if n_bound < group.min_count:
            return []
        self._groups.note_whole(key, group.min_count)
        return [*report_group(group, "Scheduled"), *self._lost.on_whole(key, group)]

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
        for key in self._lost.take_reached(now_s):
            if (first := next(iter(self._groups.pending(key)), None)) is not None:
                self._queue.activate(first.uid, now_s)
        return [*cleared, *self.incomplete.on_time(now_s), *self._lost.on_time(now_s)]

    def _withdraw(self, key: GroupKey, now_s: float) -> None:
        """End the nominations of the group's members, and wake the pods that these kept out."""
        for pod in list(self._groups.pending(key)) if self._state.nominated else ():
            self._nominator.withdraw(pod, now_s)

    def next_wake_s(self) -> float | None:
        """Return when `on_time` is next due, None if nothing waits for time."""
        due_s = (
            self.incomplete.next_wake_s(),
            self.nominations.next_wake_s(),
            self._lost.next_wake_s(),
        )
        return min((due for due in due_s if due is not None), default=None)

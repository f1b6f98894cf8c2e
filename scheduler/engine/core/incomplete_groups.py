"""Reports groups that have had too few members for a while, and lets the members be tried once there are enough."""

from __future__ import annotations

from typing import Final

from scheduler.engine.core.group_messages import waiting_message, whole_group_problem
from scheduler.engine.core.outcomes import report_failure, report_group
from scheduler.engine.framework.pod_groups import GANG_SCHEDULING
from scheduler.engine.model.instructions import Instruction
from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import Pod
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.state.pod_groups import PodGroups

#: How long a group may be incomplete before its members are reported: a Job's members come within a second or two.
_REPORT_AFTER_S: Final = 5.0


class IncompleteGroups:
    """The groups with members that are gated because there are too few."""

    def __init__(self, groups: PodGroups, queue: PodQueue) -> None:
        self._groups, self._queue = groups, queue
        #: Not reported yet, and incomplete since when; the first is the oldest.
        self._since_s: dict[GroupKey, float] = {}
        self._reported: set[GroupKey] = set()

    def note(self, key: GroupKey, now_s: float) -> None:
        """Note that the group has too few members."""
        self._since_s.setdefault(key, now_s)

    def note_complete(self, key: GroupKey, now_s: float) -> None:
        """Let the members be tried after their backoff if the group had too few. O(members) if so, else O(1)."""
        if key in self._since_s or key in self._reported:
            self.forget(key)
            waiting = (pod.uid for pod in self._groups.pending(key) if self._waits_for_group(pod))
            self._queue.wake_each(waiting, now_s)

    def forget(self, key: GroupKey) -> None:
        """Note that no member is pending, or that the group is complete."""
        self._since_s.pop(key, None)
        self._reported.discard(key)

    def next_wake_s(self) -> float | None:
        """Return when the oldest group is to be reported, None if none is."""
        oldest = next(iter(self._since_s.values()), None)
        return None if oldest is None else oldest + _REPORT_AFTER_S

    def on_time(self, now_s: float) -> list[Instruction]:
        """Return the conditions of groups that have been incomplete for a while, and of their members, once each."""
        instructions: list[Instruction] = []
        for key, since_s in list(self._since_s.items()):
            if since_s + _REPORT_AFTER_S > now_s:
                break
            del self._since_s[key]
            self._reported.add(key)
            group = self._groups.get(key)
            of_group = whole_group_problem(self._groups, key)
            instructions += report_group(group, "Unschedulable", waiting_message(key, group, of_group))
            for pod in self._groups.pending(key):
                if self._waits_for_group(pod):
                    problem = pod.group.problem if pod.group is not None else ""
                    text = waiting_message(key, group, problem or of_group)
                    reported = report_failure(pod, text, unschedulable=True)
                    instructions += reported if len(reported) > 1 else []
        return instructions

    def _waits_for_group(self, pod: Pod) -> bool:
        queued = self._queue.get(pod.uid)
        return queued is not None and queued.waits_only_for(GANG_SCHEDULING)

"""When a group has its turn in the queue: its priority there, its backoff, and what wakes it."""

from __future__ import annotations

from collections.abc import Collection

from scheduler.engine.model.pod_groups import GroupKey
from scheduler.engine.model.pods import Pod
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.queueing.queued_pod import QueuedPod, SubQueue, share_failures
from scheduler.engine.state.pod_groups import PodGroups


class GroupTurns:
    """Orders the pending members of groups in the queue."""

    def __init__(self, groups: PodGroups, queue: PodQueue, *, queues_as_one: bool) -> None:
        """`queues_as_one`: whether a group is one entry of the queue, as since kubernetes 1.37."""
        self._groups, self._queue, self._queues_as_one = groups, queue, queues_as_one
        #: Groups whose pending members have, or had, unequal priorities, or another one than the group.
        self._unequal: set[GroupKey] = set()
        #: By group with a priority of its own: the priority that all its pending members are ordered by.
        self._own: dict[GroupKey, int] = {}

    def forget(self, key: GroupKey) -> None:
        """Note that no member is pending."""
        self._unequal.discard(key)
        self._own.pop(key, None)

    def note(self, key: GroupKey, first: Pod, changed: Pod | None, now_s: float) -> None:
        """Note that this member came or changed, or the group's object did. `first`: the first pending member."""
        self._rank(key, first, changed)
        if self._queues_as_one and changed is not None and not self._has_minimum(key, changed):
            self._queue.join(changed.uid, first.uid, now_s)

    def put_back_together(self, members: Collection[QueuedPod]) -> None:
        """Let these members, which are put back next, back off as the group does."""
        if self._queues_as_one:
            share_failures(members)

    def wake(self, key: GroupKey, now_s: float) -> None:
        """Let the group be tried once its backoff is over: wake one member without gates; its cycle takes the rest."""
        for pod in self._groups.pending(key):
            queued = self._queue.get(pod.uid)
            if queued is not None and queued.sub_queue is not SubQueue.GATED:
                self._queue.wake_each((pod.uid,), now_s)
                return

    def _has_minimum(self, key: GroupKey, member: Pod) -> bool:
        """Return whether the group has its minimum on nodes. O(1), unlike `has_minimum`."""
        group = self._groups.known_by(member, key)
        return group is not None and self._groups.n_placed(key) >= group.min_count

    def _rank(self, key: GroupKey, first: Pod, changed: Pod | None) -> None:
        """
        Give members the group's place in the queue. Without one, members of unequal priorities get that of the lowest.

        O(members) only if the group's priority changes, or it has none and its members have unequal ones.
        """
        group = self._groups.known_by(first, key)
        own = group.priority if group is not None and group.api_version == "v1beta1" else None
        pods = self._groups.pending(key)
        if own is not None:
            ranked = pods if self._own.get(key) != own else [] if changed is None else [changed]
            self._own[key] = own
            for pod in ranked:
                self._queue.rank(pod.uid, own)
            return
        if self._own.pop(key, None) is not None or (changed or first).priority != first.priority:
            self._unequal.add(key)
        if key in self._unequal:
            lowest = min(pod.priority for pod in pods)
            for pod in pods:
                self._queue.rank(pod.uid, lowest)

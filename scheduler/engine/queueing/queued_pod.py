"""A pod in the queue and the history of its attempts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final

from scheduler.engine.model.pods import Pod

#: Backoffs end at whole seconds, so that pods whose backoffs end in the same second are popped by priority.
_WINDOW_S: Final = 1


class SubQueue(Enum):
    """The part of the queue that holds a pod, a `queue` label of `scheduler_pending_pods`; NONE if no part does."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    NONE = "none"

    @property
    def waits_for_event(self) -> bool:
        """Return whether pods leave this sub-queue by an event or an update."""
        return self is SubQueue.UNSCHEDULABLE or self is SubQueue.GATED


@dataclass(slots=True, eq=False)
class QueuedPod:
    """
    One pod and its history in this scheduler. Only the queue writes it, except for `pod` before a put-back.

    Attributes:
        pod: the newest copy that the queue was given.
        timestamp_s: when the pod was added, or last put back; the second sort key of active pods.
        arrival: grows with each addition and put-back; orders pods of equal timestamps.
        attempts: how often the pod was popped.
        initial_attempt_s: when it first became active; None while it has always been gated.
        unschedulable_count: attempts that ended in a rejection; never falls.
        error_count: attempts in a row that ended in an error.
        earlier_errors: `error_count` before the last attempt, if that ended in a rejection.
        unschedulable_plugins: plugins that rejected the last attempt, and the gating plugin; empty after an error.
        gating_plugin: the plugin whose PreEnqueue check the pod failed; '' if none.
        backoff_window_s: the whole second in which the backoff ends; -inf before the first failure.
        after_flush: the pod was last moved by the timeout of unschedulable pods.
        is_surplus: its group was placed without it, so that it is tried next as a pod without a group.
        group_priority: the priority of its group, by which it is ordered; None for its own.
        n_together: how many pods were put back with it as one entry of the queue.

    Source: pkg/scheduler/framework/types.go, QueuedPodInfo (kubernetes 1.36).
    """

    pod: Pod
    timestamp_s: float
    arrival: int
    sub_queue: SubQueue = SubQueue.NONE
    attempts: int = 0
    initial_attempt_s: float | None = None
    unschedulable_count: int = 0
    error_count: int = 0
    earlier_errors: int = 0
    unschedulable_plugins: frozenset[str] = frozenset()
    gating_plugin: str = ""
    backoff_window_s: float = float("-inf")
    after_flush: bool = False
    is_surplus: bool = False
    group_priority: int | None = None
    n_together: int = 1

    @property
    def uid(self) -> str:
        """Return the key of the pod: a pod recreated under the same name is another pod."""
        return self.pod.uid

    @property
    def priority(self) -> int:
        """Return the priority by which the pod is ordered."""
        return self.pod.priority if self.group_priority is None else self.group_priority

    @property
    def backoff_end_s(self) -> float:
        """Return the first moment after its backoff: the end of the window."""
        return self.backoff_window_s + _WINDOW_S

    def waits_only_for(self, plugin: str) -> bool:
        """Return whether the pod waits because of this plugin alone."""
        if not self.sub_queue.waits_for_event:
            return False
        return self.gating_plugin == plugin or (
            not self.gating_plugin and self.unschedulable_plugins == {plugin}
        )

    @property
    def profile(self) -> str:
        """Return the name of the profile that schedules the pod."""
        return self.pod.scheduler_name


def share_failures(members: Collection[QueuedPod]) -> None:
    """Let popped members of a group, which are put back next, back off as one entry of the queue. O(members)."""
    unschedulable_count = max(each.unschedulable_count for each in members)
    error_count = max(each.error_count for each in members)
    for each in members:
        each.unschedulable_count, each.error_count = unschedulable_count, error_count
        each.n_together = len(members)

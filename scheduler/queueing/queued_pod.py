"""A pod in the queue with what the queue remembers about its attempts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from scheduler.model.pods import Pod


class Place(Enum):
    """
    Where a pod is; a pod is in exactly one of these.

    The first four values are `queue` labels of `scheduler_pending_pods`; the others are counted nowhere.
    A pod is OUTSIDE before it is added, and after it is done or deleted.
    """

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in-flight"
    OUTSIDE = "outside"


@dataclass(slots=True, eq=False)
class QueuedPod:
    """
    One pod and its history with this scheduler. Only the queue changes it, except `pod` before a put-back.

    Attributes:
        pod: the newest copy the queue was given.
        timestamp_s: when the pod was added or last put back; the second sort key of active pods.
        arrival: grows with every add and put-back; decides between equal timestamps.
        place: the only part of the queue that holds the pod.
        attempts: times the pod was popped.
        initial_attempt_s: when it first became active; None while it has always been gated.
        unschedulable_count: attempts that ended in a rejection; never falls.
        error_count: attempts in a row that ended in an error.
        rejecting: plugins whose rejection an event may lift, the gating plugin included.
        pending: rejecting plugins whose QUEUE hint skips the backoff.
        gating_plugin: the plugin that keeps the pod out of the active pods; '' if none.
        backoff_until_s: retries start after this second; -inf before the first failure.
        after_flush: the last move was the timeout of unschedulable pods, not an event.

    Source: pkg/scheduler/framework/types.go, QueuedPodInfo (kubernetes 1.36).
    """

    pod: Pod
    timestamp_s: float
    arrival: int
    place: Place = Place.OUTSIDE
    attempts: int = 0
    initial_attempt_s: float | None = None
    unschedulable_count: int = 0
    error_count: int = 0
    rejecting: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    gating_plugin: str = ""
    backoff_until_s: float = float("-inf")
    after_flush: bool = False

    @property
    def uid(self) -> str:
        """The key of the pod: a pod recreated under the same name is another pod."""
        return self.pod.uid

    @property
    def profile(self) -> str:
        """The name of the profile that schedules the pod."""
        return self.pod.scheduler_name

    @property
    def rejecters(self) -> frozenset[str]:
        """All plugins that rejected the last attempt or gate the pod; empty after an error."""
        return self.rejecting | self.pending if self.pending else self.rejecting

"""The last failed attempts to place pending pods, as /debug/explain lists them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from scheduler.engine.model.instructions import Attempted
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.queueing.queued_pod import QueuedPod
from scheduler.engine.state.cluster import ClusterState
from scheduler.tools.explain.formats.explanation import Document, Explanation, JsonStruct

#: Limits on remembered failed attempts, one per pod, and on the characters of each message: 2 MB in all.
MAX_ATTEMPTS: Final = 1000
MAX_MESSAGE: Final = 2048


class LastAttempt(JsonStruct, frozen=True):
    """The last failed attempt; `message` is the event's, cut to `MAX_MESSAGE` characters."""

    result: str
    message: str
    seconds_ago: float


class PendingPod(JsonStruct, frozen=True):
    """A pod in the queue. `queue` has the values of the label in `scheduler_pending_pods`; `last` may be null."""

    namespace: str
    pod: str
    queue: str
    attempts: int
    last: LastAttempt | None


class PendingPods(Document, frozen=True, kw_only=True):
    """The pending pods with a remembered attempt, the latest attempt first, and the number of other pending pods."""

    kind: str = "PendingPods"
    pods: tuple[PendingPod, ...]
    n_more: int


class PendingExplanation(Document, frozen=True, kw_only=True):
    """The explanation of one pending pod."""

    kind: str = "PendingExplanation"
    pending: PendingPod
    explanation: Explanation


class FailedAttempts:
    """Remembers failed attempts of the pods in the queue. `now_s` is a monotonic clock."""

    def __init__(self, state: ClusterState, queue: PodQueue, *, now_s: Callable[[], float]) -> None:
        self._state, self._queue, self._now_s = state, queue, now_s
        #: Result, message and time in seconds of each failed attempt by the pod's UID, the latest last.
        self._failed_by_uid: OrderedDict[str, tuple[str, str, float]] = OrderedDict()

    def record(self, attempt: Attempted) -> None:
        """Remember the attempt if it failed, in place of the pod's previous one. O(1)."""
        uid = attempt.pod.uid
        self._failed_by_uid.pop(uid, None)
        if attempt.result == "scheduled":
            return
        message = attempt.message[:MAX_MESSAGE]
        self._failed_by_uid[uid] = (attempt.result, message, self._now_s())
        if len(self._failed_by_uid) > MAX_ATTEMPTS:
            self._failed_by_uid.popitem(last=False)

    def messages(self) -> Mapping[str, str]:
        """Return the remembered messages by UID."""
        return {uid: message for uid, (_, message, _) in self._failed_by_uid.items()}

    def pending(self) -> list[QueuedPod]:
        """Return the pods in the queue whose bind is not in flight."""
        return [queued for queued in self._queue.pods() if queued.uid not in self._state.placed]

    def find(self, namespace: str, name: str) -> QueuedPod | None:
        """Return the pending pod, None if there is none. O(pending pods)."""
        for queued in self.pending():
            if queued.pod.name == name and queued.pod.namespace == namespace:
                return queued
        return None

    def listed(self) -> PendingPods:
        """Return the remembered attempts of pods that are still pending. O(pending pods)."""
        pending = {queued.uid: queued for queued in self.pending()}
        pods = tuple(self.of(pending[uid]) for uid in reversed(self._failed_by_uid) if uid in pending)
        return PendingPods(pods=pods, n_more=len(pending) - len(pods))

    def of(self, queued: QueuedPod) -> PendingPod:
        """Return the pod with its last failed attempt."""
        last = None
        if queued.uid in self._failed_by_uid:
            result, message, at_s = self._failed_by_uid[queued.uid]
            last = LastAttempt(result, message, round(self._now_s() - at_s, 3))
        pod = queued.pod
        return PendingPod(pod.namespace, pod.name, queued.sub_queue.value, queued.attempts, last)

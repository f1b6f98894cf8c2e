"""
Pods that were popped and are not done, and the events they must not miss meanwhile.

A rejection is decided on a snapshot. An event that comes between the pop and the put-back would be lost for
the pod, so it is recorded and played back when the pod returns.

Source: pkg/scheduler/backend/queue/active_queue.go, inFlightPods and inFlightEvents (kubernetes 1.36).
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from scheduler.framework.events import ClusterEvent

#: A pod that waits long in its binding cycle holds back the pruning; past this many events the oldest go, and
#: pods that would have needed them are retried after backoff instead. At 500 events a second that is 20 s.
MAX_RECORDED_EVENTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """One event with the objects it was about."""

    event: ClusterEvent
    old: object
    new: object


class InFlightPods:
    """All popped pods that are not done, and every event recorded since the oldest of them was popped."""

    def __init__(self, *, max_events: int = MAX_RECORDED_EVENTS) -> None:
        self._max_events = max_events
        #: UID -> number of the first event after the pod's pop, in the order of popping: ascending.
        self._since_by_uid: dict[str, int] = {}
        self._events: deque[RecordedEvent] = deque()
        #: Number of events recorded and dropped again: the number of the first one in `_events`.
        self._n_dropped = 0

    def __len__(self) -> int:
        return len(self._since_by_uid)

    def __contains__(self, uid: str) -> bool:
        return uid in self._since_by_uid

    @property
    def n_events(self) -> int:
        """Events held."""
        return len(self._events)

    def add(self, uid: str) -> None:
        """Record events for the pod from now on."""
        self._since_by_uid[uid] = self._n_dropped + len(self._events)

    def record(self, event: ClusterEvent, old: object, new: object) -> None:
        """Keep the event for all pods in flight; nothing if there are none."""
        if not self._since_by_uid:
            return
        self._events.append(RecordedEvent(event, old, new))
        if len(self._events) > self._max_events:
            self._events.popleft()
            self._n_dropped += 1

    def events_since_pop(self, uid: str) -> Iterator[RecordedEvent] | None:
        """The events since the pod was popped, oldest first; None if some of them are no longer held."""
        since = self._since_by_uid.get(uid)
        if since is None or since < self._n_dropped:
            return None
        return islice(self._events, since - self._n_dropped, None)

    def remove(self, uid: str) -> None:
        """Stop recording for the pod and drop the events that only it could need. Cost: O(events dropped)."""
        if self._since_by_uid.pop(uid, None) is None:
            return
        needed_from = next(iter(self._since_by_uid.values()), self._n_dropped + len(self._events))
        while self._n_dropped < needed_from:
            self._events.popleft()
            self._n_dropped += 1

"""Pods sorted by a key."""

from collections.abc import Callable
from typing import TypeAlias

from sortedcontainers import SortedDict

from scheduler.engine.queueing.queued_pod import QueuedPod

#: Ends in the pod's arrival, so it is unique.
OrderKey: TypeAlias = tuple[float, ...]


class OrderedPods:
    """Pods in ascending order of a key. Remove a pod before changing a field that its key reads."""

    def __init__(self, order: Callable[[QueuedPod], OrderKey]) -> None:
        self._order = order
        self._pods_by_key: SortedDict = SortedDict()

    def __len__(self) -> int:
        return len(self._pods_by_key)

    def add(self, queued: QueuedPod) -> None:
        """Insert a pod that is not in here."""
        self._pods_by_key[self._order(queued)] = queued

    def remove(self, queued: QueuedPod) -> None:
        """Remove a pod that is in here."""
        del self._pods_by_key[self._order(queued)]

    def first_key(self) -> OrderKey | None:
        """Return the lowest key, None without pods."""
        if not self._pods_by_key:
            return None
        key: OrderKey = self._pods_by_key.peekitem(0)[0]
        return key

    def first(self) -> QueuedPod | None:
        """Return the pod with the lowest key; it stays in here."""
        if not self._pods_by_key:
            return None
        first: QueuedPod = self._pods_by_key.peekitem(0)[1]
        return first


def by_priority_and_age(queued: QueuedPod) -> OrderKey:
    """
    Return the key that sorts by higher priority, then older timestamp, then earlier arrival.

    Source: plugins/queuesort/priority_sort.go, Less (kubernetes 1.36), where equal timestamps are unordered.
    """
    return (-queued.priority, queued.timestamp_s, queued.arrival)


def by_end_of_backoff(queued: QueuedPod) -> OrderKey:
    """Return the key that sorts by the second in which the backoff ends, then as active pods."""
    return (queued.backoff_window_s, *by_priority_and_age(queued))


def last_attempt_order(queued: QueuedPod) -> OrderKey:
    """Return the key that sorts by the time of the last attempt, oldest first."""
    return (queued.timestamp_s, queued.arrival)

"""Pods kept sorted, with removal by UID."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from sortedcontainers import SortedDict

from scheduler.queueing.queued_pod import QueuedPod

#: Unique per pod: ends in the pod's arrival.
OrderKey: TypeAlias = tuple[float, ...]


class OrderedPods:
    """
    Pods in ascending order of a key that is taken when a pod is added.

    Whoever changes what the key is made of removes the pod before and adds it after. Cost: O(log n) each.
    """

    def __init__(self, order: Callable[[QueuedPod], OrderKey]) -> None:
        self._order = order
        #: Key -> pod; holds exactly the pods of `_key_by_uid`.
        self._pods: SortedDict = SortedDict()
        self._key_by_uid: dict[str, OrderKey] = {}

    def __len__(self) -> int:
        return len(self._key_by_uid)

    def __contains__(self, uid: str) -> bool:
        return uid in self._key_by_uid

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(self._pods.values())

    def add(self, queued: QueuedPod) -> None:
        """Put `queued` where its key belongs. The pod is not yet in here."""
        key = self._order(queued)
        self._key_by_uid[queued.uid] = key
        self._pods[key] = queued

    def remove(self, uid: str) -> None:
        """Take the pod out. It is in here."""
        del self._pods[self._key_by_uid.pop(uid)]

    def first(self) -> QueuedPod | None:
        """The pod with the lowest key, left in place."""
        if not self._pods:
            return None
        first: QueuedPod = self._pods.peekitem(0)[1]
        return first


def active_order(queued: QueuedPod) -> OrderKey:
    """
    Higher priority first, then older timestamp, then earlier arrival.

    Source: plugins/queuesort/priority_sort.go, Less (kubernetes 1.36), where equal timestamps are unordered.
    """
    return (-queued.pod.priority, queued.timestamp_s, queued.arrival)


def backoff_order(queued: QueuedPod) -> OrderKey:
    """Earlier end of backoff first, then earlier arrival."""
    return (queued.backoff_until_s, queued.arrival)


def early_pop_order(queued: QueuedPod) -> OrderKey:
    """Earlier end of backoff first; within the same second the order of active pods."""
    return (queued.backoff_until_s, *active_order(queued))


def waiting_order(queued: QueuedPod) -> OrderKey:
    """Longest since the last attempt first."""
    return (queued.timestamp_s, queued.arrival)

"""Active pods in the order in which they are tried: by priority, by their namespace's use of time, by age."""

from __future__ import annotations

from sortedcontainers import SortedDict

from scheduler.engine.queueing.ordered_pods import OrderedPods, OrderKey, by_priority_and_age
from scheduler.engine.queueing.queued_pod import QueuedPod


class ActivePods:
    """
    Pods by namespace, and the namespaces in the order of their first pods.

    Pods of namespaces that are `behind` come after all others of equal priority: a namespace moves in one step with
    thousands of pods. Remove a pod before changing a field that its order reads.
    """

    def __init__(self) -> None:
        self.behind: set[str] = set()
        self._pods_by_namespace: dict[str, OrderedPods] = {}
        #: Namespaces by the key of their first pod; after the priority comes whether they are behind.
        self._heads: SortedDict = SortedDict()
        self._n_pods = 0

    def __len__(self) -> int:
        return self._n_pods

    def add(self, queued: QueuedPod) -> None:
        """Insert a pod that is not in here."""
        namespace = queued.pod.namespace
        pods = self._pods_by_namespace.get(namespace)
        if pods is None:
            pods = self._pods_by_namespace[namespace] = OrderedPods(by_priority_and_age)
        known = pods.first_key()
        pods.add(queued)
        self._n_pods += 1
        self._order(namespace, known, pods.first_key())

    def remove(self, queued: QueuedPod) -> None:
        """Remove a pod that is in here."""
        namespace = queued.pod.namespace
        pods = self._pods_by_namespace[namespace]
        known = pods.first_key()
        pods.remove(queued)
        self._n_pods -= 1
        self._order(namespace, known, pods.first_key())
        if not pods:
            del self._pods_by_namespace[namespace]

    def first(self) -> QueuedPod | None:
        """Return the pod to try next; it stays in here."""
        return self._pods_by_namespace[self._heads.peekitem(0)[1]].first() if self._heads else None

    def turn(self, namespace: str, *, is_behind: bool) -> None:
        """Let the namespace's pods wait for others of equal priority from now on, or not. O(log namespaces)."""
        pods = self._pods_by_namespace.get(namespace)
        key = None if pods is None else pods.first_key()
        self._order(namespace, key, None)
        (self.behind.add if is_behind else self.behind.discard)(namespace)
        self._order(namespace, None, key)

    def _order(self, namespace: str, known: OrderKey | None, new: OrderKey | None) -> None:
        """Note that the key of the namespace's first pod is another one; None without pods."""
        if known == new:
            return
        is_behind = namespace in self.behind
        if known is not None:
            del self._heads[known[0], is_behind, *known[1:]]
        if new is not None:
            self._heads[new[0], is_behind, *new[1:]] = namespace

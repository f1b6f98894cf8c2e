"""Active pods in the order in which they are tried: by priority, by their namespace's use of time, by age."""

from __future__ import annotations

from sortedcontainers import SortedDict

from scheduler.queueing.ordered_pods import OrderedPods, OrderKey, by_priority_and_age
from scheduler.queueing.queued_pod import QueuedPod


class ActivePods:
    """
    Pods by namespace, and the namespaces in the order of their first pods.

    Pods of namespaces that are `behind` come after all others of equal priority. So thousands of pods change places in
    one step. Remove a pod before changing a field that its order reads. Cost of add and remove: O(log n).
    """

    def __init__(self) -> None:
        self.behind: set[str] = set()
        self._pods_by_namespace: dict[str, OrderedPods] = {}
        #: Namespaces by the key of their first pod: ahead, and behind.
        self._ahead: SortedDict = SortedDict()
        self._behind: SortedDict = SortedDict()
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
        heads = self._ahead or self._behind
        if not heads:
            return None
        key, namespace = heads.peekitem(0)
        if heads is self._ahead and self._behind:
            key_behind, namespace_behind = self._behind.peekitem(0)
            # The key begins with the negated priority.
            if key_behind[0] < key[0]:
                namespace = namespace_behind
        return self._pods_by_namespace[namespace].first()

    def deprioritize(self, namespace: str) -> None:
        """Let the namespace's pods wait for others of equal priority from now on. O(log namespaces)."""
        if namespace not in self.behind:
            self._turn(namespace)
            self.behind.add(namespace)

    def restore_priority(self, namespace: str) -> None:
        """Undo `deprioritize`."""
        if namespace in self.behind:
            self._turn(namespace)
            self.behind.remove(namespace)

    def _turn(self, namespace: str) -> None:
        pods = self._pods_by_namespace.get(namespace)
        if pods is not None:
            origin, to = self._ahead, self._behind
            if namespace in self.behind:
                origin, to = to, origin
            to[pods.first_key()] = origin.pop(pods.first_key())

    def _order(self, namespace: str, known: OrderKey | None, new: OrderKey | None) -> None:
        """Note that the key of the namespace's first pod is another one; None without pods."""
        if known == new:
            return
        heads = self._behind if namespace in self.behind else self._ahead
        if known is not None:
            del heads[known]
        if new is not None:
            heads[new] = namespace

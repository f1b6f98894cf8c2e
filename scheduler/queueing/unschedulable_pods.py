"""Pods that wait for an event, found by the plugins that such an event concerns."""

from collections.abc import Iterable

from scheduler.queueing.ordered_pods import OrderedPods, waiting_order
from scheduler.queueing.queued_pod import Place, QueuedPod


class UnschedulablePods:
    """
    Rejected and gated pods, indexed by the plugins whose registered events may move them.

    A rejected pod is listed under each plugin that rejected it, a gated one under its gating plugin alone: an
    event that no such plugin registered never touches the pod.
    """

    def __init__(self) -> None:
        #: The rejected pods by time of their last attempt, for the timeout. Gated pods are not in here.
        self.rejected = OrderedPods(waiting_order)
        self._n_gated = 0
        #: Plugin -> UID -> pod. A pod is in the entries of its `_movers` and no others; none is empty.
        self._by_plugin: dict[str, dict[str, QueuedPod]] = {}

    @property
    def n_gated(self) -> int:
        """Gated pods held."""
        return self._n_gated

    def add(self, queued: QueuedPod) -> None:
        """Hold `queued`, whose place is UNSCHEDULABLE or GATED; its plugins may not change meanwhile."""
        if queued.place is Place.GATED:
            self._n_gated += 1
        else:
            self.rejected.add(queued)
        for plugin in _movers(queued):
            self._by_plugin.setdefault(plugin, {})[queued.uid] = queued

    def remove(self, queued: QueuedPod) -> None:
        """Let go of `queued`, which is held."""
        if queued.place is Place.GATED:
            self._n_gated -= 1
        else:
            self.rejected.remove(queued.uid)
        for plugin in _movers(queued):
            pods = self._by_plugin[plugin]
            del pods[queued.uid]
            if not pods:
                del self._by_plugin[plugin]

    def concerned(self, plugins: Iterable[str]) -> list[QueuedPod]:
        """Each pod that one of `plugins` may move, once. Cost: O(pods returned), whatever else is held."""
        found: dict[str, QueuedPod] = {}
        for plugin in sorted(plugins):
            found.update(self._by_plugin.get(plugin, {}))
        return list(found.values())


def _movers(queued: QueuedPod) -> Iterable[str]:
    return (queued.gating_plugin,) if queued.place is Place.GATED else queued.rejecters

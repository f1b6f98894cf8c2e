"""Pods that wait for an event, found by the plugins that such an event concerns."""

from collections.abc import Collection, Iterable
from typing import TypeAlias

from scheduler.queueing.ordered_pods import OrderedPods, waiting_order
from scheduler.queueing.queued_pod import Place, QueuedPod

#: What a hint may read of a pod, and who is asked: pods that agree in all of it get the same answers.
_Kind: TypeAlias = tuple[object, ...]


class UnschedulablePods:
    """
    Rejected and gated pods, grouped by what requeue hints see of them, indexed by the plugins to ask.

    A group is listed under each plugin that rejected its pods, gated pods under their gating plugin alone: an event
    that no such plugin registered never touches the group, and a hint's answer for one of its pods holds for all.
    """

    def __init__(self) -> None:
        #: The rejected pods by time of their last attempt, for the timeout. Gated pods are not in here.
        self.rejected = OrderedPods(waiting_order)
        self._kind_by_uid: dict[str, _Kind] = {}
        #: Kind -> UID -> pod; no group is empty.
        self._groups: dict[_Kind, dict[str, QueuedPod]] = {}
        #: Plugin -> its groups as keys, in order of their making. A group is under its `_movers` and no others.
        self._kinds_by_plugin: dict[str, dict[_Kind, None]] = {}

    @property
    def n_gated(self) -> int:
        """Gated pods held."""
        return len(self._kind_by_uid) - len(self.rejected)

    def add(self, queued: QueuedPod) -> None:
        """Hold `queued`, whose place is UNSCHEDULABLE or GATED; its plugins and pod may not change meanwhile."""
        if queued.place is Place.UNSCHEDULABLE:
            self.rejected.add(queued)
        kind = _kind(queued)
        self._kind_by_uid[queued.uid] = kind
        group = self._groups.get(kind)
        if group is None:
            group = self._groups[kind] = {}
            for plugin in _movers(queued):
                self._kinds_by_plugin.setdefault(plugin, {})[kind] = None
        group[queued.uid] = queued

    def remove(self, queued: QueuedPod) -> None:
        """Let go of `queued`, which is held."""
        if queued.place is Place.UNSCHEDULABLE:
            self.rejected.remove(queued.uid)
        kind = self._kind_by_uid.pop(queued.uid)
        group = self._groups[kind]
        del group[queued.uid]
        if group:
            return
        del self._groups[kind]
        for plugin in _movers(queued):
            kinds = self._kinds_by_plugin[plugin]
            del kinds[kind]
            if not kinds:
                del self._kinds_by_plugin[plugin]

    def concerned(self, plugins: Iterable[str], changed_uid: str | None) -> list[Collection[QueuedPod]]:
        """
        Each group that one of `plugins` may move, once; a live view, so copied before any of its pods moves.

        Hints tell a pod's own change from that of another, so the pod `changed_uid` is a group of its own.
        Cost: O(groups returned), whatever their size and whatever else is held; the group of `changed_uid` is copied.
        """
        kinds: dict[_Kind, None] = {}
        for plugin in sorted(plugins):
            kinds.update(self._kinds_by_plugin.get(plugin, {}))
        groups: list[Collection[QueuedPod]] = []
        for kind in kinds:
            group = self._groups[kind]
            if changed_uid in group and len(group) > 1:
                groups.append([group[changed_uid]])
                groups.append([queued for uid, queued in group.items() if uid != changed_uid])
            else:
                groups.append(group.values())
        return groups


def _kind(queued: QueuedPod) -> _Kind:
    pod = queued.pod
    return (
        queued.profile,
        queued.gating_plugin,
        queued.rejecting,
        queued.pending,
        pod.spec,  # one object for all pods of an equal spec
        pod.owner,
        frozenset(pod.labels.items()),
    )


def _movers(queued: QueuedPod) -> Iterable[str]:
    return (queued.gating_plugin,) if queued.gating_plugin else queued.rejecters

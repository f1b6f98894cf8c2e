"""Pods that wait for an event, found by the plugins that such an event concerns."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from scheduler.queueing.ordered_pods import OrderedPods, waiting_order
from scheduler.queueing.queued_pod import Place, QueuedPod

#: What a hint always may read of a pod, and who is asked: pods that agree in it get the same answers, where no hint
#: reads labels or owner.
_Kind: TypeAlias = tuple[object, ...]
#: Labels and owner.
_Identity: TypeAlias = tuple[object, ...]
#: The pods of a kind: identity -> UID -> pod; nothing is empty.
Family: TypeAlias = Mapping[_Identity, Mapping[str, QueuedPod]]


class UnschedulablePods:
    """
    Rejected and gated pods, grouped by what requeue hints see of them, indexed by the plugins to ask.

    A kind is listed under each plugin that rejected its pods, gated pods under their gating plugin alone: an event that
    no such plugin registered never touches it, and a hint's answer for one of its pods holds for all, or at least for
    all of the same identity.
    """

    def __init__(self) -> None:
        #: The rejected pods by time of their last attempt, for the timeout. Gated pods are not in here.
        self.rejected = OrderedPods(waiting_order)
        self._held: dict[str, tuple[_Kind, _Identity]] = {}
        self._families: dict[_Kind, dict[_Identity, dict[str, QueuedPod]]] = {}
        #: Plugin -> its kinds as keys, in order of their making. A kind is under its `_movers` and no others.
        self._kinds_by_plugin: dict[str, dict[_Kind, None]] = {}

    @property
    def n_gated(self) -> int:
        """Gated pods held."""
        return len(self._held) - len(self.rejected)

    def add(self, queued: QueuedPod) -> None:
        """Hold `queued`, whose place is UNSCHEDULABLE or GATED; its plugins and pod may not change meanwhile."""
        if queued.place is Place.UNSCHEDULABLE:
            self.rejected.add(queued)
        kind, identity = _kind(queued), _identity(queued)
        self._held[queued.uid] = (kind, identity)
        family = self._families.get(kind)
        if family is None:
            family = self._families[kind] = {}
            for plugin in _movers(queued):
                self._kinds_by_plugin.setdefault(plugin, {})[kind] = None
        family.setdefault(identity, {})[queued.uid] = queued

    def remove(self, queued: QueuedPod) -> None:
        """Let go of `queued`, which is held."""
        if queued.place is Place.UNSCHEDULABLE:
            self.rejected.remove(queued.uid)
        kind, identity = self._held.pop(queued.uid)
        family = self._families[kind]
        del family[identity][queued.uid]
        if not family[identity]:
            del family[identity]
        if family:
            return
        del self._families[kind]
        for plugin in _movers(queued):
            kinds = self._kinds_by_plugin[plugin]
            del kinds[kind]
            if not kinds:
                del self._kinds_by_plugin[plugin]

    def family_of(self, queued: QueuedPod) -> Family | None:
        """The pods of its kind, itself included, where it is held; a live view."""
        held = self._held.get(queued.uid)
        return None if held is None else self._families[held[0]]

    def concerned(self, plugins: Iterable[str]) -> list[Family]:
        """
        The pods of each kind that one of `plugins` may move; live views.

        Cost: O(kinds returned), however many pods they have and whatever else is held.
        """
        kinds: dict[_Kind, None] = {}
        for plugin in sorted(plugins):
            kinds.update(self._kinds_by_plugin.get(plugin, {}))
        return [self._families[kind] for kind in kinds]


def _kind(queued: QueuedPod) -> _Kind:
    # One spec object for all pods of an equal spec.
    return (queued.profile, queued.gating_plugin, queued.rejecting, queued.pending, queued.pod.spec)


def _identity(queued: QueuedPod) -> _Identity:
    return (queued.pod.owner, frozenset(queued.pod.labels.items()))


def _movers(queued: QueuedPod) -> Iterable[str]:
    return (queued.gating_plugin,) if queued.gating_plugin else queued.rejecters

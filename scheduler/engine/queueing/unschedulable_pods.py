"""Pods that wait for an event, indexed by the plugins whose events may help them."""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from scheduler.engine.framework.events import Need, needs_of, shared_needs
from scheduler.engine.queueing.ordered_pods import OrderedPods, last_attempt_order
from scheduler.engine.queueing.queued_pod import QueuedPod, SubQueue

#: All that a hint reads of a pod, except labels and owner, and the plugins whose hints are asked.
_Signature: TypeAlias = tuple[object, ...]
_LabelsAndOwner: TypeAlias = tuple[object, ...]
#: Waiting pods of one signature: labels and owner -> UID -> pod. Hints give the same answer for all of them, or for
#: all of the same labels and owner if a hint reads these. No mapping in it is empty.
EquivalenceClass: TypeAlias = Mapping[_LabelsAndOwner, Mapping[str, QueuedPod]]
_MutableClass: TypeAlias = dict[_LabelsAndOwner, dict[str, QueuedPod]]
#: Plugin -> the needs that an event may meet: it may help a pod with one of them; None: any pod.
InterestedPlugins: TypeAlias = Mapping[str, frozenset[Need] | None]
#: A plugin, in a tuple of its own, or a need.
_IndexKey: TypeAlias = tuple[str] | Need


class UnschedulablePods:
    """
    Rejected and gated pods in equivalence classes.

    A class of rejected pods is indexed by each plugin that rejected them, a class of gated pods by the gating plugin
    alone: events that none of these plugins registered never touch it. A class is indexed by the needs of its pods too.
    """

    def __init__(self) -> None:
        #: The rejected pods, for the timeout.
        self.rejected = OrderedPods(last_attempt_order)
        self._keys_by_uid: dict[str, tuple[_Signature, _LabelsAndOwner]] = {}
        self._classes: dict[_Signature, _MutableClass] = {}
        self._index: dict[_IndexKey, dict[_Signature, _MutableClass]] = {}

    @property
    def n_gated(self) -> int:
        """Return the number of gated pods."""
        return len(self._keys_by_uid) - len(self.rejected)

    def add(self, queued: QueuedPod) -> None:
        """Insert a pod that is not in here."""
        if queued.sub_queue is SubQueue.UNSCHEDULABLE:
            self.rejected.add(queued)
        signature, labels_and_owner = keys = _keys(queued)
        self._keys_by_uid[queued.uid] = keys
        equivalents = self._classes.get(signature)
        if equivalents is None:
            equivalents = self._classes[signature] = {}
            for key in _index_keys(queued):
                self._index.setdefault(key, {})[signature] = equivalents
        equivalents.setdefault(labels_and_owner, {})[queued.uid] = queued

    def remove(self, queued: QueuedPod) -> None:
        """Remove a pod that is in here."""
        if queued.sub_queue is SubQueue.UNSCHEDULABLE:
            self.rejected.remove(queued)
        signature, labels_and_owner = self._keys_by_uid.pop(queued.uid)
        equivalents = self._classes[signature]
        del equivalents[labels_and_owner][queued.uid]
        if not equivalents[labels_and_owner]:
            del equivalents[labels_and_owner]
        if equivalents:
            return
        del self._classes[signature]
        for key in _index_keys(queued):
            del self._index[key][signature]
            if not self._index[key]:
                del self._index[key]

    def classes(self, plugins: InterestedPlugins) -> list[EquivalenceClass]:
        """Return the equivalence classes that an event registered by `plugins` may help, as live views."""
        classes: dict[_Signature, EquivalenceClass] = {}
        for plugin in sorted(plugins):
            needs, of_plugin = plugins[plugin], self._index.get((plugin,), {})
            if needs is None or not of_plugin:
                classes.update(of_plugin)
                continue
            for need in sorted(needs, key=str):
                for shared in shared_needs(need):
                    having = self._index.get(shared, {})
                    classes.update((key, having[key]) for key in having if key in of_plugin)
        return list(classes.values())

    def contains(self, equivalents: EquivalenceClass, queued: QueuedPod) -> bool:
        """Return whether `queued` is in here, and in this class."""
        keys = self._keys_by_uid.get(queued.uid)
        return keys is not None and self._classes[keys[0]] is equivalents


def _keys(queued: QueuedPod) -> tuple[_Signature, _LabelsAndOwner]:
    pod = queued.pod
    # Equal specs are one object, so comparing them is cheap.
    signature = (
        queued.profile,
        queued.gating_plugin,
        queued.unschedulable_plugins,
        pod.spec,
        pod.generated_claims,
    )
    return signature, (pod.owner, frozenset(pod.labels.items()))


def _index_keys(queued: QueuedPod) -> Iterator[_IndexKey]:
    for plugin in (queued.gating_plugin,) if queued.gating_plugin else queued.unschedulable_plugins:
        yield (plugin,)
    yield from needs_of(queued.pod)

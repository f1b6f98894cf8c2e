"""
Which pods an event may help, and how soon they may be tried again.

Source: isEventOfInterest and isPodWorthRequeuing in pkg/scheduler/backend/queue/scheduling_queue.go
(kubernetes 1.36). Different here: a hint has no error to return; one that cannot tell says QUEUE.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import chain
from typing import TypeAlias

from scheduler.framework.events import ClusterEvent, Hint, Registration, with_node_taint_updates
from scheduler.model.pods import Pod
from scheduler.queueing.in_flight import RecordedEvent
from scheduler.queueing.queued_pod import QueuedPod
from scheduler.queueing.unschedulable_pods import Family

#: Profile name -> plugin name -> the events that plugin registers.
Registrations: TypeAlias = Mapping[str, Mapping[str, Sequence[Registration]]]


class Requeue(Enum):
    """What an event means for a pod that was rejected."""

    SKIP = "stay"
    AFTER_BACKOFF = "after backoff"
    IMMEDIATELY = "immediately"


class RequeueRules:
    """
    The registered events of all profiles, looked up by incoming event.

    Answers per event are kept: there are as many as resources times actions.
    """

    def __init__(self, registrations: Registrations) -> None:
        self._registrations = {
            profile: {plugin: with_node_taint_updates(events) for plugin, events in by_plugin.items()}
            for profile, by_plugin in registrations.items()
        }
        #: Event -> profile -> plugin -> its matching registrations.
        self._matching: dict[ClusterEvent, dict[str, dict[str, tuple[Registration, ...]]]] = {}
        self._plugins: dict[ClusterEvent, frozenset[str]] = {}

    def interested_plugins(self, event: ClusterEvent) -> frozenset[str]:
        """Plugins that registered `event` in any profile. Empty: the event can be dropped."""
        plugins = self._plugins.get(event)
        if plugins is None:
            plugins = frozenset(
                plugin for matching in self._matching_of(event).values() for plugin in matching
            )
            self._plugins[event] = plugins
        return plugins

    def decide(self, queued: QueuedPod, event: ClusterEvent, old: object, new: object) -> Requeue:
        """
        What `event`, a change from `old` to `new`, means for `queued`.

        A wildcard that carries a pod is meant for that pod alone. Cost: the hints of the plugins that
        rejected the pod and registered the event.
        """
        if not queued.rejecters:
            return Requeue.AFTER_BACKOFF
        if event.is_wildcard:
            meant = new is None or (isinstance(new, Pod) and new.uid == queued.uid)
            return Requeue.AFTER_BACKOFF if meant else Requeue.SKIP
        matching = self._matching_of(event).get(queued.profile, {})
        # A pending plugin's word outranks the others', so it is heard first and can end the question.
        if any(_says_queue(matching.get(plugin, ()), queued.pod, old, new) for plugin in queued.pending):
            return Requeue.IMMEDIATELY
        if any(_says_queue(matching.get(plugin, ()), queued.pod, old, new) for plugin in queued.rejecting):
            return Requeue.AFTER_BACKOFF
        return Requeue.SKIP

    def replay(self, queued: QueuedPod, missed: Iterable[RecordedEvent] | None) -> Requeue:
        """What the events missed in flight mean together for `queued`; unknown ones (None) may have helped."""
        if missed is None or not queued.rejecters:
            return Requeue.AFTER_BACKOFF
        strongest = Requeue.SKIP
        for recorded in missed:
            decision = self.decide(queued, recorded.event, recorded.old, recorded.new)
            if decision is Requeue.IMMEDIATELY:
                return decision
            if decision is Requeue.AFTER_BACKOFF:
                strongest = decision
                if not queued.pending:
                    break
        return strongest

    def questions(
        self, family: Family, own: QueuedPod | None, event: ClusterEvent, old: object, new: object
    ) -> Iterator[tuple[QueuedPod, Iterable[QueuedPod]]]:
        """
        Pods of a kind to `decide` about, each with those that the answer is for, which may move before the next one.

        Hints tell a pod's own change from that of another: `own`, the changed pod if it is of this kind, is asked about
        apart.
        """
        if own is not None:
            yield own, (own,)
        others = (queued for group in family.values() for queued in group.values() if queued is not own)
        some = next(others, None)
        if some is None:
            return
        if not self._reads_labels(some, event, old, new):
            yield some, chain((some,), others)
            return
        for group in list(family.values()):
            alike = [queued for queued in group.values() if queued is not own]
            if alike:
                yield alike[0], alike

    def _reads_labels(self, queued: QueuedPod, event: ClusterEvent, old: object, new: object) -> bool:
        """Whether pods that differ from it in labels or owner alone may get another answer from `decide`."""
        matching = self._matching_of(event).get(queued.profile, {})
        return any(
            registration.hint is not None and registration.reads_labels(queued.pod, old, new)
            for plugin in queued.rejecters
            for registration in matching.get(plugin, ())
        )

    def _matching_of(self, event: ClusterEvent) -> dict[str, dict[str, tuple[Registration, ...]]]:
        found = self._matching.get(event)
        if found is None:
            found = {
                profile: {
                    plugin: matching
                    for plugin, registrations in by_plugin.items()
                    if (matching := tuple(r for r in registrations if r.matches(event)))
                }
                for profile, by_plugin in self._registrations.items()
            }
            self._matching[event] = found
        return found


def _says_queue(matching: Sequence[Registration], pod: Pod, old: object, new: object) -> bool:
    return any(r.hint is None or r.hint(pod, old, new) is Hint.QUEUE for r in matching)

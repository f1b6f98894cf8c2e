"""
Which pods an event may help, and how soon they may be tried again.

Source: isEventOfInterest and isPodWorthRequeuing in pkg/scheduler/backend/queue/scheduling_queue.go
(kubernetes 1.36). Different here: a hint has no error to return; one that cannot tell says QUEUE.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TypeAlias

from scheduler.framework.events import ClusterEvent, Hint, HintFn, Registration, with_node_taint_updates
from scheduler.model.pods import Pod
from scheduler.queueing.in_flight import RecordedEvent
from scheduler.queueing.queued_pod import QueuedPod

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
        #: Event -> profile -> plugin -> hint functions of its matching registrations.
        self._hints: dict[ClusterEvent, dict[str, dict[str, tuple[HintFn | None, ...]]]] = {}
        self._plugins: dict[ClusterEvent, frozenset[str]] = {}

    def interested_plugins(self, event: ClusterEvent) -> frozenset[str]:
        """Plugins that registered `event` in any profile. Empty: the event can be dropped."""
        plugins = self._plugins.get(event)
        if plugins is None:
            plugins = frozenset(plugin for hints in self._hints_for(event).values() for plugin in hints)
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
        hints = self._hints_for(event).get(queued.profile, {})
        # A pending plugin's word outranks the others', so it is heard first and can end the question.
        if any(_says_queue(hints.get(plugin, ()), queued.pod, old, new) for plugin in queued.pending):
            return Requeue.IMMEDIATELY
        if any(_says_queue(hints.get(plugin, ()), queued.pod, old, new) for plugin in queued.rejecting):
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

    def _hints_for(self, event: ClusterEvent) -> dict[str, dict[str, tuple[HintFn | None, ...]]]:
        hints = self._hints.get(event)
        if hints is None:
            hints = {
                profile: {
                    plugin: matching
                    for plugin, registrations in by_plugin.items()
                    if (matching := tuple(r.hint for r in registrations if r.matches(event)))
                }
                for profile, by_plugin in self._registrations.items()
            }
            self._hints[event] = hints
        return hints


def _says_queue(hints: Sequence[HintFn | None], pod: Pod, old: object, new: object) -> bool:
    return any(hint is None or hint(pod, old, new) is Hint.QUEUE for hint in hints)

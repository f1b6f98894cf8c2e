"""
Which pods an event may help, by the events and hints that plugins registered.

Source: isEventOfInterest and isPodWorthRequeuing in pkg/scheduler/backend/queue/scheduling_queue.go
(kubernetes 1.36). Different here: a hint returns no error; in doubt it returns QUEUE.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from scheduler.engine.framework.events import (
    ClusterEvent,
    ClusterEventWithHint,
    Hint,
    Need,
    NeedsFn,
    with_node_taint_updates,
)
from scheduler.engine.framework.profile import Profile
from scheduler.engine.queueing.queued_pod import QueuedPod
from scheduler.engine.queueing.unschedulable_pods import EquivalenceClass, InterestedPlugins

_NO_NEEDS: Final[frozenset[Need]] = frozenset()


class _Matching(NamedTuple):
    """
    What is registered for one event.

    `by_profile`: profile -> plugin -> what matches. `for_any_pod`: the plugins with a hint that may help any pod.
    `narrowed`: the other plugins, each with what narrows its pods.
    """

    by_profile: Mapping[str, Mapping[str, Sequence[ClusterEventWithHint]]]
    for_any_pod: InterestedPlugins
    narrowed: Sequence[tuple[str, NeedsFn]]


class QueueingHints:
    """The registered events and hints of all profiles, looked up by incoming event."""

    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        self._events = {
            name: {
                plugin.name: with_node_taint_updates(plugin.events_to_register())
                for plugin in profile.rejecting_plugins()
            }
            for name, profile in profiles.items()
        }
        #: Memo of `_matching`; as many entries as there are resources times actions.
        self._matching_by_event: dict[ClusterEvent, _Matching] = {}

    def interested_plugins(self, event: ClusterEvent, old: object, new: object) -> InterestedPlugins:
        """Return the plugins that registered `event` in any profile and may help a pod."""
        matching = self._matching(event)
        if not matching.narrowed:
            return matching.for_any_pod
        by_plugin: dict[str, frozenset[Need] | None] = {}
        for plugin, needs_of in matching.narrowed:
            if (needs := needs_of(old, new)) != _NO_NEEDS:
                known = by_plugin.get(plugin, _NO_NEEDS)
                by_plugin[plugin] = None if needs is None or known is None else known | needs
        return {**by_plugin, **matching.for_any_pod}

    def is_worth_requeuing(self, queued: QueuedPod, event: ClusterEvent, old: object, new: object) -> bool:
        """Return whether `event`, a change from `old` to `new`, may make the rejected pod `queued` schedulable."""
        return any(
            registered.hint is None or registered.hint(queued.pod, old, new) is Hint.QUEUE
            for registered in self._events_to_ask(queued, event)
        )

    def questions(
        self,
        equivalents: EquivalenceClass,
        own: QueuedPod | None,
        event: ClusterEvent,
        old: object,
        new: object,
    ) -> Iterator[tuple[QueuedPod, Iterable[QueuedPod]]]:
        """
        Yield a pod to ask the hints about, with the pods for which its answer holds.

        These pods may be moved before the next question. `own` is the changed pod if it is in this class: hints tell
        a pod's own change from that of another pod, so it is asked about alone.
        """
        if own is not None:
            yield own, (own,)
        groups = list(equivalents.values())
        first = next(_pods(groups, own), None)
        if first is None:
            return
        reads_labels = self._reads_labels(first, event, old, new)
        for batch in [[group] for group in groups] if reads_labels else [groups]:
            pods = _pods(batch, own)
            asked = next(pods, None)
            if asked is not None:
                yield asked, chain((asked,), pods)

    def _reads_labels(self, queued: QueuedPod, event: ClusterEvent, old: object, new: object) -> bool:
        return any(
            registered.hint is not None and registered.reads_labels(queued.pod, old, new)
            for registered in self._events_to_ask(queued, event)
        )

    def _events_to_ask(self, queued: QueuedPod, event: ClusterEvent) -> Iterator[ClusterEventWithHint]:
        by_plugin = self._matching(event).by_profile.get(queued.profile, {})
        for plugin in queued.unschedulable_plugins:
            yield from by_plugin.get(plugin, ())

    def _matching(self, event: ClusterEvent) -> _Matching:
        matching = self._matching_by_event.get(event)
        if matching is None:
            by_profile = {
                profile: {
                    plugin: tuple(registered for registered in events if registered.matches(event))
                    for plugin, events in by_plugin.items()
                }
                for profile, by_plugin in self._events.items()
            }
            registrations = [
                (plugin, registered)
                for by_plugin in by_profile.values()
                for plugin, events in by_plugin.items()
                for registered in events
            ]
            matching = self._matching_by_event[event] = _Matching(
                by_profile,
                {plugin: None for plugin, registered in registrations if registered.needs is None},
                [(plugin, entry.needs) for plugin, entry in registrations if entry.needs is not None],
            )
        return matching


def _pods(groups: Iterable[Mapping[str, QueuedPod]], but: QueuedPod | None) -> Iterator[QueuedPod]:
    """Yield the pods of all groups but one pod. Groups may lose pods meanwhile."""
    for group in groups:
        for queued in list(group.values()):
            if queued is not but:
                yield queued

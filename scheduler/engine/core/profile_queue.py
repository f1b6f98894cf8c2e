"""The queue for the pods of several profiles, which asks their plugins what a pod waits for."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Semantics
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.queueing.pre_enqueue import PreEnqueueCheck


def queue_for(
    profiles: Mapping[str, Profile],
    *,
    initial_backoff_s: float = 1.0,
    max_backoff_s: float = 10.0,
    max_in_unschedulable_s: float = 300.0,
    namespace_share: float = 0.0,
    semantics: Semantics = DEFAULT_SEMANTICS,
) -> PodQueue:
    """Return an empty queue for these profiles, by schedulerName."""
    return PodQueue(
        {
            name: {plugin.name: plugin.events_to_register() for plugin in profile.rejecting_plugins()}
            for name, profile in profiles.items()
        },
        pre_enqueue={
            name: [PreEnqueueCheck(plugin.name, plugin.admits) for plugin in profile.pre_enqueue]
            for name, profile in profiles.items()
        },
        initial_backoff_s=initial_backoff_s,
        max_backoff_s=max_backoff_s,
        max_in_unschedulable_s=max_in_unschedulable_s,
        namespace_share=namespace_share,
        semantics=semantics,
    )

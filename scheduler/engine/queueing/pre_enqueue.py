"""The PreEnqueue checks that a pod passes before it may be tried."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scheduler.engine.model.pods import Pod


class PreEnqueueCheck(NamedTuple):
    """The PreEnqueue function of one plugin."""

    plugin: str
    passes: Callable[[Pod], bool]


class PreEnqueue:
    """The checks of every profile, in the profile's order."""

    def __init__(self, checks_by_profile: Mapping[str, Sequence[PreEnqueueCheck]]) -> None:
        self._checks_by_profile = checks_by_profile

    def gating_plugin(self, pod: Pod, gated_before: str) -> str:
        """
        Return the first plugin whose check `pod` fails, '' if it passes all.

        The plugin that gated the pod before is asked first: most likely it still does.

        Source: pkg/scheduler/backend/queue/scheduling_queue.go, runPreEnqueuePlugins (kubernetes 1.36).
        """
        checks = self._checks_by_profile.get(pod.scheduler_name, ())
        if gated_before:
            checks = sorted(checks, key=lambda check: check.plugin != gated_before)
        return next((check.plugin for check in checks if not check.passes(pod)), "")


@dataclass(frozen=True, slots=True)
class KeptOut:
    """The pods of at most this priority, `but` that of this UID: what a nomination may have kept out of its node."""

    priority: int
    but: str

    def selects(self, pod: Pod) -> bool:
        """Return whether the pod is one of them."""
        return pod.priority <= self.priority and pod.uid != self.but

"""
SchedulingGates: a pod with scheduling gates is not scheduled until all are removed.

Source: plugins/schedulinggates/scheduling_gates.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from scheduler.framework.events import Action, ClusterEventWithHint, Hint, Resource
from scheduler.framework.interface import PreEnqueuePlugin
from scheduler.model.pods import Pod

NAME: Final = "SchedulingGates"


class SchedulingGates(PreEnqueuePlugin):
    """Keeps pods with spec.schedulingGates out of the active queue."""

    name = NAME
    extension_points: ClassVar = ("preEnqueue",)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the removal of the pod's last gate."""
        return (
            ClusterEventWithHint(
                Resource.POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED, _hint_after_gates_are_gone
            ),
        )

    def admits(self, pod: Pod) -> bool:
        """Return whether the pod has no gate."""
        return not pod.gates


def _hint_after_gates_are_gone(pod: Pod, _old: Pod | None, new: Pod | None) -> Hint:
    """Source: scheduling_gates.go, isSchedulableAfterUpdatePodSchedulingGatesEliminated (kubernetes 1.36)."""
    return Hint.QUEUE if new is not None and new.uid == pod.uid else Hint.SKIP

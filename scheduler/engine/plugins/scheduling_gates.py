"""
SchedulingGates: a pod with scheduling gates is not scheduled until all are removed.

Source: plugins/schedulinggates/scheduling_gates.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from scheduler.engine.framework.events import Action, ClusterEventWithHint, Resource, after_own_update
from scheduler.engine.framework.interface import PreEnqueuePlugin
from scheduler.engine.model.pods import Pod


class SchedulingGates(PreEnqueuePlugin):
    """Keeps pods with spec.schedulingGates out of the active queue."""

    name = "SchedulingGates"
    extension_points: ClassVar = ("preEnqueue",)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the removal of the pod's last gate."""
        return (
            ClusterEventWithHint(
                Resource.POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED, after_own_update
            ),
        )

    def admits(self, pod: Pod) -> bool:
        """Return whether the pod has no gate."""
        return not pod.gates

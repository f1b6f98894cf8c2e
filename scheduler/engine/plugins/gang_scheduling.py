"""
GangScheduling: no member of a group is tried before as many exist as the group needs.

What follows, one decision on all members, is `engine.core.group_search`. Here: PreEnqueue, and the arguments.

Source: plugins/gangscheduling/gangscheduling.go (kubernetes 1.36). Differences: members that are gated or end do not
count; upstream's Permit, where members wait on nodes for each other, has no counterpart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from scheduler.engine.framework.events import Action, ClusterEventWithHint, Resource
from scheduler.engine.framework.interface import PluginContext, PreEnqueuePlugin
from scheduler.engine.framework.profile import GANG_SCHEDULING
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.wire import Int32, Wire


class GangSchedulingArgs(Wire, frozen=True):
    """
    `max_search_decisions`, which is not upstream's: how many decisions the search for a group's places may take beyond
    one for each member. Each takes 0.1 to 0.3 ms at 5,000 nodes; on a member with many terms it counts for several.
    Devices that members exchange on a node count for one.
    `topology_levels`, which is not upstream's: node labels of the machine room from the outside in, such as block,
    rack and host; by default the levels of Kueue's Topologies. Without any, a group has the levels that it names.
    """

    max_search_decisions: Int32 = 500
    topology_levels: tuple[str, ...] = ()


class GangScheduling(PreEnqueuePlugin):
    """Keeps members of incomplete groups out of the active queue."""

    name = GANG_SCHEDULING
    extension_points: ClassVar = ("preEnqueue", "permit")
    args_type: ClassVar = GangSchedulingArgs

    def __init__(self, args: GangSchedulingArgs, context: PluginContext) -> None:
        self.args = args
        self._is_complete = context.is_group_complete

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """
        Return changes of the machine room's levels, and of the nodes in its domains: other domains may hold the group.

        The machine itself activates the members of a group that became complete.
        """
        changes = Action.ADD | Action.UPDATE | Action.DELETE
        return [
            ClusterEventWithHint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
            ClusterEventWithHint(Resource.TOPOLOGY, changes),
            ClusterEventWithHint(Resource.RESOURCE_FLAVOR, changes),
        ]

    def admits(self, pod: Pod) -> bool:
        """Return whether the pod has no group, or its group is complete."""
        return pod.group is None or self._is_complete(pod)

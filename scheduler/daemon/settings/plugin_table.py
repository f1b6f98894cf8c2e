"""
kube-scheduler's in-tree plugins and their extension points.

Source: pkg/scheduler/apis/config/v1/default_plugins.go, framework/plugins/registry.go and the interfaces that each
plugin implements (kubernetes 1.36, all feature gates at their defaults).
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import msgspec

from scheduler.engine.model.wire import Int32, Wire
from scheduler.engine.plugins.registry import IN_TREE

MULTI_POINT: Final = "multiPoint"
#: Points of pod groups: a file may name them. Nothing runs there, nor upstream with its gates at their defaults.
GROUP_POINTS: Final = frozenset({"placementGenerate", "placementScore"})


class EntryFields(Wire, frozen=True):
    """An item of `enabled` or `disabled`."""

    name: str = ""
    weight: Int32 = 0


class SetFields(Wire, frozen=True):
    """The field of an extension point."""

    enabled: tuple[EntryFields, ...] = ()
    disabled: tuple[EntryFields, ...] = ()


class Plugins(Wire, frozen=True):
    """
    The field `plugins` of a profile: multiPoint, and each extension point.

    In the order in which upstream expands multiPoint, so that the first reported problem is the same.
    """

    multi_point: SetFields = SetFields()
    pre_filter: SetFields = SetFields()
    filter: SetFields = SetFields()
    post_filter: SetFields = SetFields()
    reserve: SetFields = SetFields()
    pre_score: SetFields = SetFields()
    score: SetFields = SetFields()
    pre_bind: SetFields = SetFields()
    bind: SetFields = SetFields()
    post_bind: SetFields = SetFields()
    permit: SetFields = SetFields()
    pre_enqueue: SetFields = SetFields()
    queue_sort: SetFields = SetFields()
    placement_generate: SetFields = SetFields()
    placement_score: SetFields = SetFields()


POINTS: Final = tuple(
    each.encode_name
    for each in msgspec.structs.fields(Plugins)
    if each.encode_name not in {MULTI_POINT, *GROUP_POINTS}
)


@dataclass(frozen=True, slots=True)
class InTreePlugin:
    """One plugin of kube-scheduler; a weight of 0: upstream sets none, which counts as 1."""

    points: frozenset[str]
    default_weight: int = 0


#: GangScheduling and the plugins of `GROUP_POINTS` are registered upstream only with a gate that is off by default.
IN_TREE_BY_NAME: Final[MappingProxyType[str, InTreePlugin]] = MappingProxyType(
    {
        name: InTreePlugin(
            frozenset(plugin.extension_points),
            plugin.default_weight if "score" in plugin.extension_points else 0,
        )
        for name, plugin in IN_TREE.items()
    }
    # These have no class here.
    | {
        "PrioritySort": InTreePlugin(frozenset({"queueSort"})),
        "DefaultBinder": InTreePlugin(frozenset({"bind"})),
        "TopologyPlacementGenerator": InTreePlugin(frozenset({"placementGenerate"})),
        "PodGroupPodsCount": InTreePlugin(frozenset({"placementScore"}), 1),
    }
)

#: Enabled through multiPoint by default, in this order.
DEFAULT_PLUGINS: Final = (
    *("SchedulingGates", "PrioritySort", "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity"),
    *("NodePorts", "NodeResourcesFit", "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding"),
    *("VolumeZone", "PodTopologySpread", "InterPodAffinity", "DynamicResources", "DefaultPreemption"),
    *("NodeResourcesBalancedAllocation", "ImageLocality", "DefaultBinder", "NodeDeclaredFeatures"),
)

#: Source: apis/config/validation/validation.go, invalidPluginsByVersion (kubernetes 1.36).
REMOVED_PLUGINS: Final = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})


def type_name(point: str) -> str:
    """Return the upstream interface of an extension point, "FilterPlugin" for filter, as messages show it."""
    return f"{point[0].upper()}{point[1:]}Plugin"

"""
The only list of plugins, and the construction of profiles from names, arguments and weights.

A plugin's file has its extension points, default weight, arguments and events. That a plugin has the methods that a
profile needs is checked here, once, and not in each cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from scheduler.errors import InvariantViolation, SettingsError
from scheduler.framework.interface import FilterPlugin, PreEnqueuePlugin, ScorePlugin
from scheduler.framework.out_of_tree import GuardedPlugin, OutOfTreeAdmission, OutOfTreePlugin
from scheduler.framework.out_of_tree_results import described
from scheduler.framework.plugin_context import PluginContext
from scheduler.framework.post_filter import PostFilterPlugin
from scheduler.framework.prefilter_only import PreFilterOnly
from scheduler.framework.profile import Profile, WeightedScorer
from scheduler.model.volumes import StorageKind
from scheduler.plugins.default_preemption.plugin import DefaultPreemption
from scheduler.plugins.gang_scheduling import GangScheduling
from scheduler.plugins.image_locality import ImageLocality
from scheduler.plugins.inter_pod_affinity.plugin import InterPodAffinity
from scheduler.plugins.kubelet_refusal import KubeletRefusal
from scheduler.plugins.node_affinity import NodeAffinity
from scheduler.plugins.node_declared_features import NodeDeclaredFeatures
from scheduler.plugins.node_name import NodeName
from scheduler.plugins.node_ports import NodePorts
from scheduler.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from scheduler.plugins.node_resources.fit import NodeResourcesFit
from scheduler.plugins.node_unschedulable import NodeUnschedulable
from scheduler.plugins.node_volume_limits import NodeVolumeLimits
from scheduler.plugins.pod_topology_spread.plugin import PodTopologySpread
from scheduler.plugins.scheduling_gates import SchedulingGates
from scheduler.plugins.taint_toleration import TaintToleration
from scheduler.plugins.unsupported import Unsupported
from scheduler.plugins.volume_binding.plugin import VolumeBinding
from scheduler.plugins.volume_restrictions import VolumeRestrictions
from scheduler.plugins.volume_zone import VolumeZone

#: A plugin's class. It has `name` and `extension_points`, and `events_to_register` if it can refuse a pod. It has
#: `default_weight` if it scores, and `storage_kinds` if it reads any. It has `args_type` if it takes arguments: an
#: instance of it, complete, and a `PluginContext` are then passed to the constructor, which otherwise takes none.
PluginClass = type[Any]

#: A profile without plugins of the user's.
NO_OUT_OF_TREE: Final[Mapping[str, OutOfTreePlugin]] = {}

#: Plugins of every profile, whatever the configuration says: the first and the last to filter.
ALWAYS_FIRST: Final = Unsupported
ALWAYS_LAST: Final = KubeletRefusal
#: A plugin of every profile too, which costs nothing for pods without a group.
ALWAYS_LAST_TO_ADMIT: Final = GangScheduling.name

#: Every plugin that a configuration can name, by upstream's name.
IN_TREE: Final[Mapping[str, PluginClass]] = {
    one.name: one
    for one in (
        SchedulingGates,
        NodeUnschedulable,
        NodeName,
        TaintToleration,
        NodeAffinity,
        NodePorts,
        NodeResourcesFit,
        VolumeRestrictions,
        NodeVolumeLimits,
        VolumeBinding,
        VolumeZone,
        PodTopologySpread,
        InterPodAffinity,
        DefaultPreemption,
        NodeResourcesBalancedAllocation,
        ImageLocality,
        NodeDeclaredFeatures,
        GangScheduling,
    )
}


def default_weight(plugin: PluginClass) -> int:
    """Return the plugin's default weight, 0 if it does not score."""
    weight: int = getattr(plugin, "default_weight", 0)
    return weight


def args_type(plugin: PluginClass) -> type[Any] | None:
    """Return the type of the plugin's arguments, None if it takes none."""
    found: type[Any] | None = getattr(plugin, "args_type", None)
    return found


def storage_kinds(
    names: Collection[str], out_of_tree: Mapping[str, OutOfTreePlugin] = NO_OUT_OF_TREE
) -> frozenset[StorageKind]:
    """Return the kinds of which volumes are made that these plugins read."""
    in_tree = (getattr(plugin, "storage_kinds", ()) for name, plugin in IN_TREE.items() if name in names)
    of_out_of_tree = (plugin.storage_kinds for name, plugin in out_of_tree.items() if name in names)
    return frozenset(chain(chain.from_iterable(in_tree), chain.from_iterable(of_out_of_tree)))


def build_profile(
    scheduler_name: str,
    *,
    filters: Sequence[str],
    scorers: Sequence[tuple[str, int]],
    pre_enqueue: Sequence[str] = (),
    prefilter_only: Sequence[str] = (),
    post_filters: Sequence[str] = (),
    args_by_plugin: Mapping[str, object] | None = None,
    context: PluginContext,
    percentage_of_nodes_to_score: int = 0,
    out_of_tree: Mapping[str, OutOfTreePlugin] = NO_OUT_OF_TREE,
) -> Profile:
    """
    Return the profile that runs these plugins in this order, one instance of each.

    Args:
        scheduler_name: the schedulerName of the profile's pods.
        filters: names of the plugins of PreFilter and Filter.
        scorers: names and weights of the plugins of PreScore and Score.
        pre_enqueue: names of the plugins of PreEnqueue.
        prefilter_only: names of plugins that run at PreFilter but not at Filter.
        post_filters: names of the plugins of PostFilter.
        args_by_plugin: arguments by plugin name; other plugins get their defaults.
        context: passed to the plugins' constructors.
        percentage_of_nodes_to_score: 0 scores all nodes.
        out_of_tree: plugins of the user's, by name.

    Raises InvariantViolation for a name that is neither in `IN_TREE` nor an out-of-tree plugin's, and for a plugin
    without the extension point; settings reject both. Raises SettingsError for an out-of-tree plugin that its arguments
    do not make.
    """
    pre_enqueue = (*(name for name in pre_enqueue if name != ALWAYS_LAST_TO_ADMIT), ALWAYS_LAST_TO_ADMIT)
    used = (*filters, *prefilter_only, *(name for name, _ in scorers), *pre_enqueue, *post_filters)
    args_by_plugin = args_by_plugin or {}
    built = {
        name: _guarded(scheduler_name, out_of_tree[name], args_by_plugin, context)
        if name in out_of_tree
        else _build(name, IN_TREE.get(name), args_by_plugin, context)
        for name in dict.fromkeys(used)
    }
    admitting = [built[name] for name in pre_enqueue]
    gang_scheduling = built[ALWAYS_LAST_TO_ADMIT]
    if not isinstance(gang_scheduling, GangScheduling):
        raise InvariantViolation(f"plugin {ALWAYS_LAST_TO_ADMIT} was replaced")
    return Profile(
        scheduler_name=scheduler_name,
        filters=(
            ALWAYS_FIRST(),
            *(OutOfTreeAdmission(plugin) for plugin in admitting if isinstance(plugin, GuardedPlugin)),
            *(PreFilterOnly(_filter_plugin(name, built[name])) for name in prefilter_only),
            *(_filter_plugin(name, built[name]) for name in filters),
            ALWAYS_LAST(),
        ),
        scorers=tuple(WeightedScorer(_score_plugin(name, built[name]), weight) for name, weight in scorers),
        post_filters=tuple(_post_filter_plugin(name, built[name]) for name in post_filters),
        pre_enqueue=tuple(_pre_enqueue_plugin(name, built[name]) for name in pre_enqueue),
        percentage_of_nodes_to_score=percentage_of_nodes_to_score,
        out_of_tree=tuple(plugin for plugin in built.values() if isinstance(plugin, GuardedPlugin)),
        max_search_decisions=gang_scheduling.args.max_search_decisions,
    )


def _guarded(
    scheduler_name: str,
    declared: OutOfTreePlugin,
    args_by_plugin: Mapping[str, object],
    context: PluginContext,
) -> GuardedPlugin:
    # Profiles are built anew for each explanation; they share the values that they derive from one state.
    owner = (scheduler_name, declared.name, repr(args_by_plugin.get(declared.name)))
    try:
        plugin = _build(declared.name, declared.plugin_class, args_by_plugin, context)
        return GuardedPlugin(declared.name, plugin, owner)
    except Exception as error:
        found = described(error, declared.plugin_class)
        raise SettingsError(
            declared.source, declared.name, found, "a plugin that its arguments make"
        ) from error


def _build(
    name: str, plugin: PluginClass | None, args_by_plugin: Mapping[str, object], context: PluginContext
) -> object:
    if plugin is None:
        raise InvariantViolation(f"plugin {name} is in no registry")
    kind = args_type(plugin)
    if kind is None:
        return plugin()
    args = args_by_plugin.get(name)
    if args is None:
        args = kind()
    if not isinstance(args, kind):
        raise InvariantViolation(f"plugin {name} takes {kind.__name__}, got {type(args).__name__}")
    return plugin(args, context)


def _filter_plugin(name: str, plugin: object) -> FilterPlugin:
    if isinstance(plugin, FilterPlugin):
        return plugin
    raise InvariantViolation(f"plugin {name} does not filter")


def _score_plugin(name: str, plugin: object) -> ScorePlugin:
    if isinstance(plugin, ScorePlugin):
        return plugin
    raise InvariantViolation(f"plugin {name} does not score")


def _pre_enqueue_plugin(name: str, plugin: object) -> PreEnqueuePlugin:
    if isinstance(plugin, PreEnqueuePlugin):
        return plugin
    raise InvariantViolation(f"plugin {name} has no PreEnqueue")


def _post_filter_plugin(name: str, plugin: object) -> PostFilterPlugin:
    if isinstance(plugin, PostFilterPlugin):
        return plugin
    raise InvariantViolation(f"plugin {name} has no PostFilter")

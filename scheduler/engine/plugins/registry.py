"""
The only list of plugins, and the construction of profiles from names, arguments and weights.

A plugin's file has its extension points, default weight, arguments and events. Settings refuse what a plugin does not
run at.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from scheduler.engine.framework.events import ClusterEventWithHint
from scheduler.engine.framework.interface import (
    FilterPlugin,
    PluginContext,
    PodContext,
    PreFiltered,
    PreFilterResult,
    RuleFilter,
)
from scheduler.engine.framework.out_of_tree import GuardedPlugin, OutOfTreeAdmission, OutOfTreePlugin
from scheduler.engine.framework.out_of_tree_results import described
from scheduler.engine.framework.profile import Profile, WeightedScorer
from scheduler.engine.framework.status import SKIP, Status
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.semantics import Gate, Semantics
from scheduler.engine.model.volumes import StorageKind
from scheduler.engine.plugins.default_preemption.plugin import DefaultPreemption
from scheduler.engine.plugins.dynamic_resources.plugin import DynamicResources
from scheduler.engine.plugins.gang_scheduling import GangScheduling
from scheduler.engine.plugins.image_locality import ImageLocality
from scheduler.engine.plugins.inter_pod_affinity.plugin import InterPodAffinity
from scheduler.engine.plugins.kubelet_refusal import KubeletRefusal
from scheduler.engine.plugins.node_affinity import NodeAffinity
from scheduler.engine.plugins.node_declared_features import NodeDeclaredFeatures
from scheduler.engine.plugins.node_name import NodeName
from scheduler.engine.plugins.node_ports import NodePorts
from scheduler.engine.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from scheduler.engine.plugins.node_resources.fit import NodeResourcesFit
from scheduler.engine.plugins.node_unschedulable import NodeUnschedulable
from scheduler.engine.plugins.node_volume_limits import NodeVolumeLimits
from scheduler.engine.plugins.pod_topology_spread.plugin import PodTopologySpread
from scheduler.engine.plugins.scheduling_gates import SchedulingGates
from scheduler.engine.plugins.taint_toleration import TaintToleration
from scheduler.engine.plugins.unsupported import Unsupported
from scheduler.engine.plugins.volume_binding.plugin import VolumeBinding
from scheduler.engine.plugins.volume_restrictions import VolumeRestrictions
from scheduler.engine.plugins.volume_zone import VolumeZone
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.errors import SettingsError

#: A class of `engine.framework.interface.Plugin`. If it has an `args_type`, its constructor takes an instance of
#: that type and a `PluginContext`; otherwise nothing.
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
    plugin.name: plugin
    for plugin in (
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
        DynamicResources,
        DefaultPreemption,
        NodeResourcesBalancedAllocation,
        ImageLocality,
        NodeDeclaredFeatures,
        GangScheduling,
    )
}

#: The plugin that upstream registers only with a feature gate; another one's gate is locked.
_GATE_BY_PLUGIN: Final[Mapping[str, Gate]] = {
    NodeDeclaredFeatures.name: Gate.NODE_DECLARED_FEATURES,
}


def storage_kinds(
    names: Collection[str], out_of_tree: Mapping[str, OutOfTreePlugin] = NO_OUT_OF_TREE
) -> frozenset[StorageKind | DeviceKind]:
    """Return the kinds of volumes and of devices that these plugins read."""
    plugins: dict[str, Any] = {**IN_TREE, **out_of_tree}
    return frozenset(kind for name in names if name in plugins for kind in plugins[name].storage_kinds)


def gated_off(semantics: Semantics) -> Mapping[str, Gate]:
    """Return the plugins that run in no profile, and the gate that is off."""
    return {name: gate for name, gate in _GATE_BY_PLUGIN.items() if not semantics.enabled(gate)}


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

    `filters` run at PreFilter and Filter, `prefilter_only` at PreFilter alone, `scorers`, which have weights, at
    PreScore and Score. A plugin whose feature gate is off is left out. Plugins without an entry in `args_by_plugin` get
    their defaults. A `percentage_of_nodes_to_score` of 0 scores all nodes. Settings refuse other names and points.

    Raises SettingsError for an out-of-tree plugin whose class raises on its arguments.
    """
    off = gated_off(context.semantics)
    filters, prefilter_only, post_filters, pre_enqueue = (
        tuple(name for name in names if name not in off)
        for names in (filters, prefilter_only, post_filters, pre_enqueue)
    )
    scorers = [(name, weight) for name, weight in scorers if name not in off]
    pre_enqueue = (*(name for name in pre_enqueue if name != ALWAYS_LAST_TO_ADMIT), ALWAYS_LAST_TO_ADMIT)
    used = (*filters, *prefilter_only, *(name for name, _ in scorers), *pre_enqueue, *post_filters)
    args_by_plugin = args_by_plugin or {}
    guarded: dict[str, GuardedPlugin] = {}
    built: dict[str, Any] = {}
    for name in dict.fromkeys(used):
        args = args_by_plugin.get(name)
        if name in out_of_tree:
            built[name] = guarded[name] = _guarded(scheduler_name, out_of_tree[name], args, context)
        else:
            built[name] = _made(IN_TREE[name], IN_TREE[name].args_type, args, context)
    return Profile(
        scheduler_name=scheduler_name,
        filters=(
            ALWAYS_FIRST(),
            *(OutOfTreeAdmission(guarded[name]) for name in pre_enqueue if name in guarded),
            *(PreFilterOnly(built[name]) for name in prefilter_only),
            *(built[name] for name in filters),
            ALWAYS_LAST(),
        ),
        scorers=tuple(WeightedScorer(built[name], weight) for name, weight in scorers),
        post_filters=tuple(built[name] for name in post_filters),
        pre_enqueue=tuple(built[name] for name in pre_enqueue),
        percentage_of_nodes_to_score=percentage_of_nodes_to_score,
        out_of_tree=tuple(guarded.values()),
        max_search_decisions=built[ALWAYS_LAST_TO_ADMIT].args.max_search_decisions,
        topology_levels=built[ALWAYS_LAST_TO_ADMIT].args.topology_levels,
    )


class PreFilterOnly(FilterPlugin):
    """Runs only PreFilter of a plugin that `filter.disabled` names and `preFilter.disabled` does not."""

    def __init__(self, plugin: FilterPlugin) -> None:
        self.name = plugin.name
        self._plugin = plugin

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the plugin's events without hints, since hints repeat the filter's rules."""
        registered = self._plugin.events_to_register()
        return [ClusterEventWithHint(event.resource, event.actions) for event in registered]

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Return the plugin's rejection or its node names; SKIP if it only returned a filter."""
        result = self._plugin.prefilter(context, view)
        if isinstance(result, PreFilterResult):
            return PreFilterResult(RuleFilter(view.n_rows), result.node_names)
        return result if isinstance(result, Status) else SKIP


def _guarded(
    scheduler_name: str, declared: OutOfTreePlugin, args: object, context: PluginContext
) -> GuardedPlugin:
    # Profiles are built for each explanation; they share the values that they derive from one state.
    owner = (scheduler_name, declared.name, repr(args))
    try:
        plugin = _made(declared.plugin_class, declared.args_type, args, context)
        return GuardedPlugin(declared.name, plugin, owner)
    except Exception as error:
        problem = described(error, declared.plugin_class)
        raise SettingsError(
            declared.source, declared.name, problem, "a plugin that its arguments make"
        ) from error


def _made(plugin: PluginClass, kind: type[Any] | None, args: object, context: PluginContext) -> object:
    """Return an instance. `kind`: of its arguments, None if it takes none; `args`: None for the defaults."""
    if kind is None:
        return plugin()
    return plugin(kind() if args is None else args, context)

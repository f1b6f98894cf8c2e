"""
The only list of plugins, and how a profile is put together from names, arguments and weights.

What a profile asks of a plugin is checked here, once, so that no cycle ever finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from scheduler.errors import InvariantViolation
from scheduler.framework.feature_gates import FeatureGates
from scheduler.framework.interface import FilterPlugin, PreEnqueuePlugin, ScorePlugin
from scheduler.framework.plugin_args import (
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PluginArgs,
    PodTopologySpreadArgs,
)
from scheduler.framework.prefilter_only import PreFilterOnly
from scheduler.framework.profile import Profile, WeightedScorer
from scheduler.model.labels import Selector
from scheduler.model.pods import Pod
from scheduler.plugins import (
    image_locality,
    kubelet_refusal,
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_unschedulable,
    scheduling_gates,
    taint_toleration,
    unsupported,
)
from scheduler.plugins.inter_pod_affinity import plugin as inter_pod_affinity
from scheduler.plugins.node_resources import balanced_allocation
from scheduler.plugins.node_resources import fit as node_resources_fit
from scheduler.plugins.pod_topology_spread import plugin as pod_topology_spread

_Args = TypeVar("_Args", bound=PluginArgs)


def _no_selector(_pod: Pod) -> Selector | None:
    return None


def _no_labels(_namespace: str) -> Mapping[str, str] | None:
    return None


@dataclass(frozen=True, slots=True)
class PluginContext:
    """
    What plugins are built from.

    `args`: by plugin name; a plugin that is not named gets its defaults. `default_selector`: what a pod without
    constraints of its own is spread by, usually `Snapshot.default_selector`.
    """

    args: Mapping[str, PluginArgs] = field(default_factory=dict)
    gates: FeatureGates = field(default_factory=FeatureGates)
    default_selector: Callable[[Pod], Selector | None] = _no_selector
    namespace_labels: Callable[[str], Mapping[str, str] | None] = _no_labels

    def args_of(self, name: str, kind: type[_Args]) -> _Args:
        """The plugin's arguments. Raises InvariantViolation where they are another plugin's."""
        found = self.args.get(name)
        if found is None:
            return kind()
        if not isinstance(found, kind):
            raise InvariantViolation(f"plugin {name} takes {kind.__name__}, got {type(found).__name__}")
        return found


PluginFactory = Callable[[PluginContext], object]


def _inter_pod_affinity(context: PluginContext) -> object:
    args = context.args_of(inter_pod_affinity.NAME, InterPodAffinityArgs)
    return inter_pod_affinity.InterPodAffinity(args, context.namespace_labels)


def _node_affinity(context: PluginContext) -> object:
    return node_affinity.NodeAffinity(context.args_of(node_affinity.NAME, NodeAffinityArgs))


def _node_resources_fit(context: PluginContext) -> object:
    args = context.args_of(node_resources_fit.NAME, NodeResourcesFitArgs)
    return node_resources_fit.NodeResourcesFit(args)


def _balanced_allocation(context: PluginContext) -> object:
    args = context.args_of(balanced_allocation.NAME, NodeResourcesBalancedAllocationArgs)
    return balanced_allocation.NodeResourcesBalancedAllocation(args)


def _pod_topology_spread(context: PluginContext) -> object:
    args = context.args_of(pod_topology_spread.NAME, PodTopologySpreadArgs)
    return pod_topology_spread.PodTopologySpread(args, context.gates, context.default_selector)


#: Every plugin by upstream's name.
IN_TREE: Final[Mapping[str, PluginFactory]] = {
    unsupported.NAME: lambda _: unsupported.Unsupported(),
    scheduling_gates.NAME: lambda _: scheduling_gates.SchedulingGates(),
    node_unschedulable.NAME: lambda _: node_unschedulable.NodeUnschedulable(),
    node_name.NAME: lambda _: node_name.NodeName(),
    taint_toleration.NAME: lambda _: taint_toleration.TaintToleration(),
    node_affinity.NAME: _node_affinity,
    node_ports.NAME: lambda _: node_ports.NodePorts(),
    node_resources_fit.NAME: _node_resources_fit,
    pod_topology_spread.NAME: _pod_topology_spread,
    inter_pod_affinity.NAME: _inter_pod_affinity,
    balanced_allocation.NAME: _balanced_allocation,
    image_locality.NAME: lambda _: image_locality.ImageLocality(),
    node_declared_features.NAME: lambda _: node_declared_features.NodeDeclaredFeatures(),
    kubelet_refusal.NAME: lambda _: kubelet_refusal.KubeletRefusal(),
}


def build_profile(
    scheduler_name: str,
    *,
    filters: Sequence[str],
    scorers: Sequence[tuple[str, int]],
    pre_enqueue: Sequence[str] = (),
    prefilter_only: Sequence[str] = (),
    context: PluginContext,
    percentage_of_nodes_to_score: int = 0,
) -> Profile:
    """
    The profile that runs these plugins in this order, one instance of each.

    `Unsupported` always filters first, `KubeletRefusal` last.

    Args:
        scheduler_name: the pods it is for.
        filters: names of the plugins of PreFilter and Filter.
        scorers: names and weights of the plugins of PreScore and Score.
        pre_enqueue: names of the plugins of PreEnqueue.
        prefilter_only: names of those of PreFilter that are switched off at Filter.
        context: what the plugins are built from.
        percentage_of_nodes_to_score: 0 scores all nodes.

    Raises InvariantViolation for a name that is not in `IN_TREE` and for a plugin that lacks the stage: settings
    let neither through.
    """
    always = (unsupported.NAME, kubelet_refusal.NAME)
    between = [name for name in filters if name not in always]
    used = (*always, *between, *prefilter_only, *(name for name, _ in scorers), *pre_enqueue)
    built = {name: _built(name, context) for name in dict.fromkeys(used)}
    return Profile(
        scheduler_name=scheduler_name,
        filters=(
            _filter_plugin(unsupported.NAME, built[unsupported.NAME]),
            *(PreFilterOnly(_filter_plugin(name, built[name])) for name in prefilter_only),
            *(_filter_plugin(name, built[name]) for name in (*between, kubelet_refusal.NAME)),
        ),
        scorers=tuple(WeightedScorer(_score_plugin(name, built[name]), weight) for name, weight in scorers),
        pre_enqueue=tuple(_pre_enqueue_plugin(name, built[name]) for name in pre_enqueue),
        percentage_of_nodes_to_score=percentage_of_nodes_to_score,
    )


def _built(name: str, context: PluginContext) -> object:
    factory = IN_TREE.get(name)
    if factory is None:
        raise InvariantViolation(f"plugin {name} is in no registry")
    return factory(context)


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
    raise InvariantViolation(f"plugin {name} does not keep pods out of the queue")

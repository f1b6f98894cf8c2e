"""Builds profiles and the queue from the configuration's plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from scheduler.daemon.settings.resolved import ProfileSettings, Settings
from scheduler.engine.framework.interface import PluginContext
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.affinity import label_selector
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.semantics import Gate
from scheduler.engine.model.terms import SpreadConstraint
from scheduler.engine.model.volumes import StorageKind
from scheduler.engine.plugins.default_preemption.plugin import NAME as PREEMPTION
from scheduler.engine.plugins.inter_pod_affinity.plugin import NAME as AFFINITY
from scheduler.engine.plugins.inter_pod_affinity.plugin import InterPodAffinityArgs
from scheduler.engine.plugins.pod_topology_spread.constraints import PodTopologySpreadArgs, parsed_default
from scheduler.engine.plugins.pod_topology_spread.plugin import NAME as SPREAD
from scheduler.engine.plugins.registry import build_profile, storage_kinds
from scheduler.engine.queueing.pod_queue import PodQueue
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.engine.state.matching import NamespaceRule


def build_profiles(settings: Settings, view: ClusterView) -> Mapping[str, Profile]:
    """Return every profile by its schedulerName. Its plugins read selectors, namespaces and terms in `view`."""
    context = PluginContext(
        settings.semantics,
        view.default_selector,
        view.namespace_labels,
        view.is_kept_apart,
        lambda pod: pod.uid in view.state.held_for_evictions,
        view.state.groups.is_complete,
        view.state.devices.claim,
        lambda: view.state.devices.is_served,
        view.state.devices.provides,
    )
    return {
        profile.scheduler_name: _build_profile(profile, settings, context) for profile in settings.profiles
    }


def build_queue(
    profiles: Mapping[str, Profile],
    settings: Settings,
    *,
    max_in_unschedulable_s: float,
    namespace_share: float = 0.0,
) -> PodQueue:
    """Return the queue for the pods of all profiles."""
    return PodQueue(
        profiles,
        initial_backoff_s=settings.configuration.pod_initial_backoff_s,
        max_backoff_s=settings.configuration.pod_max_backoff_s,
        max_in_unschedulable_s=max_in_unschedulable_s,
        namespace_share=namespace_share,
        semantics=settings.semantics,
    )


def new_state(settings: Settings) -> ClusterState:
    """Return an empty state with the configuration's rules for namespaces."""
    return ClusterState(exempt_namespaces(settings), annotating=annotating_namespaces(settings))


def exempt_namespaces(settings: Settings) -> frozenset[str]:
    """
    Return the namespaces whose pods are invisible to required anti-affinity, of all profiles together.

    Running pods have no profile of ours: their terms are exempt for all profiles or for none.
    """
    every = (cast(InterPodAffinityArgs, profile.args_by_plugin[AFFINITY]) for profile in settings.profiles)
    return frozenset().union(*(args.exempt_namespaces for args in every))


def preempts(profile: ProfileSettings) -> bool:
    """Return True if pods of the profile may preempt others, for which PodDisruptionBudgets are watched."""
    return PREEMPTION in profile.plugins_by_point["postFilter"]


def annotating_namespaces(settings: Settings) -> NamespaceRule:
    """
    Return the namespaces whose annotations may be about other namespaces.

    All profiles have the same rule, since running pods need not belong to any of them.
    """
    given = cast(InterPodAffinityArgs, settings.profiles[0].args_by_plugin[AFFINITY]).annotation_namespaces
    return NamespaceRule(frozenset(given.names), label_selector(given.selector))


def uses_default_spreading(profile: ProfileSettings) -> bool:
    """Return True if pods of the profile can get default constraints, which need services and owners to be watched."""
    args = profile.args_by_plugin.get(SPREAD)
    runs = any(SPREAD in profile.plugins_by_point[point] for point in ("filter", "score"))
    return runs and isinstance(args, PodTopologySpreadArgs) and bool(args.effective_default_constraints)


def default_spreading(settings: Settings) -> Mapping[str, tuple[SpreadConstraint, ...]]:
    """Return the default constraints of each profile that has some, without their selectors, by schedulerName."""
    return {
        profile.scheduler_name: tuple(map(parsed_default, args.effective_default_constraints))
        for profile in settings.profiles
        if uses_default_spreading(profile)
        and isinstance(args := profile.args_by_plugin.get(SPREAD), PodTopologySpreadArgs)
    }


def storage_kinds_read(settings: Settings) -> frozenset[StorageKind | DeviceKind]:
    """Return the kinds of volumes and of devices that plugins of a profile read."""
    points = (point for profile in settings.profiles for point in profile.plugins_by_point.values())
    read = storage_kinds({name for point in points for name in point}, settings.out_of_tree)
    return read if settings.semantics.enabled(Gate.DRA_DEVICE_TAINT_RULES) else read - {DeviceKind.TAINT_RULE}


def _build_profile(
    profile: ProfileSettings,
    settings: Settings,
    context: PluginContext,
) -> Profile:
    percentage = profile.percentage_of_nodes_to_score
    filters = profile.plugins_by_point["filter"]
    return build_profile(
        profile.scheduler_name,
        filters=filters,
        prefilter_only=[name for name in profile.plugins_by_point["preFilter"] if name not in filters],
        scorers=[(name, profile.weight_by_plugin[name]) for name in profile.plugins_by_point["score"]],
        post_filters=profile.plugins_by_point["postFilter"],
        pre_enqueue=profile.plugins_by_point["preEnqueue"],
        args_by_plugin=profile.args_by_plugin,
        context=context,
        percentage_of_nodes_to_score=settings.configuration.percentage_of_nodes_to_score
        if percentage is None
        else percentage,
        out_of_tree=settings.out_of_tree,
    )

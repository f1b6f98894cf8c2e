"""Runs every filter on every node for one pod, where a decision stops at a node's first refusal."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from scheduler.engine.framework.explaining import BlockingRule, ExplainContext, PluginExplanation
from scheduler.engine.framework.interface import FilterPlugin, PodContext, PreFilterResult
from scheduler.engine.framework.profile import Profile
from scheduler.engine.framework.status import NodeStatuses, Skip, Status, failed
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.cluster import ClusterState
from scheduler.errors import PluginFailed


@dataclass(frozen=True)
class Inspection:
    """
    A pod and its cluster, and the nodes that each filter of the pod's profile refuses.

    `refusals` leaves out filters that skip the pod. `pending_pods`: pods without a node, of any scheduler.
    """

    context: ExplainContext
    refusals: Sequence[tuple[FilterPlugin, NodeStatuses]]
    pending_pods: Sequence[Pod]

    @cached_property
    def explanations(self) -> Mapping[str, PluginExplanation]:
        """The explanation of each plugin that refuses, by its name."""
        return {plugin.name: plugin.explain(self.context) for plugin, _ in self.refusals}

    @property
    def rules(self) -> Iterator[BlockingRule]:
        """The rules of all plugins, in the profile's order."""
        return (rule for explanation in self.explanations.values() for rule in explanation.rules)


def inspect_pod(
    pod: Pod,
    state: ClusterState,
    profile: Profile,
    pending_pods: Sequence[Pod] = (),
    kept: Collection[str] = (),
) -> Inspection | tuple[str, Status]:
    """Return the inspection; or a plugin and its status, if its PreFilter refuses the pod or fails."""
    context = ExplainContext(pod, state, kept)
    view = context.view
    pod_context = PodContext(pod, view.label_set(pod))
    refusals: list[tuple[FilterPlugin, NodeStatuses]] = []
    for plugin in profile.filters:
        try:
            result = plugin.prefilter(pod_context, view)
            if isinstance(result, Status):
                return plugin.name, result
            if not isinstance(result, Skip):
                node_filter = result.node_filter if isinstance(result, PreFilterResult) else result
                refusals.append((plugin, node_filter.statuses()))
        except PluginFailed as failure:
            return plugin.name, failed(str(failure))
    return Inspection(context, refusals, pending_pods)


def refusals_at(row: int, pod: Pod, state: ClusterState, profile: Profile) -> list[tuple[str, str]]:
    """Return each filter that refuses the node, and its reason; if a PreFilter refuses the pod, that alone."""
    inspection = inspect_pod(pod, state, profile)
    if not isinstance(inspection, Inspection):
        return [(inspection[0], inspection[1].message)]
    found = [(plugin.name, statuses.at(row)) for plugin, statuses in inspection.refusals]
    return [(name, status.message) for name, status in found if status is not None]

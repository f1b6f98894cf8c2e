"""A plugin that a profile runs at PreFilter, where it can reject the pod or name nodes, but not at Filter."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.engine.framework.events import ClusterEventWithHint
from scheduler.engine.framework.interface import (
    FilterPlugin,
    PodContext,
    PreFiltered,
    PreFilterResult,
    RuleFilter,
)
from scheduler.engine.framework.status import SKIP, Status
from scheduler.engine.state.cluster_view import ClusterView


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

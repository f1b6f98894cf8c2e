"""A plugin that a profile runs at PreFilter and not at Filter: it may refuse the pod or name nodes, and no more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scheduler.framework.events import Registration
from scheduler.framework.interface import Candidate, FilterPlugin, Narrowed, PreFiltered, Requeuer
from scheduler.framework.verdicts import SKIP, Refusals, Status
from scheduler.state.arrays import Mask
from scheduler.state.snapshot import Snapshot


class PreFilterAlone:
    """What is left of the plugin where `filter.disabled` names it and `preFilter.disabled` does not."""

    def __init__(self, plugin: FilterPlugin) -> None:
        self.name = plugin.name
        self._plugin = plugin

    def registrations(self) -> Sequence[Registration]:
        """The plugin's own, without hints: those ask what the filter would say."""
        own = self._plugin.registrations() if isinstance(self._plugin, Requeuer) else ()
        return [Registration(one.resource, one.actions) for one in own]

    def prefilter(self, candidate: Candidate, snapshot: Snapshot) -> PreFiltered:
        """The plugin's refusal or the names that it narrows to; nothing to do where it only left a filter."""
        result = self._plugin.prefilter(candidate, snapshot)
        if isinstance(result, Narrowed):
            return Narrowed(_EveryNode(snapshot.n_rows), result.node_names)
        return result if isinstance(result, Status) else SKIP


class _EveryNode:
    """The filter that is switched off."""

    def __init__(self, n_rows: int) -> None:
        self._n_rows = n_rows

    def fits(self) -> Mask:
        """Every row."""
        return np.ones(self._n_rows, dtype=np.bool_)

    def refusals(self) -> Refusals:
        """None."""
        return Refusals(np.zeros(self._n_rows, dtype=np.uint8), ())

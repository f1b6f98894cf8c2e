"""A profile: the plugins of one schedulerName in order, with weights. `engine.plugins.registry` builds it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from scheduler.engine.framework.interface import (
    MAX_NODE_SCORE,
    FilterPlugin,
    Plugin,
    PreEnqueuePlugin,
    ScorePlugin,
)
from scheduler.engine.framework.out_of_tree import GuardedPlugin
from scheduler.engine.framework.post_filter import PostFilterPlugin

#: The plugin that rejects pods whose group is not placed, by upstream's name.
GANG_SCHEDULING: Final = "GangScheduling"


@dataclass(frozen=True, slots=True)
class WeightedScorer:
    """A scoring plugin and the weight of its scores."""

    plugin: ScorePlugin
    weight: int


@dataclass(frozen=True)
class Profile:
    """
    One profile of the configuration, ready to run.

    `percentage_of_nodes_to_score`: 0 scores all nodes. `out_of_tree`: its plugins of the user's, which are in the other
    fields as well. `max_search_decisions`: decisions of the search for a group's places, beyond one
    for each member. `topology_levels`: of the machine room, from the outside in.
    """

    scheduler_name: str
    filters: tuple[FilterPlugin, ...]
    scorers: tuple[WeightedScorer, ...]
    pre_enqueue: tuple[PreEnqueuePlugin, ...] = ()
    post_filters: tuple[PostFilterPlugin, ...] = ()
    percentage_of_nodes_to_score: int = 0
    out_of_tree: tuple[GuardedPlugin, ...] = ()
    max_search_decisions: int = 0
    topology_levels: tuple[str, ...] = ()

    @cached_property
    def totals_dtype(self) -> np.dtype[np.signedinteger]:
        """The smallest dtype for any sum of weighted scores, since small arrays stay in the processor's caches."""
        most = MAX_NODE_SCORE * sum(abs(weighted.weight) for weighted in self.scorers) + 1
        return np.result_type(np.int16, np.min_scalar_type(-most))

    def rejecting_plugins(self) -> Iterable[Plugin]:
        """Return the plugins that can reject a pod, and so register the events that may lift a rejection, each once."""
        by_name: dict[str, Plugin] = {}
        for plugin in (*self.pre_enqueue, *self.filters):
            by_name.setdefault(plugin.name, plugin)
        return by_name.values()
